"""Scoring of candidates in plain torch. It is on a CPU's hot path: as few operations as will do."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def candidate_log_probs(states: Tensor, from_state: Tensor, from_z: Tensor, base: Tensor, rows: Tensor, tail: Tensor) -> Tensor:
    """Log-probabilities [R, n, M] of all candidates; the arguments are those of `score_candidates`."""
    requests, lanes, _ = states.shape
    if requests == 1:
        bottleneck = F.silu(torch.addmm(from_z, states[0], from_state.T), inplace=True)
        corrected = torch.addmm(base, bottleneck, rows[0].T).unsqueeze(0)
    else:
        bottleneck = F.silu((states @ from_state.T).add_(from_z.unsqueeze(1)), inplace=True)
        corrected = torch.baddbmm(base.unsqueeze(1), bottleneck, rows.mT)
    # The tail takes part as one more candidate that is never drafted. Being finite, it also keeps a dead lane from NaN.
    outside = tail.clamp(min=torch.finfo(tail.dtype).min).view(-1, 1, 1).expand(-1, lanes, 1)
    return torch.cat((corrected, outside), dim=-1).log_softmax(-1)[..., :-1]


def score_candidates(
    states: Tensor, from_state: Tensor, from_z: Tensor, base: Tensor, rows: Tensor, tail: Tensor, children: int
) -> tuple[Tensor, Tensor]:
    """See `dominotree.kernels.candidates.score_candidates`; of equal candidates any may come first."""
    log_probs, places = candidate_log_probs(states, from_state, from_z, base, rows, tail).topk(children)
    return places, log_probs
