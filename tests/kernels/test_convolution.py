"""The convolution along paths: kernel and reference against transformers' on every path alone; ancestry against walking."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from transformers.models.qwen3_5.modeling_qwen3_5 import causal_conv1d_fn

from dominotree.kernels import ancestry, convolution
from tests.kernels.dtypes import DTYPES, TOLERANCE, shape_id

SHAPES = [
    {"R": 1, "n": 1, "C": 1, "K": 1},
    {"R": 1, "n": 1, "C": 5, "K": 4},
    {"R": 2, "n": 9, "C": 300, "K": 4},
    {"R": 3, "n": 4, "C": 17, "K": 2},
]


def random_parents(R, n, generator) -> Tensor:
    parents = torch.stack([torch.randint(max(1, i), (R,), generator=generator) for i in range(n)], dim=1)
    parents[:, 0] = -1
    return parents


def make(R, n, C, K, dtype=torch.float32, device="cpu", seed=0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    parts = (torch.randn(shape, generator=generator).to(device, dtype) for shape in ((R, n, C), (R, K - 1, C), (C, K)))
    return *parts, random_parents(R, n, generator).to(device)


def walk(parents: list[int], row: int) -> list[int]:
    """The rows from the root down to `row`."""
    return [*(walk(parents, parents[row]) if parents[row] >= 0 else []), row]


def naive(inputs: Tensor, window: Tensor, weight: Tensor, parents: Tensor) -> Tensor:
    """transformers' convolution over context and path, row by row."""
    inputs, window, weight = (part.float().cpu() for part in (inputs, window, weight))
    rows = []
    for r, above in enumerate(parents.tolist()):
        for row in range(len(above)):
            path = torch.cat((window[r], inputs[r, walk(above, row)]))
            rows.append(causal_conv1d_fn(path.T[None], weight, activation="silu")[0, :, -1])
    return torch.stack(rows).view(inputs.shape)


def convolve(function, inputs, window, weight, parents) -> Tensor:
    return function(inputs, window, weight, ancestry(parents, weight.shape[1]).sources)


@pytest.mark.parametrize("dtype", DTYPES, ids=shape_id)
@pytest.mark.parametrize("shape", SHAPES, ids=shape_id)
def test_kernel_convolves_every_path(shape, dtype, device, poisoned):
    from dominotree.kernels.convolution.kernel import convolve_trees

    case = make(**shape, dtype=dtype, device=device)
    out = convolve(convolve_trees, *case)
    assert out.dtype == dtype
    torch.testing.assert_close(out.float().cpu(), naive(*case), rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64], ids=shape_id)
@pytest.mark.parametrize("shape", SHAPES, ids=shape_id)
def test_reference_convolves_every_path(shape, dtype):
    case = make(**shape, dtype=dtype)
    out, tolerance = convolve(convolution.reference, *case), {**TOLERANCE, torch.float64: 1e-5}[dtype]
    assert out.dtype == dtype
    torch.testing.assert_close(out.float(), naive(*case), rtol=tolerance, atol=tolerance)


def test_kernel_takes_slices_and_transposes_as_they_come(device, poisoned):
    from dominotree.kernels.convolution.kernel import convolve_trees

    inputs, window, weight, parents = make(R=2, n=5, C=20, K=4, device=device)
    expected = convolve(convolution.reference, inputs, window, weight, parents)
    inputs, window = torch.cat((inputs, inputs), dim=-1)[..., 20:], window.mT.contiguous().mT
    torch.testing.assert_close(convolve(convolve_trees, inputs, window, weight.T.contiguous().T, parents), expected)


@given(requests=st.integers(1, 3), count=st.integers(1, 40), width=st.integers(1, 6), seed=st.integers(0, 10_000))
def test_ancestry_is_what_walking_up_finds(requests, count, width, seed):
    parents = random_parents(requests, count, torch.Generator().manual_seed(seed))
    found = ancestry(parents, width)
    for r, above in enumerate(parents.tolist()):
        for row in range(count):
            path = walk(above, row)
            assert found.above[r, row].nonzero()[:, 0].tolist() == path
            stream = [*range(width - 1), *(node + width - 1 for node in path)]
            assert found.sources[r, row].tolist() == stream[-width:]
