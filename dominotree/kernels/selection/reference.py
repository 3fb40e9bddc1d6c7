"""Selection from the ledger in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

DEAD = float("-inf")


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
    depths = depths.expand(requests, length).gather(1, order)
    selected = (
        (tokens.gather(1, order), 0),
        (parents, -1),
        (depths, 0),
        (log_probs.gather(1, order), DEAD),
    )
    short = (0, budget - order.shape[1])
    filled = (F.pad(values.masked_fill_(dead, filler), short, value=filler) for values, filler in selected)
    return (*filled, F.pad(~dead, short, value=False))
