"""Compaction of the cache in one launch for all layers, keys and values."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _compact_cache(
    cache, lengths, rows, counts, heads, width, limit,
    cache_s, cache_r, cache_h, cache_c, cache_d, rows_r, rows_p,
    WIDTH: tl.constexpr,
):  # fmt: skip
    request = tl.program_id(1).to(tl.int64)
    layer, head = (tl.program_id(0) // heads).to(tl.int64), (tl.program_id(0) % heads).to(tl.int64)
    column = tl.arange(0, WIDTH)
    block = tl.load(lengths + request) * cache_c
    block += layer * cache_s + request * cache_r + head * cache_h
    # In rising order: an entry's slot is overwritten by itself or a later one only, after it has been read.
    for slot in range(tl.minimum(tl.load(counts + request), limit)):
        row = tl.load(rows + request * rows_r + slot * rows_p)
        moved = tl.load(cache + block + row * cache_c + column * cache_d, mask=column < width)
        tl.store(cache + block + slot * cache_c + column * cache_d, moved, mask=column < width)


def compact_cache(cache: Tensor, lengths: Tensor, rows: Tensor, counts: Tensor) -> None:
    """See `dominotree.kernels.compaction.compact_cache`."""
    layers, requests, heads, _, width = cache.shape
    _compact_cache[layers * heads, requests](
        cache, lengths.contiguous(), rows, counts.contiguous(), heads, width, rows.shape[1],
        *cache.stride(), *rows.stride(),
        WIDTH=triton.next_power_of_2(width), num_warps=1,
    )  # fmt: skip
