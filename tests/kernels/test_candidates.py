"""Scoring of candidates: the kernel against the reference, the reference against loops over float64."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dominotree.kernels import candidates
from tests.kernels.dtypes import DTYPES, TOLERANCE, shape_id

SHAPES = [
    {"R": 1, "n": 1, "M": 1, "k": 1, "G": 17, "E": 5},
    {"R": 1, "n": 33, "M": 64, "k": 8, "G": 32, "E": 32},
    {"R": 2, "n": 5, "M": 7, "k": 3, "G": 17, "E": 33},
    {"R": 5, "n": 5, "M": 100, "k": 8, "G": 65, "E": 70},
    {"R": 2, "n": 17, "M": 16, "k": 16, "G": 1, "E": 1},
]
WIDEST = {"R": 1, "n": 5, "M": 1024, "k": 3, "G": 32, "E": 37}
DEAD = float("-inf")


@dataclass
class Inputs:
    states: Tensor
    from_state: Tensor
    from_z: Tensor
    base: Tensor
    rows: Tensor
    tail: Tensor
    children: int

    def all(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, int]:
        return self.states, self.from_state, self.from_z, self.base, self.rows, self.tail, self.children


def make(R, n, M, k, G, E, dtype=torch.float32, device="cpu", seed=0) -> Inputs:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    # As in a drafter, the part of W1 that reads states is a slice of it.
    from_state = torch.cat((normal(E, 3), normal(E, G) / G**0.5), dim=1)[:, 3:]
    tensors = (normal(R, n, G), from_state, normal(R, E), 2 * normal(R, M), normal(R, M, E) / E**0.5)
    return Inputs(*(x.to(device, dtype) for x in tensors), (normal(R) + 1).to(device), k)


def naive(inputs: Inputs) -> Tensor:
    """Log-probabilities [R, n, M] of all candidates, number by number in float64."""
    states, from_state, from_z, base, rows, tail = (x.double().cpu() for x in inputs.all()[:-1])
    out = torch.empty(*states.shape[:2], base.shape[1], dtype=torch.float64)
    for r, lanes in enumerate(states):
        for lane, state in enumerate(lanes):
            hidden = torch.tensor([float(from_z[r, e] + from_state[e] @ state) for e in range(len(from_state))]).double()
            bottleneck = hidden / (1 + (-hidden).exp())
            logits = [float(base[r, m] + rows[r, m] @ bottleneck) for m in range(base.shape[1])]
            total = sum(math.exp(x) for x in (*logits, float(tail[r])))
            out[r, lane] = torch.tensor([x - math.log(total) if x > DEAD else DEAD for x in logits])
    return out


def check_best(places: Tensor, log_probs: Tensor, expected: Tensor, tolerance: float) -> None:
    """The places are distinct, hold what is said of them, fall, and none better is left out, up to the tolerance."""
    places, log_probs = places.cpu(), log_probs.double().cpu()
    children = places.shape[-1]
    assert all(len(set(row.tolist())) == children for row in places.flatten(0, 1))
    torch.testing.assert_close(log_probs, expected.gather(-1, places), rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(log_probs, expected.sort(-1, descending=True)[0][..., :children], rtol=tolerance, atol=tolerance)
    assert (log_probs[..., 1:] <= log_probs[..., :-1]).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=shape_id)
@pytest.mark.parametrize("shape", [*SHAPES, WIDEST], ids=shape_id)
def test_kernel_scores_as_the_naive_loops(shape, dtype, device, poisoned):
    from dominotree.kernels.candidates.kernel import score_candidates as fused

    inputs = make(**shape, dtype=dtype, device=device)
    places, log_probs = fused(*inputs.all())
    assert places.dtype == torch.int64 and log_probs.dtype == torch.float32
    check_best(places, log_probs, naive(inputs), TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64], ids=shape_id)
@pytest.mark.parametrize("shape", SHAPES, ids=shape_id)
def test_reference_scores_as_the_naive_loops(shape, dtype):
    inputs = make(**shape, dtype=dtype)
    places, log_probs = candidates.reference(*inputs.all())
    assert places.dtype == torch.int64 and log_probs.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    check_best(places, log_probs, naive(inputs), {**TOLERANCE, torch.float64: 1e-6}[dtype])


@pytest.mark.parametrize("shape", SHAPES, ids=shape_id)
def test_kernel_and_reference_agree(shape, device, poisoned):
    from dominotree.kernels.candidates.kernel import score_candidates as fused

    inputs = make(**shape, device=device, seed=1)
    for got, expected in zip(fused(*inputs.all()), candidates.reference(*inputs.all()), strict=True):
        torch.testing.assert_close(got, expected)


def both(device: torch.device):
    from dominotree.kernels.candidates.kernel import score_candidates as fused

    return fused, candidates.reference


@pytest.mark.parametrize("which", [0, 1], ids=["kernel", "reference"])
def test_released_normaliser_is_over_the_candidates_alone(which, device, poisoned):
    inputs = make(R=2, n=5, M=7, k=7, G=17, E=9, device=device)
    inputs.tail.fill_(DEAD)
    _, log_probs = both(device)[which](*inputs.all())
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(2, 5, device=device))


@pytest.mark.parametrize("which", [0, 1], ids=["kernel", "reference"])
def test_tail_completes_the_full_vocabulary(which, device, poisoned):
    """Candidates with the tail of the others' base logits: their probabilities in the whole, where only they are corrected."""
    inputs = make(R=2, n=5, M=7, k=7, G=17, E=9, device=device)
    others = torch.randn(2, 30, device=device)
    inputs.tail = others.logsumexp(-1)
    places, log_probs = both(device)[which](*inputs.all())
    inputs.tail = torch.full_like(inputs.tail, DEAD)
    alone = naive(inputs)
    logits = alone.new_empty(alone.shape)
    for r in range(2):
        hidden = torch.nn.functional.silu(inputs.from_z[r] + inputs.states[r] @ inputs.from_state.T)
        logits[r] = (inputs.base[r] + hidden @ inputs.rows[r].T).double().cpu()
    whole = torch.cat((logits, others.double().cpu().unsqueeze(1).expand(-1, 5, -1)), dim=-1).log_softmax(-1)
    check_best(places, log_probs, whole[..., :7], 1e-5)


@pytest.mark.parametrize("tail", [DEAD, 0.5], ids=["candidates", "tail"])
@pytest.mark.parametrize("which", [0, 1], ids=["kernel", "reference"])
def test_dead_candidates_stay_dead_and_hurt_no_other(which, tail, device, poisoned):
    inputs = make(R=3, n=5, M=7, k=4, G=17, E=9, device=device)
    inputs.tail.fill_(tail)
    inputs.base[0] = DEAD
    inputs.base[1, 2:] = DEAD
    places, log_probs = both(device)[which](*inputs.all())
    assert (log_probs[0] == DEAD).all()
    assert (log_probs[1, :, 2:] == DEAD).all() and (places[1, :, :2] < 2).all()
    alive = Inputs(
        inputs.states[1:2], inputs.from_state, inputs.from_z[1:2], inputs.base[1:2, :2], inputs.rows[1:2, :2], inputs.tail[1:2], 2
    )
    torch.testing.assert_close(log_probs[1:2, :, :2], both(device)[which](*alive.all())[1])
    check_best(places[2:], log_probs[2:], naive(inputs)[2:], 1e-5)


@pytest.mark.parametrize("which", [0, 1], ids=["kernel", "reference"])
def test_huge_logits_do_not_overflow(which, device, poisoned):
    inputs = make(R=1, n=2, M=7, k=3, G=17, E=9, device=device)
    inputs.base += 1e4
    inputs.tail.fill_(-1e4)
    _, log_probs = both(device)[which](*inputs.all())
    assert log_probs.isfinite().all() and (log_probs <= 0).all()


def test_kernel_breaks_ties_by_the_lower_place(device, poisoned):
    from dominotree.kernels.candidates.kernel import score_candidates as fused

    inputs = make(R=1, n=3, M=10, k=6, G=4, E=4, device=device)
    inputs.rows.zero_()
    inputs.base[0] = torch.tensor([0.0, 1, 0, -0.0, 1, DEAD, 2, 0, DEAD, 1], device=device)
    places, _ = fused(*inputs.all())
    assert places.tolist() == [[[6, 1, 4, 9, 0, 2]] * 3]
    inputs.children = 10
    places, _ = fused(*inputs.all())
    assert places.tolist() == [[[6, 1, 4, 9, 0, 2, 3, 7, 5, 8]] * 3]


def test_kernel_refuses_more_children_than_candidates(device):
    from dominotree.kernels.candidates.kernel import score_candidates as fused

    with pytest.raises(ValueError, match="8 children cannot be chosen among 7"):
        fused(*make(R=1, n=1, M=7, k=8, G=4, E=4, device=device).all())


@given(
    sizes=st.tuples(st.integers(1, 3), st.integers(1, 20), st.integers(1, 40), st.integers(1, 40), st.integers(1, 40)),
    rank=st.integers(1, 40),
    seed=st.integers(0, 1000),
)
@settings(max_examples=25, deadline=None)
def test_kernel_scores_any_shape(sizes, rank, seed):
    from dominotree.kernels.candidates.kernel import score_candidates as fused

    R, n, M, G, E = sizes
    device = "cuda" if torch.cuda.is_available() else "cpu"
    inputs = make(R, n, M, min(rank, M), G, E, device=device, seed=seed)
    for got, expected in zip(fused(*inputs.all()), candidates.reference(*inputs.all()), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
