"""One target pass over a draft tree: its tokens, positions and mask (Section 3.4)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dominotree.drafting.tree import DraftTree
from dominotree.kernels import tree_mask


@dataclass(frozen=True)
class VerifyInput:
    """The root and the tree's N nodes as one pass. tokens, positions [1, N + 1]; mask [1, 1, N + 1, context + N + 1]."""

    tokens: Tensor
    positions: Tensor
    mask: Tensor


def verify_input(tree: DraftTree, root: int, position: int, max_depth: int, dtype: torch.dtype) -> VerifyInput:
    """Lay out one request's tree whose root, not yet run, stands at absolute `position`, so behind that many cached tokens.

    Siblings share a position, root + 1 + depth. A node sees the whole context, the root, its ancestors and itself; no node
    is deeper than `max_depth`. The mask is additive (0 or -inf); no row is fully masked.
    """
    tokens = torch.cat((tree.tokens.new_tensor([[root]]), tree.tokens), dim=1)
    positions = torch.cat((tree.depths.new_tensor([[position]]), position + 1 + tree.depths), dim=1)
    lengths = tree.parents.new_tensor([position])
    mask = tree_mask(tree.parents, tree.valid, lengths, position + tokens.shape[1], max_depth, dtype)
    return VerifyInput(tokens, positions, mask)
