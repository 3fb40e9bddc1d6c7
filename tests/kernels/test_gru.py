"""The GRU step: the kernel against the reference, both against nn.GRU."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from dominotree.kernels import gru
from tests.kernels.dtypes import DTYPES, TOLERANCE, shape_id

SHAPES = [
    {"R": 1, "n": 1, "m": 1, "G": 17, "T": 1},
    {"R": 1, "n": 33, "m": 5, "G": 32, "T": 50},
    {"R": 2, "n": 5, "m": 33, "G": 17, "T": 7},
    {"R": 5, "n": 8, "m": 1, "G": 100, "T": 64},
    {"R": 2, "n": 16, "m": 16, "G": 1, "T": 3},
]


@dataclass
class Inputs:
    inputs: Tensor
    rows: Tensor
    states: Tensor
    parents: Tensor
    weight_hh: Tensor

    def all(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        return self.inputs, self.rows, self.states, self.parents, self.weight_hh


def make(R, n, m, G, T, dtype=torch.float32, device="cpu", seed=0) -> Inputs:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(device, dtype)

    def below(most: int) -> Tensor:
        return torch.randint(most, (R, n), generator=generator).to(device)

    return Inputs(2 * normal(T, 3 * G), below(T), normal(R, m, G), below(m), normal(3 * G, G) / G**0.5)


def naive(inputs: Inputs) -> Tensor:
    """nn.GRU in float64, child by child; with W_ih the identity its input product is the row itself."""
    table, rows, states, parents, weight_hh = (x.cpu() for x in inputs.all())
    width, size = weight_hh.shape
    module = nn.GRU(width, size, bias=False).double()
    with torch.no_grad():
        module.weight_ih_l0.copy_(torch.eye(width))
        module.weight_hh_l0.copy_(weight_hh)
        out = torch.empty(*rows.shape, size, dtype=torch.float64)
        for r in range(len(rows)):
            for lane, (row, parent) in enumerate(zip(rows[r], parents[r], strict=True)):
                out[r, lane] = module(table[row].double()[None], states[r, parent].double()[None])[0][0]
    return out


def check(out: Tensor, inputs: Inputs, tolerance: float) -> None:
    assert out.dtype == inputs.states.dtype
    torch.testing.assert_close(out.double().cpu(), naive(inputs), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", DTYPES, ids=shape_id)
@pytest.mark.parametrize("shape", SHAPES, ids=shape_id)
def test_kernel_steps_as_nn_gru(shape, dtype, device, poisoned):
    from dominotree.kernels.gru.kernel import gru_step as fused

    inputs = make(**shape, dtype=dtype, device=device)
    check(fused(*inputs.all()), inputs, TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64], ids=shape_id)
@pytest.mark.parametrize("shape", SHAPES, ids=shape_id)
def test_reference_steps_as_nn_gru(shape, dtype):
    inputs = make(**shape, dtype=dtype)
    before = [x.clone() for x in inputs.all()]
    check(gru.reference(*inputs.all()), inputs, {**TOLERANCE, torch.float64: 1e-12}[dtype])
    assert all(torch.equal(x, y) for x, y in zip(inputs.all(), before, strict=True))


def test_kernel_takes_slices_and_transposes_as_they_come(device, poisoned):
    from dominotree.kernels.gru.kernel import gru_step as fused

    inputs = make(R=3, n=4, m=6, G=20, T=9, device=device)
    expected = gru.reference(*inputs.all())
    wide = torch.full((3, 6, 25), float("nan"), device=device)
    wide[..., :20] = inputs.states
    inputs.states, inputs.weight_hh = wide[..., :20], inputs.weight_hh.T.contiguous().T
    inputs.rows, inputs.parents = inputs.rows.T.contiguous().T, inputs.parents.T.contiguous().T
    for step in (fused, gru.reference):
        torch.testing.assert_close(step(*inputs.all()), expected)


def test_steps_far_from_zero_saturate(device, poisoned):
    from dominotree.kernels.gru.kernel import gru_step as fused

    inputs = make(R=1, n=8, m=2, G=5, T=4, device=device)
    inputs.inputs *= 1e4
    torch.testing.assert_close(fused(*inputs.all()), gru.reference(*inputs.all()))


@given(
    sizes=st.tuples(st.integers(1, 3), st.integers(1, 20), st.integers(1, 20), st.integers(1, 70), st.integers(1, 20)),
    seed=st.integers(0, 1000),
)
@settings(max_examples=25, deadline=None)
def test_kernel_steps_any_shape(sizes, seed):
    from dominotree.kernels.gru.kernel import gru_step as fused

    inputs = make(*sizes, device="cuda" if torch.cuda.is_available() else "cpu", seed=seed)
    torch.testing.assert_close(fused(*inputs.all()), gru.reference(*inputs.all()), rtol=1e-5, atol=1e-5)
