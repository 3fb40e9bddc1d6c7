"""The kernels at work together: a tree's build, its mask, and on a GPU without waiting and as a graph."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from dominotree.drafting.frontier import build_trees
from dominotree.drafting.scorers import ComputedInputs, ConditionalScorer, InputTable, Normaliser
from dominotree.drafting.tree import DraftTree
from dominotree.graphs import Graphed
from dominotree.kernels import tree_mask
from tests.kernels.test_dispatch import OPERATIONS
from tests.tiny import VOCAB, tiny_drafter

REQUESTS, DEPTHS = 3, 6
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="only a GPU can be waited for")


def draft(device: torch.device, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """z [R, D, H], base logits [R, D, V] and roots [R] of some round; one request has one candidate a depth."""
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(REQUESTS, DEPTHS, 32, generator=generator)
    base_logits = 3 * torch.randn(REQUESTS, DEPTHS, VOCAB, generator=generator)
    base_logits[1, :, 1:] = float("-inf")
    root = torch.randint(VOCAB, (REQUESTS,), generator=generator)
    return z.to(device), base_logits.to(device), root.to(device)


class Build:
    def __init__(self, device: torch.device, normaliser: Normaliser, table: bool, budget: int) -> None:
        self.drafter, self.normaliser, self.budget = tiny_drafter("domino").to(device), normaliser, budget
        embedding = torch.randn(VOCAB, 32, generator=torch.Generator().manual_seed(5)).to(device)
        self.inputs = (InputTable if table else ComputedInputs)(self.drafter, embedding)
        self.inputs.weight_hh = self.drafter.prefix_gru.weight_hh_l0  # the kernels read what no CPU has packed

    def __call__(self, z: Tensor, base_logits: Tensor, root: Tensor) -> DraftTree:
        scorer = ConditionalScorer(self.drafter, self.inputs, z, base_logits, root, 4, 12, self.normaliser)
        return build_trees(scorer, self.budget)


def parts(tree: DraftTree) -> Iterator[Tensor]:
    yield from (tree.tokens, tree.parents, tree.depths, tree.valid, tree.log_probs)


@pytest.mark.parametrize("table", [True, False], ids=["table", "computed"])
@pytest.mark.parametrize("normaliser", ["candidates", "tail"])
def test_kernels_build_the_tree_of_the_references(normaliser, table, device, monkeypatch, poisoned):
    built, masks = [], []
    lengths = torch.tensor([9, 0, 4], device=device)
    for use_kernels in (False, True):
        for room in OPERATIONS:
            public = importlib.import_module(f"dominotree.kernels.{room}")
            monkeypatch.setattr(public, "on_gpu", lambda tensor, use=use_kernels: use)
        tree = Build(device, normaliser, table, 33)(*draft(device))
        built.append(tree)
        masks.append(tree_mask(tree.parents, tree.valid, lengths, 9 + tree.num_nodes + 1, DEPTHS, torch.float32))
    for got, expected in zip(parts(built[1]), parts(built[0]), strict=True):
        torch.testing.assert_close(got, expected)
    assert torch.equal(*masks)
    assert built[0].valid[0].all() and not built[0].valid[1].all()


@needs_gpu
@pytest.mark.parametrize("table", [True, False], ids=["table", "computed"])
def test_a_build_never_waits_for_the_gpu(table, device):
    build, inputs = Build(device, "tail", table, 33), draft(device)
    build(*inputs)  # constants are made once
    torch.cuda.set_sync_debug_mode("error")
    try:
        build(*inputs)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@needs_gpu
@torch.inference_mode()
def test_a_build_as_a_graph_is_the_build(device):
    build = Build(device, "tail", True, 33)
    graphed = Graphed(build, "the tree's build")
    for seed in range(3):
        inputs = draft(device, seed)
        for got, expected in zip(parts(graphed(*inputs)), parts(build(*inputs)), strict=True):
            torch.testing.assert_close(got, expected)
