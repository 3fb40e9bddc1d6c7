"""The accepted path's keys and values, moved together behind the context (Section 3.4)."""

from __future__ import annotations

from torch import Tensor

from dominotree.kernels.compaction.reference import compact_cache as reference
from dominotree.kernels.dispatch import on_gpu


def compact_cache(cache: Tensor, lengths: Tensor, rows: Tensor, counts: Tensor) -> None:
    """Move `counts` rows of each request's block to the front of it, in place; nothing else of the cache changes.

    cache [S, R, h, C, d], S layers' keys and values, strides as they come. lengths [R] int64: slots of context, behind which
    the block stands. rows [R, P] int64: slots in the block, strictly rising, so rows[i] >= i. counts [R] int64: how many of
    them count. For i < counts slot lengths + i gets what stood at lengths + rows[i].
    """
    if on_gpu(cache):
        from dominotree.kernels.compaction.kernel import compact_cache as fused

        fused(cache, lengths, rows, counts)
    else:
        reference(cache, lengths, rows, counts)
