"""One target pass over draft trees: its tokens, positions and mask, and what of the trees it accepts (Section 3.4).

Nothing here waits for the device.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from dominotree.drafting.tree import DraftTree
from dominotree.kernels import tree_mask
from dominotree.models.transformer import TreeLayout


@dataclass(frozen=True)
class VerifyInput:
    """R requests' roots and the N nodes of each's tree as one pass. tokens, positions [R, N + 1]."""

    tokens: Tensor
    positions: Tensor
    layout: TreeLayout | None


def verify_input(
    tree: DraftTree, roots: Tensor, lengths: Tensor, longest: int, max_depth: int, dtype: torch.dtype
) -> VerifyInput:
    """Lay out trees whose `roots` [R], not yet run, stand behind `lengths` [R] cached tokens, `longest` of them at most.

    Siblings share a position, root + 1 + depth. A node sees the whole context, the root, its ancestors and itself; no node
    is deeper than `max_depth`. The mask is additive (0 or -inf); no row is fully masked.
    """
    tokens = torch.cat((roots.unsqueeze(1), tree.tokens), dim=1)
    positions = lengths.unsqueeze(1) + ahead(tree)
    mask = tree_mask(tree.parents, tree.valid, lengths, longest + tokens.shape[1], max_depth, dtype)
    parents = F.pad(tree.parents + 1, (1, 0), value=-1)
    return VerifyInput(tokens, positions, TreeLayout(mask, parents, _rows(tree)))


def next_input(roots: Tensor, lengths: Tensor, longest: int, dtype: torch.dtype) -> VerifyInput:
    """The pass of the roots alone: `verify_input` of trees without a node."""
    if len(roots) == 1:
        return VerifyInput(roots.unsqueeze(1), lengths.unsqueeze(1), None)
    none = roots.new_zeros(len(roots), 0)
    return verify_input(DraftTree(none, none, none, none.to(dtype), none.bool()), roots, lengths, longest, 1, dtype)


def _rows(tree: DraftTree) -> Tensor | None:
    """Places of root and nodes in R * (N + 1), where the requests' trees differ in size."""
    if tree.sizes is None:
        return None
    width = tree.num_nodes + 1
    places = [request * width + row for request, size in enumerate(tree.sizes) for row in range(size + 1)]
    return torch.tensor(places, device=tree.tokens.device)


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
