"""What tests of the kernels share."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture
def device() -> torch.device:
    """Where kernels run: on the GPU where there is one, else in Triton's interpreter."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


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
