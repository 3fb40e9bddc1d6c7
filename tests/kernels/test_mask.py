"""The tree's mask: kernel and reference against paths followed in Python."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dominotree.kernels import mask
from tests.kernels.dtypes import shape_id

SHAPES = [
    {"R": 1, "N": 1, "context": 0, "spare": 0},
    {"R": 1, "N": 33, "context": 100, "spare": 0},
    {"R": 2, "N": 7, "context": 1, "spare": 5},
    {"R": 5, "N": 16, "context": 64, "spare": 1},
    {"R": 1, "N": 5, "context": 1500, "spare": 3},
]


def make(R, N, context, spare, device="cpu", seed=0) -> tuple[Tensor, Tensor, Tensor, int, int]:
    """Random trees, of which all but one request's end in dead leaves: parents, valid, lengths, width, max_depth."""
    generator = torch.Generator().manual_seed(seed)
    parents = torch.stack([torch.randint(-1, max(i, 1), (R,), generator=generator).clamp(max=i - 1) for i in range(N)], dim=1)
    alive = torch.randint(N + 1, (R,), generator=generator)
    alive[0] = N
    valid = torch.arange(N) < alive.unsqueeze(1)
    parents[~valid] = -1
    lengths = torch.randint(context + 1, (R,), generator=generator)
    lengths[-1] = context
    deepest = max(len(path(row, i)) for row in parents.tolist() for i in range(N))
    return parents.to(device), valid.to(device), lengths.to(device), context + N + 1 + spare, deepest


def path(parents: list[int], node: int) -> list[int]:
    """The node's ancestors, nearest first."""
    found = []
    while (node := parents[node]) >= 0:
        found.append(node)
    return found


def naive(parents: Tensor, valid: Tensor, lengths: Tensor, width: int) -> Tensor:
    out = torch.full((len(parents), 1, parents.shape[1] + 1, width), float("-inf"))
    for r, length in enumerate(lengths.tolist()):
        out[r, 0, :, : length + 1] = 0
        for node in range(parents.shape[1]):
            seen = [node, *path(parents[r].tolist(), node)] if valid[r, node] else [node]
            out[r, 0, node + 1, [length + 1 + i for i in seen]] = 0
    return out


def masks(device: torch.device | str):
    from dominotree.kernels.mask.kernel import tree_mask as fused

    return fused, mask.reference


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=shape_id)
@pytest.mark.parametrize("shape", SHAPES, ids=shape_id)
@pytest.mark.parametrize("which", [0, 1], ids=["kernel", "reference"])
def test_rows_see_context_root_ancestors_and_themselves(which, shape, dtype, device, poisoned):
    parents, valid, lengths, width, max_depth = make(**shape, device=device)
    got = masks(device)[which](parents, valid, lengths, width, max_depth, dtype)
    assert got.dtype == dtype
    assert torch.equal(got.float().cpu(), naive(parents.cpu(), valid.cpu(), lengths.cpu(), width))


@pytest.mark.parametrize("which", [0, 1], ids=["kernel", "reference"])
def test_dead_leaves_change_no_other_row(which, device, poisoned):
    """Whatever a dead leaf says that its parent is."""
    parents = torch.tensor([[-1, 0, 1, 2, 3]], device=device)
    lengths = torch.tensor([3], device=device)
    make_mask = masks(device)[which]
    whole = make_mask(parents, torch.ones_like(parents, dtype=torch.bool), lengths, 9, 4, torch.float32)
    short = make_mask(parents, torch.tensor([[True, True, True, False, False]], device=device), lengths, 9, 4, torch.float32)
    assert torch.equal(short[:, :, :4], whole[:, :, :4])
    assert (short[0, 0, 4:] == 0).tolist() == [[True] * 4 + [False] * 3 + [True, False], [True] * 4 + [False] * 4 + [True]]


@given(
    R=st.integers(1, 4), N=st.integers(1, 24), context=st.integers(0, 30), spare=st.integers(0, 5), seed=st.integers(0, 10_000)
)
@settings(max_examples=60, deadline=None)
def test_any_tree(R, N, context, spare, seed):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    parents, valid, lengths, width, max_depth = make(R, N, context, spare, device, seed)
    expected = naive(parents.cpu(), valid.cpu(), lengths.cpu(), width)
    for make_mask in masks(device):
        got = make_mask(parents, valid, lengths, width, max_depth, torch.float32).cpu()
        assert torch.equal(got, expected)
        assert (got == 0).any(-1).all()
