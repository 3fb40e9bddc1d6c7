"""The best few of a vocabulary."""

from __future__ import annotations

import torch
from torch import Tensor

BLOCK = 64


def top_tokens(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """As `logits.topk(count)`, best first: values and tokens [..., count] of logits [..., V].

    The `count` best stand in the `count` blocks with the best maxima. Finding those reads the vocabulary once and at full
    speed; only `count` blocks are then searched. Exact; of equal values any may be taken.
    """
    vocabulary = logits.shape[-1]
    blocks = vocabulary // BLOCK
    if blocks <= 2 * count:
        return logits.topk(count)
    whole, rest = logits.split([blocks * BLOCK, vocabulary - blocks * BLOCK], dim=-1)
    whole = whole.unflatten(-1, (blocks, BLOCK))
    best = whole.amax(-1).topk(count, sorted=False).indices
    found = whole.gather(-2, best.unsqueeze(-1).expand(*best.shape, BLOCK)).flatten(-2)
    values, places = (torch.cat((found, rest), dim=-1) if rest.shape[-1] else found).topk(count)
    block = best.gather(-1, places.div(BLOCK, rounding_mode="floor").clamp(max=count - 1))
    # Places behind the blocks are those of the rest, in its order.
    return values, torch.where(places < count * BLOCK, block * BLOCK + places % BLOCK, places + (blocks - count) * BLOCK)
