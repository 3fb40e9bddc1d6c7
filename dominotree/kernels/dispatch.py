"""Which tensors go to the Triton kernels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

_plain = ContextVar("plain", default=False)


def on_gpu(tensor: Tensor) -> bool:
    """Whether a kernel takes it: on CUDA, and not in float64, where the reference is what one wants to see."""
    return tensor.is_cuda and tensor.dtype != torch.float64 and not _plain.get()


@contextmanager
def plain_torch() -> Iterator[None]:
    """Within it the references run on every device: what there is to compare the kernels with, in result and in time."""
    token = _plain.set(True)
    try:
        yield
    finally:
        _plain.reset(token)
