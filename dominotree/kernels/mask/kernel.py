"""The tree's attention mask, written once: every program walks up from its row and fills a stretch of its columns."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

COLUMNS = 1024


@triton.jit
def _tree_mask(
    parents, valid, lengths, mask, count, width, max_depth, parents_r, parents_n, valid_r, valid_n, COLUMNS: tl.constexpr
):
    request = (tl.program_id(0) // (count + 1)).to(tl.int64)
    row = tl.program_id(0) % (count + 1)
    root = tl.load(lengths + request)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    seen = (column <= root) | (column == root + row)
    alive = tl.load(valid + request * valid_r + (row - 1) * valid_n, mask=row > 0, other=0).to(tl.int1)
    current = tl.where(alive, row, 0).to(tl.int64)
    for _ in range(max_depth):
        current = tl.load(parents + request * parents_r + (current - 1) * parents_n, mask=current > 0, other=-1) + 1
        seen = seen | (column == root + current)
    value = tl.where(seen, 0.0, float("-inf")).to(mask.dtype.element_ty)
    tl.store(mask + (request * (count + 1) + row) * width + column, value, mask=column < width)


def tree_mask(parents: Tensor, valid: Tensor, lengths: Tensor, width: int, max_depth: int, dtype: torch.dtype) -> Tensor:
    """See `dominotree.kernels.mask.tree_mask`."""
    requests, count = parents.shape
    mask = torch.empty(requests, 1, count + 1, width, dtype=dtype, device=parents.device)
    _tree_mask[requests * (count + 1), triton.cdiv(width, COLUMNS)](
        parents, valid, lengths.contiguous(), mask, count, width, max_depth, *parents.stride(), *valid.stride(), COLUMNS=COLUMNS
    )
    return mask
