"""Selection from the ledger: kernel and reference, entry for entry, against sorting in Python."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dominotree.kernels import selection
from dominotree.kernels.selection import SelectedTrees
from tests.kernels.dtypes import shape_id

DEAD = float("-inf")
SHAPES = [
    {"R": 1, "L": 1, "B": 1},
    {"R": 1, "L": 100, "B": 33},
    {"R": 2, "L": 7, "B": 7},
    {"R": 5, "L": 12, "B": 32},
    {"R": 2, "L": 1500, "B": 128},
]


@dataclass
class Ledger:
    scores: Tensor
    tokens: Tensor
    parents: Tensor
    depths: Tensor
    log_probs: Tensor

    def all(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        return self.scores, self.tokens, self.parents, self.depths, self.log_probs


def make(R, L, ties=False, dead=0.2, device="cpu", seed=0) -> Ledger:
    """Random trees laid out depth by depth; a share of the nodes, and all below them, are dead. Ties: scores in halves."""
    generator = torch.Generator().manual_seed(seed)
    depths = torch.randint(6, (L,), generator=generator).sort()[0]
    depths -= depths.min()
    parents = torch.full((R, L), -1)
    scores = torch.zeros(R, L)
    for r in range(R):
        for i in range(L):
            above = (depths[:i] < depths[i]).nonzero()[:, 0].tolist()
            step = -torch.rand((), generator=generator) * (torch.rand((), generator=generator) < 0.9)
            step = (2 * step).round() / 2 if ties else step
            if torch.rand((), generator=generator) < dead:
                step = torch.tensor(DEAD)
            if above:
                parents[r, i] = above[int(torch.randint(len(above), (), generator=generator))]
            scores[r, i] = step + (scores[r, parents[r, i]] if parents[r, i] >= 0 else 0)
    tokens = torch.randint(1, 1000, (R, L), generator=generator)
    return Ledger(*(x.to(device) for x in (scores, tokens, parents, depths, scores * 1.5 - 1)))


def naive(ledger: Ledger, budget: int) -> SelectedTrees:
    scores, tokens, parents, depths, log_probs = (x.tolist() for x in ledger.all())
    columns = ([], [], [], [], [])
    for r in range(len(scores)):
        order = sorted((i for i, score in enumerate(scores[r]) if score > DEAD), key=lambda i: (-scores[r][i], i))[:budget]
        place = {-1: -1, **{i: new for new, i in enumerate(order)}}
        nodes = [(tokens[r][i], place[parents[r][i]], depths[i], log_probs[r][i], True) for i in order]
        nodes += [(0, -1, 0, DEAD, False)] * (budget - len(order))
        for column, values in zip(columns, zip(*nodes, strict=True), strict=True):
            column.append(list(values))
    return SelectedTrees(*(torch.tensor(column) for column in columns))


def check(got: tuple[Tensor, ...], ledger: Ledger, budget: int) -> None:
    for name, values, expected in zip(SelectedTrees._fields, got, naive(ledger, budget), strict=True):
        assert values.dtype == expected.dtype, name
        assert torch.equal(values.cpu(), expected), name
    node = torch.arange(budget)
    assert (got[1].cpu() < node).all()


@pytest.mark.parametrize("ties", [False, True], ids=["distinct", "ties"])
@pytest.mark.parametrize("shape", SHAPES, ids=shape_id)
def test_kernel_selects_as_sorting_does(shape, ties, device, poisoned):
    from dominotree.kernels.selection.kernel import select_tree as fused

    ledger = make(shape["R"], shape["L"], ties, device=device)
    check(fused(*ledger.all(), shape["B"]), ledger, shape["B"])


@pytest.mark.parametrize("ties", [False, True], ids=["distinct", "ties"])
@pytest.mark.parametrize("shape", SHAPES, ids=shape_id)
def test_reference_selects_as_sorting_does(shape, ties):
    ledger = make(shape["R"], shape["L"], ties)
    check(selection.select_tree(*ledger.all(), shape["B"]), ledger, shape["B"])


def test_nothing_alive_gives_dead_leaves_alone(device, poisoned):
    from dominotree.kernels.selection.kernel import select_tree as fused

    ledger = make(2, 9, dead=1.0, device=device)
    for select in (fused, selection.reference):
        tokens, parents, depths, log_probs, valid = select(*ledger.all(), 4)
        assert not valid.any() and (parents == -1).all() and not tokens.any() and not depths.any() and (log_probs == DEAD).all()


def test_kernel_orders_zeros_of_both_signs_by_place(device, poisoned):
    from dominotree.kernels.selection.kernel import select_tree as fused

    ledger = make(1, 4, device=device)
    ledger.scores[:] = torch.tensor([0.0, -0.0, 0.0, -0.0], device=device)
    ledger.parents[:] = torch.tensor([-1, 0, 1, 2], device=device)
    check(fused(*ledger.all(), 3), ledger, 3)


def test_kernel_takes_strides_as_they_come(device, poisoned):
    from dominotree.kernels.selection.kernel import select_tree as fused

    ledger = make(3, 20, device=device)
    strided = Ledger(*(x.T.contiguous().T if x.dim() == 2 else torch.stack((x, x), dim=1)[:, 0] for x in ledger.all()))
    for select in (fused, selection.reference):
        check(select(*strided.all(), 8), ledger, 8)


@given(R=st.integers(1, 3), L=st.integers(1, 40), B=st.integers(1, 50), ties=st.booleans(), seed=st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_any_ledger(R, L, B, ties, seed):
    from dominotree.kernels.selection.kernel import select_tree as fused

    ledger = make(R, L, ties, device="cuda" if torch.cuda.is_available() else "cpu", seed=seed)
    check(fused(*ledger.all(), B), ledger, B)
    check(selection.reference(*ledger.all(), B), ledger, B)
