"""One target pass over a draft tree: its tokens, positions and mask (Section 3.4)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dominotree.drafting.tree import DraftTree, ancestor_mask


@dataclass(frozen=True)
class VerifyInput:
    """The root and the tree's N nodes as one pass. tokens, positions [1, N + 1]; mask [1, 1, N + 1, context + N + 1]."""

    tokens: Tensor
    positions: Tensor
    mask: Tensor


def verify_input(tree: DraftTree, root: int, position: int, dtype: torch.dtype) -> VerifyInput:
    """Lay out a tree whose root, not yet run, stands at absolute `position`, so behind that many cached tokens.

    Siblings share a position, root + 1 + depth. A node sees the whole context, the root, its ancestors and itself.
    The mask is additive (0 or -inf); no row is fully masked.
    """
    count, device = len(tree), tree.tokens.device
    tokens = torch.cat((tree.tokens.new_tensor([root]), tree.tokens))
    positions = torch.cat((tree.depths.new_tensor([position]), position + 1 + tree.depths))
    mask = torch.zeros(count + 1, position + count + 1, dtype=dtype, device=device)
    max_depth = int(tree.depths.max()) if count else 0
    hidden = ~ancestor_mask(tree.parents, max_depth)
    mask[1:, position + 1 :].masked_fill_(hidden, float("-inf"))
    mask[0, position + 1 :] = float("-inf")
    return VerifyInput(tokens.unsqueeze(0), positions.unsqueeze(0), mask[None, None])
