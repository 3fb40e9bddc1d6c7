"""The gated delta rule over trees: kernel and reference against states made one by one, and the states of accepted paths."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers.models.qwen3_5.modeling_qwen3_5 import torch_recurrent_gated_delta_rule

from dominotree.kernels import absorption, ancestry, recurrence
from tests.kernels.dtypes import DTYPES, TOLERANCE, shape_id

SHAPES = [
    {"R": 1, "n": 1, "g": 1, "h": 1, "dk": 1, "dv": 1},
    {"R": 1, "n": 6, "g": 2, "h": 6, "dk": 17, "dv": 9},
    {"R": 3, "n": 17, "g": 1, "h": 2, "dk": 40, "dv": 33},
    {"R": 2, "n": 33, "g": 2, "h": 2, "dk": 8, "dv": 65},
]


@dataclass
class Inputs:
    queries: Tensor
    keys: Tensor
    values: Tensor
    gates: Tensor
    betas: Tensor
    states: Tensor
    parents: Tensor

    def all(self) -> tuple[Tensor, ...]:
        above = ancestry(self.parents, 1).above
        return self.queries, self.keys, self.values, self.gates, self.betas, self.states, above


def make(R, n, g, h, dk, dv, dtype=torch.float32, device="cpu", seed=0, chain=False) -> Inputs:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(device, dtype)

    gates = -torch.rand(R, n, h, generator=generator).to(device)
    wide = torch.promote_types(dtype, torch.float32)
    states = torch.randn(R, h, dk, dv, generator=generator).to(device, wide)
    reach = 1 if chain else torch.randint(1, n + 1, (R, n), generator=generator)
    parents = (torch.arange(n).expand(R, -1) - reach).clamp(min=0)
    parents[:, 0] = -1
    return Inputs(
        normal(R, n, g, dk),
        normal(R, n, g, dk),
        normal(R, n, h, dv),
        gates,
        normal(R, n, h).sigmoid(),
        states,
        parents.to(device),
    )


def naive(inputs: Inputs) -> tuple[Tensor, Tensor]:
    """Outputs [R, n, h, dv] and each node's state [R, n, h, dk, dv], made from its parent's in float64."""
    q, k, v, gates, betas, states = (part.double().cpu() for part in inputs.all()[:6])
    q, k = (part / (part.square().sum(-1, keepdim=True) + recurrence.EPSILON).sqrt() for part in (q, k))
    R, n, h, dv = v.shape
    outputs, after = torch.empty(v.shape, dtype=torch.float64), torch.empty(R, n, h, q.shape[-1], dv, dtype=torch.float64)
    for r in range(R):
        for i, parent in enumerate(inputs.parents[r].tolist()):
            for head in range(h):
                served = head // (h // k.shape[2])
                state = (states[r, head] if parent < 0 else after[r, parent, head]) * gates[r, i, head].exp()
                key, query = k[r, i, served], q[r, i, served] / q.shape[-1] ** 0.5
                state = state + torch.outer(key, betas[r, i, head] * (v[r, i, head] - state.T @ key))
                after[r, i, head], outputs[r, i, head] = state, state.T @ query
    return outputs, after


def check(recur, absorb, inputs: Inputs, tolerance: float) -> None:
    """Outputs, and the state that each node leaves, of a request each its own and none for the first."""
    arguments = inputs.all()
    outputs, updates, decays = recur(*arguments, recurrence.EPSILON)
    expected, after = naive(inputs)
    assert outputs.dtype == inputs.values.dtype and updates.dtype == decays.dtype == inputs.states.dtype
    torch.testing.assert_close(outputs.double().cpu(), expected, rtol=tolerance, atol=tolerance)
    R, n = inputs.parents.shape
    path = torch.zeros(R, n, dtype=torch.int64)
    counts, last = torch.zeros(R, dtype=torch.int64), [(7 * r + n - 1) % n for r in range(R)]
    for r in range(1 if R > 1 else 0, R):
        rows = arguments[-1][r, last[r]].cpu().nonzero()[:, 0]
        path[r, : len(rows)], path[r, len(rows) :], counts[r] = rows, n - 1, len(rows)
    layers = [part.expand(2, *part.shape) for part in (inputs.keys, updates, decays)]
    states = torch.stack([inputs.states, inputs.states])
    absorb(states, *layers, path.to(states.device), counts.to(states.device))
    for r in range(R):
        wanted = after[r, last[r]] if counts[r] else inputs.states[r].double().cpu()
        for layer in range(2):
            torch.testing.assert_close(states[layer, r].double().cpu(), wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", DTYPES, ids=shape_id)
@pytest.mark.parametrize("shape", SHAPES, ids=shape_id)
def test_kernels_follow_every_path(shape, dtype, device, poisoned):
    from dominotree.kernels.absorption.kernel import absorb_paths
    from dominotree.kernels.recurrence.kernel import recur_trees

    check(recur_trees, absorb_paths, make(**shape, dtype=dtype, device=device), TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64], ids=shape_id)
@pytest.mark.parametrize("shape", SHAPES, ids=shape_id)
def test_reference_follows_every_path(shape, dtype):
    inputs = make(**shape, dtype=dtype)
    before = [part.clone() for part in inputs.all()]
    check(recurrence.reference, absorption.reference, inputs, {**TOLERANCE, torch.float64: 1e-9}[dtype])
    assert all(torch.equal(x, y) for x, y in zip(inputs.all(), before, strict=True))


def test_a_chain_is_what_transformers_makes_of_it():
    inputs = make(R=2, n=12, g=2, h=4, dk=8, dv=6, chain=True)
    outputs, updates, decays = recurrence.reference(*inputs.all(), recurrence.EPSILON)
    parts = (inputs.queries, inputs.keys, inputs.values, inputs.gates, inputs.betas)
    expected, state = torch_recurrent_gated_delta_rule(
        *parts, initial_state=inputs.states, output_final_state=True, use_qk_l2norm_in_kernel=True
    )
    torch.testing.assert_close(outputs, expected, rtol=1e-5, atol=1e-5)
    states, rows = inputs.states[None].clone(), torch.arange(12).expand(2, -1)
    absorption.reference(states, inputs.keys[None], updates[None], decays[None], rows, torch.tensor([12, 12]))
    torch.testing.assert_close(states[0], state, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("which", ["kernel", "reference"])
def test_hard_keys_stay_exact(which, device):
    """Rows that all bring one key, learn at once and forget nothing: powers of the system overflow, its solution does not."""
    from dominotree.kernels.recurrence.kernel import recur_trees

    inputs = make(R=1, n=60, g=1, h=1, dk=4, dv=3, chain=True, device=device)
    inputs.keys[:], inputs.gates[:], inputs.betas[:] = inputs.keys[:, :1].clone(), 0, 1
    outputs, *_ = (recur_trees if which == "kernel" else recurrence.reference)(*inputs.all(), recurrence.EPSILON)
    torch.testing.assert_close(outputs.double().cpu(), naive(inputs)[0], rtol=1e-4, atol=1e-4)


def test_kernels_take_slices_as_they_come(device, poisoned):
    from dominotree.kernels.recurrence.kernel import recur_trees

    inputs = make(R=2, n=5, g=1, h=2, dk=8, dv=8, device=device)
    expected = recurrence.reference(*inputs.all(), recurrence.EPSILON)
    joined = torch.cat([part.flatten(2) for part in (inputs.queries, inputs.keys, inputs.values)], dim=-1)
    parts = joined.split((8, 8, 16), dim=-1)
    inputs.queries, inputs.keys, inputs.values = (
        part.unflatten(-1, (heads, -1)) for part, heads in zip(parts, (1, 1, 2), strict=True)
    )
    both = torch.stack((inputs.gates, inputs.betas), dim=-1)
    inputs.gates, inputs.betas = both.unbind(-1)
    inputs.states = torch.stack((inputs.states, inputs.states), dim=1)[:, 1]
    torch.testing.assert_close(recur_trees(*inputs.all(), recurrence.EPSILON), expected, rtol=1e-5, atol=1e-5)


@given(
    sizes=st.tuples(st.integers(1, 3), st.integers(1, 40), st.integers(1, 2), st.integers(1, 3), st.integers(1, 40)),
    width=st.integers(1, 40),
    seed=st.integers(0, 1000),
)
@settings(max_examples=8, deadline=None)
def test_kernel_takes_any_shape(sizes, width, seed):
    from dominotree.kernels.recurrence.kernel import recur_trees

    R, n, g, ratio, dk = sizes
    inputs = make(R, n, g, g * ratio, dk, width, device="cuda" if torch.cuda.is_available() else "cpu", seed=seed)
    expected = recurrence.reference(*inputs.all(), recurrence.EPSILON)
    torch.testing.assert_close(recur_trees(*inputs.all(), recurrence.EPSILON), expected, rtol=1e-4, atol=1e-4)
