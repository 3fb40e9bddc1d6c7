"""The attention mask under which the target verifies a tree in one pass (Section 3.4)."""

from __future__ import annotations

import torch
from torch import Tensor

from dominotree.kernels.dispatch import on_gpu
from dominotree.kernels.mask.reference import tree_mask as reference


def tree_mask(parents: Tensor, valid: Tensor, lengths: Tensor, width: int, max_depth: int, dtype: torch.dtype) -> Tensor:
    """Additive mask [R, 1, N + 1, width] of root and N nodes: 0 where a row may look, -inf elsewhere.

    parents [R, N] int64 (-1: the root) and valid [R, N] bool as from `select_tree`. lengths [R] int64: cached tokens of the
    requests; the block's columns, root first, stand behind them. width: at least the longest of them plus N + 1.
    max_depth: no node is deeper. Row 0 is the root, row i + 1 is node i. A row sees its request's context, the root, its
    ancestors and itself; a dead leaf the context, the root and itself, so that no row is fully masked.
    """
    if on_gpu(parents):
        from dominotree.kernels.mask.kernel import tree_mask as fused

        return fused(parents, valid, lengths, width, max_depth, dtype)
    return reference(parents, valid, lengths, width, max_depth, dtype)
