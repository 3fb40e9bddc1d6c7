"""Compaction of the cache in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor


def compact_cache(cache: Tensor, lengths: Tensor, rows: Tensor, counts: Tensor) -> None:
    """See `dominotree.kernels.compaction.compact_cache`."""
    slots = torch.arange(rows.shape[1], device=rows.device)
    # Shapes are static: entries that do not count repeat the last one that does, or slot 0 where none does.
    entries = torch.minimum(slots, (counts.unsqueeze(1) - 1).clamp_(min=0))
    targets = (lengths.unsqueeze(1) + entries).clamp_(max=cache.shape[3] - 1)
    sources = torch.where(counts.unsqueeze(1) > 0, lengths.unsqueeze(1) + rows.gather(1, entries), targets)
    for request in range(cache.shape[1]):
        block = cache[:, request]
        block.index_copy_(2, targets[request], block.index_select(2, sources[request]))
