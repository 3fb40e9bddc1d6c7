"""A causal convolution along the paths of trees in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def convolve_trees(inputs: Tensor, window: Tensor, weight: Tensor, sources: Tensor) -> Tensor:
    """See `dominotree.kernels.convolution.convolve_trees`."""
    stream = torch.cat((window, inputs), dim=1)
    requests = torch.arange(len(stream), device=stream.device).view(-1, 1, 1)
    wide = torch.promote_types(inputs.dtype, torch.float32)
    windows = stream[requests, sources].to(wide)  # [R, n, K, C]
    return F.silu((windows * weight.T.to(wide)).sum(dim=2)).to(inputs.dtype)
