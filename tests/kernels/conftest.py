"""Kernels run on the GPU where there is one, else in Triton's interpreter, which must be asked for before triton is imported."""

from __future__ import annotations

import os
import sys

import pytest
import torch

GPU = torch.cuda.is_available()
if not GPU:
    assert "triton" not in sys.modules, "something imported triton before its interpreter could be asked for"
    os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture
def device() -> torch.device:
    """Where the kernels under test run."""
    return torch.device("cuda" if GPU else "cpu")


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """`torch.empty` gives NaN, or the least integer, or True, so that what a kernel does not write shows."""
    empty = torch.empty

    def poison(*shape, **options):
        tensor = empty(*shape, **options)
        if tensor.dtype == torch.bool:
            return tensor.fill_(True)
        return tensor.fill_(float("nan") if tensor.is_floating_point() else torch.iinfo(tensor.dtype).min)

    monkeypatch.setattr(torch, "empty", poison)
