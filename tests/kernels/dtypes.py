"""What kernels are tested in, and how close they then come."""

from __future__ import annotations

import pytest
import torch

DTYPES = [
    torch.float32,
    torch.float16,
    pytest.param(
        torch.bfloat16,
        marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="Triton's interpreter multiplies bfloat16 wrongly"),
    ),
]
TOLERANCE = {torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 6e-2}


def shape_id(shape: object) -> str:
    """R2-n5-G17 for {"R": 2, "n": 5, "G": 17}; a dtype by its name."""
    return (
        "-".join(f"{name}{size}" for name, size in shape.items())
        if isinstance(shape, dict)
        else str(shape).removeprefix("torch.")
    )
