"""The best children of every lane: Domino's correction, normalised, top k (Section 3.1)."""

from __future__ import annotations

from torch import Tensor

from dominotree.kernels.candidates.reference import candidate_log_probs
from dominotree.kernels.candidates.reference import score_candidates as reference
from dominotree.kernels.dispatch import on_gpu

__all__ = ["MAX_CANDIDATES", "candidate_log_probs", "score_candidates"]

MAX_CANDIDATES = 1024
"""The widest set that the kernel takes; wider ones, as the full vocabulary, are scored by the reference on CUDA too."""


def score_candidates(
    states: Tensor, from_state: Tensor, from_z: Tensor, base: Tensor, rows: Tensor, tail: Tensor, children: int
) -> tuple[Tensor, Tensor]:
    """The k best of M candidates for every lane: places among the candidates [R, n, k] int64, log-probabilities [R, n, k].

    states [R, n, G]: the lanes' GRU states. from_state [E, G]: the part of W1 that reads them. from_z [R, E]: the part of
    W1 [z ; s] that no path changes. base [R, M]: the candidates' base logits, -inf where there is none. rows [R, M, E]:
    their rows of W2. tail [R] float32: the log-sum-exp of the logits outside the candidates, which shares in the
    normaliser; -inf for the released method's, over the candidates alone.

    With b = SiLU(from_z + from_state s), a candidate's logit is base + rows b. Best first. A dead candidate has
    log-probability -inf, also where all of a lane's are dead. Log-probabilities are float32, or float64 for float64.
    Half-precision products accumulate in fp32. M above `MAX_CANDIDATES` is scored by the reference on every device.
    """
    if on_gpu(states) and base.shape[1] <= MAX_CANDIDATES:
        from dominotree.kernels.candidates.kernel import score_candidates as fused

        return fused(states, from_state, from_z, base, rows, tail, children)
    return reference(states, from_state, from_z, base, rows, tail, children)
