"""Selection from the ledger in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

DEAD = float("-inf")
FILLERS = (0, -1, 0, DEAD)  # token, parent, depth and log-probability of a dead leaf


def select_tree(
    scores: Tensor, tokens: Tensor, parents: Tensor, depths: Tensor, log_probs: Tensor, budget: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """See `dominotree.kernels.selection.select_tree`."""
    requests, length = scores.shape
    best, order = scores.sort(dim=1, descending=True, stable=True)
    best, order = best[:, :budget], order[:, :budget]
    dead = best == DEAD
    # Where each ledger entry went, shifted by one so that the root, -1, has a place too: it stays -1.
    moved = torch.full((requests, length + 1), -1, dtype=torch.int64, device=scores.device)
    moved.scatter_(1, order + 1, torch.arange(order.shape[1], device=scores.device).expand_as(order))
    parents = moved.gather(1, parents.gather(1, order) + 1)
    columns = (tokens.gather(1, order), parents, depths[order], log_probs.gather(1, order))
    trees = [values.masked_fill_(dead, filler) for values, filler in zip(columns, FILLERS, strict=True)]
    if length < budget:
        short = (0, budget - length)
        dead = F.pad(dead, short, value=True)
        trees = [F.pad(values, short, value=filler) for values, filler in zip(trees, FILLERS, strict=True)]
    return (*trees, ~dead)
