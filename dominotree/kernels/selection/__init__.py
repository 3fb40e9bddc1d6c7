"""The tree out of the ledger of all scored nodes (Appendix B)."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from dominotree.kernels.dispatch import on_gpu
from dominotree.kernels.selection.reference import select_tree as reference


class SelectedTrees(NamedTuple):
    """R trees of B nodes, parents before children, best first; short ones are filled up with dead leaves.

    tokens, parents (-1: the root), depths, log_probs [R, B] as in `DraftTree`; valid [R, B] bool. A dead leaf has token 0,
    parent -1, depth 0 and log-probability -inf.
    """

    tokens: Tensor
    parents: Tensor
    depths: Tensor
    log_probs: Tensor
    valid: Tensor


def select_tree(scores: Tensor, tokens: Tensor, parents: Tensor, depths: Tensor, log_probs: Tensor, budget: int) -> SelectedTrees:
    """The B best of L ledger entries, as trees.

    scores [R, L]: never higher than the parent's; -inf is no node. tokens [R, L] int64. parents [R, L] int64: the parent's
    place in the ledger, lower than the own place, -1 for the root. depths [L] int64. log_probs [R, L]. Of equal scores the
    lower place comes first, so that a parent is always in, and before its children.
    """
    if on_gpu(scores):
        from dominotree.kernels.selection.kernel import select_tree as fused

        return SelectedTrees(*fused(scores, tokens, parents, depths, log_probs, budget))
    return SelectedTrees(*reference(scores, tokens, parents, depths, log_probs, budget))
