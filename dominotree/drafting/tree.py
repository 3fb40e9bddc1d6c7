"""The draft tree: what every builder makes and what verification reads."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class DraftTree:
    """N drafted nodes under a root, parents before children; a chain is a tree without branches.

    tokens [N] int64; parents [N] int64, -1 for a child of the root; depths [N] int64, 0 for a child of the root;
    log_probs [N] float, cumulative along the path.
    """

    tokens: Tensor
    parents: Tensor
    depths: Tensor
    log_probs: Tensor

    def __len__(self) -> int:
        return len(self.tokens)


def ancestor_mask(parents: Tensor, max_depth: int) -> Tensor:
    """[N, N] bool: entry (i, j) says that node j is node i or an ancestor of it.

    `max_depth` bounds the depth of the tree; following the parent pointers takes that many steps, whatever N is.
    """
    count = len(parents)
    # A last row and column stand for "above the root", where every path ends and stays.
    up = torch.cat((torch.where(parents < 0, count, parents), parents.new_full((1,), count)))
    mask = torch.eye(count + 1, dtype=torch.bool, device=parents.device)
    current = up
    for _ in range(max_depth):
        mask.scatter_(1, current.unsqueeze(1), True)
        current = up[current]
    return mask[:count, :count]


def accepted_path(tree: DraftTree, sampled: list[int]) -> list[int]:
    """The nodes, root to leaf, whose tokens are the ones that the target sampled at their parents.

    sampled: N + 1 tokens, the target's choice after the root and after each node. The token sampled after the last
    node of the path is the bonus.
    """
    parents, tokens = tree.parents.tolist(), tree.tokens.tolist()
    path: list[int] = []
    current = -1
    for node, parent in enumerate(parents):
        if parent == current and tokens[node] == sampled[current + 1]:
            path.append(node)
            current = node
    return path
