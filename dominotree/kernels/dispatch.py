"""Which tensors go to the Triton kernels."""

from __future__ import annotations

import torch
from torch import Tensor


def on_gpu(tensor: Tensor) -> bool:
    """Whether a kernel takes it: on CUDA, and not in float64, where the reference is what one wants to see."""
    return tensor.is_cuda and tensor.dtype != torch.float64
