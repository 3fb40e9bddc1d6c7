"""Compaction of the cache: kernel and reference against moving slot by slot in Python."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dominotree.kernels import compaction
from tests.kernels.dtypes import shape_id

SHAPES = [
    {"S": 1, "R": 1, "h": 1, "C": 8, "d": 4, "P": 1},
    {"S": 4, "R": 1, "h": 3, "C": 50, "d": 17, "P": 8},
    {"S": 2, "R": 2, "h": 1, "C": 33, "d": 64, "P": 5},
    {"S": 6, "R": 5, "h": 2, "C": 40, "d": 32, "P": 16},
]


def make(S, R, h, C, d, P, dtype=torch.float32, device="cpu", seed=0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    cache = torch.randn(S, R, h, C, d, generator=generator).to(device, dtype)
    lengths, counts = (torch.empty(R, dtype=torch.int64) for _ in range(2))
    rows = torch.full((R, P), 10**9)  # of what does not count nothing may be read
    for r in range(R):
        block = int(torch.randint(1, min(C, 3 * P) + 1, (), generator=generator))
        lengths[r] = torch.randint(C - block + 1, (), generator=generator)
        counts[r] = torch.randint(min(block, P) + 1, (), generator=generator)
        rows[r, : counts[r]] = torch.randperm(block, generator=generator)[: counts[r]].sort()[0]
    return cache, lengths.to(device), rows.to(device), counts.to(device)


def naive(cache: Tensor, lengths: Tensor, rows: Tensor, counts: Tensor) -> Tensor:
    out = cache.clone()
    for r, (length, count) in enumerate(zip(lengths.tolist(), counts.tolist(), strict=True)):
        for i in range(count):
            out[:, r, :, length + i] = cache[:, r, :, length + int(rows[r, i])]
    return out


def compactions():
    from dominotree.kernels.compaction.kernel import compact_cache as fused

    return fused, compaction.reference


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64], ids=shape_id)
@pytest.mark.parametrize("shape", SHAPES, ids=shape_id)
@pytest.mark.parametrize("which", [0, 1], ids=["kernel", "reference"])
def test_slots_move_to_the_front_and_nothing_else_changes(which, shape, dtype, device):
    cache, *where = make(**shape, dtype=dtype, device=device)
    expected = naive(cache, *where)
    assert compactions()[which](cache, *where) is None
    assert torch.equal(cache, expected)


@pytest.mark.parametrize("which", [0, 1], ids=["kernel", "reference"])
def test_strides_are_taken_as_they_come(which, device):
    """A cache kept heads last, in a buffer with more slots; what is outside the view stays."""
    cache, *where = make(S=3, R=2, h=2, C=20, d=5, P=6, device=device, seed=3)
    expected = naive(cache, *where)
    buffer = torch.full((3, 2, 30, 5, 2), 7.0, device=device)
    view = buffer.permute(0, 1, 4, 2, 3)[:, :, :, 4:24]
    view.copy_(cache)
    compactions()[which](view, *where)
    assert torch.equal(view, expected)
    assert (buffer[:, :, :4] == 7).all() and (buffer[:, :, 24:] == 7).all()


@pytest.mark.parametrize("which", [0, 1], ids=["kernel", "reference"])
def test_a_full_cache_of_which_nothing_counts_stays(which, device):
    cache = torch.randn(2, 2, 1, 6, 3, device=device)
    before = cache.clone()
    lengths, counts = torch.tensor([6, 5], device=device), torch.tensor([0, 0], device=device)
    compactions()[which](cache, lengths, torch.full((2, 4), 10**9, device=device), counts)
    assert torch.equal(cache, before)


@given(
    sizes=st.tuples(
        st.integers(1, 3), st.integers(1, 3), st.integers(1, 2), st.integers(1, 30), st.integers(1, 9), st.integers(1, 12)
    ),
    seed=st.integers(0, 10_000),
)
@settings(max_examples=60, deadline=None)
def test_any_path(sizes, seed):
    cache, *where = make(*sizes, device="cuda" if torch.cuda.is_available() else "cpu", seed=seed)
    expected = naive(cache, *where)
    for compact in compactions():
        got = cache.clone()
        compact(got, *where)
        assert torch.equal(got, expected)
