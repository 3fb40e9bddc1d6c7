"""The tree's attention mask in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor

HIDDEN = float("-inf")


def tree_mask(parents: Tensor, valid: Tensor, lengths: Tensor, width: int, max_depth: int, dtype: torch.dtype) -> Tensor:
    """See `dominotree.kernels.mask.tree_mask`."""
    requests, count = parents.shape
    device = parents.device
    # In rows of the block: the parent, 0 being the root, which is its own parent and where every path stays. Then those
    # further up, twice as far each time.
    paths = torch.zeros(requests, count + 1, 1, dtype=torch.int64, device=device)
    paths[:, 1:, 0] = (parents + 1).masked_fill_(~valid, 0)
    while paths.shape[2] < max_depth:
        paths = torch.cat((paths, paths.gather(1, paths[..., -1:].expand_as(paths))), dim=2)
    block = torch.full((requests, count + 1, count + 1), HIDDEN, dtype=dtype, device=device)
    block.diagonal(dim1=1, dim2=2).zero_()
    block[..., 0] = 0
    block.scatter_(2, paths, 0)
    mask = torch.full((requests, count + 1, width), HIDDEN, dtype=dtype, device=device)
    columns = lengths.view(-1, 1, 1) + torch.arange(count + 1, device=device)
    mask.scatter_(2, columns.expand_as(block), block)
    context = torch.arange(width, device=device) < lengths.view(-1, 1, 1)
    return mask.masked_fill_(context, 0).unsqueeze(1)
