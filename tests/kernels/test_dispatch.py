"""Who computes: the kernel for tensors on CUDA, the reference elsewhere, and triton only when it is needed."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from dominotree import kernels
from dominotree.kernels.candidates import MAX_CANDIDATES
from dominotree.kernels.recurrence import MAX_ROWS

OPERATIONS = {
    "candidates": "score_candidates",
    "gru": "gru_step",
    "selection": "select_tree",
    "mask": "tree_mask",
    "compaction": "compact_cache",
    "recurrence": "recur_trees",
    "convolution": "convolve_trees",
    "absorption": "absorb_paths",
}


@pytest.fixture(params=["cuda", "cpu"])
def where(request: pytest.FixtureRequest) -> Iterator[str]:
    """A device, on which tensors have shapes but no values, so that it need not be there."""
    with FakeTensorMode():
        yield request.param


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Who was asked; nobody answers."""
    asked: list[str] = []
    for room, operation in OPERATIONS.items():
        answer = [torch.empty(0)] * 5
        public = importlib.import_module(f"dominotree.kernels.{room}")
        kernel = importlib.import_module(f"dominotree.kernels.{room}.kernel")
        monkeypatch.setattr(kernel, operation, lambda *_, answer=answer, room=room: asked.append(f"{room} kernel") or answer)
        monkeypatch.setattr(public, "reference", lambda *_, answer=answer, room=room: asked.append(f"{room} reference") or answer)
    return asked


def call(operation: str, device: str, dtype: torch.dtype = torch.float32, width: int = 7, rows: int = 3) -> None:
    def real(*shape: int) -> torch.Tensor:
        return torch.empty(shape, device=device, dtype=dtype)

    def whole(*shape: int) -> torch.Tensor:
        return torch.empty(shape, device=device, dtype=torch.int64)

    arguments = {
        "score_candidates": (real(1, 2, 4), real(3, 4), real(1, 3), real(1, width), real(1, width, 3), real(1), 2),
        "gru_step": (real(9, 12), whole(1, 2), real(1, 3, 4), whole(1, 2), real(12, 4)),
        "select_tree": (real(1, 9), whole(1, 9), whole(1, 9), whole(9), real(1, 9), 4),
        "tree_mask": (whole(1, 4), whole(1, 4).bool(), whole(1), 9, 3, dtype),
        "recur_trees": (
            *2 * (real(1, rows, 1, 4),),
            *2 * (real(1, rows, 2, 4),),
            real(1, 2),
            real(1, 2, 4, 4),
            whole(1, rows, rows),
        ),
        "convolve_trees": (real(1, 3, 8), real(1, 3, 8), real(8, 4), whole(1, 3, 4)),
        "absorb_paths": (real(2, 1, 2, 4, 4), real(2, 1, 3, 1, 4), real(2, 1, 3, 2, 4), real(2, 1, 3, 2), whole(1, 3), whole(1)),
        "compact_cache": (real(2, 1, 1, 9, 4), whole(1), whole(1, 3), whole(1)),
    }
    getattr(kernels, operation)(*arguments[operation])


@pytest.mark.parametrize("room", OPERATIONS)
def test_tensors_on_cuda_go_to_the_kernel(room, calls, where):
    call(OPERATIONS[room], where)
    assert calls == [f"{room} {'kernel' if where == 'cuda' else 'reference'}"]


@pytest.mark.parametrize("room", ["candidates", "gru", "selection", "recurrence", "convolution", "absorption"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_double_precision_goes_to_the_reference(room, dtype, calls):
    with FakeTensorMode():
        call(OPERATIONS[room], "cuda", dtype)
    assert calls == [f"{room} {'reference' if dtype == torch.float64 else 'kernel'}"]


@pytest.mark.parametrize("width", [MAX_CANDIDATES, MAX_CANDIDATES + 1])
def test_more_candidates_than_fit_go_to_the_reference(width, calls):
    with FakeTensorMode():
        call("score_candidates", "cuda", width=width)
    assert calls == [f"candidates {'kernel' if width == MAX_CANDIDATES else 'reference'}"]


@pytest.mark.parametrize("rows", [MAX_ROWS, MAX_ROWS + 1])
def test_more_rows_than_fit_go_to_the_reference(rows, calls):
    with FakeTensorMode():
        call("recur_trees", "cuda", rows=rows)
    assert calls == [f"recurrence {'kernel' if rows == MAX_ROWS else 'reference'}"]


def test_importing_the_kernels_leaves_triton_alone():
    code = "import sys, dominotree.kernels; assert 'torch' in sys.modules and 'triton' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
