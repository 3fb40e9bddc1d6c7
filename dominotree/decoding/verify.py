"""One target pass over a draft tree: its tokens, positions and mask, and what of the tree it accepts (Section 3.4).

Nothing here waits for the device.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from dominotree.drafting.tree import DraftTree
from dominotree.kernels import tree_mask


@dataclass(frozen=True)
class VerifyInput:
    """The root and the tree's N nodes as one pass. tokens, positions [1, N + 1]; mask [1, 1, N + 1, context + N + 1]."""

    tokens: Tensor
    positions: Tensor
    mask: Tensor


def verify_input(tree: DraftTree, root: Tensor, position: int, max_depth: int, dtype: torch.dtype) -> VerifyInput:
    """Lay out one request's tree whose `root` [1], not yet run, stands at absolute `position`, so behind that many cached tokens.

    Siblings share a position, root + 1 + depth. A node sees the whole context, the root, its ancestors and itself; no node
    is deeper than `max_depth`. The mask is additive (0 or -inf); no row is fully masked.
    """
    tokens = torch.cat((root.unsqueeze(1), tree.tokens), dim=1)
    positions = position + ahead(tree)
    mask = tree_mask(tree.parents, tree.valid, torch.full_like(root, position), position + tokens.shape[1], max_depth, dtype)
    return VerifyInput(tokens, positions, mask)


def ahead(tree: DraftTree) -> Tensor:
    """How far root and nodes stand behind the root's position, [R, N + 1]."""
    return F.pad(tree.depths + 1, (1, 0))


@dataclass(frozen=True)
class Accepted:
    """The path that the target accepts, of R requests: rows [R, P] of the verified pass, root first, parents before children.

    Only the first `counts` [R] rows count. tokens [R, P]: what the target sampled after each row; those of a row are the token
    of the next, and the last that counts is the bonus.
    """

    rows: Tensor
    counts: Tensor
    tokens: Tensor


def accept(tree: DraftTree, sampled: Tensor, max_depth: int) -> Accepted:
    """The path from the root whose tokens are those that the target sampled at their parents.

    sampled [R, N + 1]: after the root and after each node. No node is deeper than `max_depth`, siblings have distinct tokens.
    """
    above = tree.parents + 1  # in rows of the pass: the root is 0
    agreed = F.pad(tree.valid & (tree.tokens == sampled.gather(1, above)), (1, 0), value=True)
    ancestors = F.pad(above, (1, 0))
    for _ in range(max_depth.bit_length()):  # who agrees as do all up to an ancestor, then one twice as far up
        agreed = agreed & agreed.gather(1, ancestors)
        ancestors = ancestors.gather(1, ancestors)
    # Those that are accepted come first, in their order, which is that of the path: parents stand before children.
    rows = agreed.byte().argsort(dim=1, descending=True, stable=True)[:, : max_depth + 1]
    return Accepted(rows, agreed.sum(dim=1), sampled.gather(1, rows))
