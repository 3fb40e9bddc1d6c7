"""Accepted paths, layout of a verification pass."""

from __future__ import annotations

from dataclasses import fields

import torch
from hypothesis import given
from hypothesis import strategies as st

from dominotree.decoding.verify import accept, verify_input
from dominotree.drafting.tree import DraftTree
from tests.paths import accepted_path


@st.composite
def trees(draw, max_nodes=24, vocab=5):
    """Any tree, parents before children; siblings have distinct tokens."""
    parents, depths, tokens, taken = [], [], [], set()
    for node in range(draw(st.integers(1, max_nodes))):
        parent = draw(st.integers(-1, node - 1))
        token = draw(st.integers(0, vocab - 1))
        if (parent, token) in taken:
            continue
        parent = min(parent, len(parents) - 1)
        if (parent, token) in taken:
            continue
        taken.add((parent, token))
        parents.append(parent)
        depths.append(depths[parent] + 1 if parent >= 0 else 0)
        tokens.append(token)
    integers = [torch.tensor([x], dtype=torch.int64) for x in (tokens, parents, depths)]
    return DraftTree(*integers, torch.zeros(1, len(parents)), torch.ones(1, len(parents), dtype=torch.bool))


def with_dead_leaves(tree, count):
    """The tree filled up with `count` leaves of token 0 that are none."""
    shape, zeros = (1, count), torch.zeros(1, count, dtype=torch.int64)
    parts = ((tree.tokens, zeros), (tree.parents, zeros - 1), (tree.depths, zeros))
    integers = [torch.cat(pair, dim=1) for pair in parts]
    log_probs = torch.cat((tree.log_probs, torch.full(shape, -float("inf"))), dim=1)
    return DraftTree(*integers, log_probs, torch.cat((tree.valid, zeros > 0), dim=1))


def path_of(tree, sampled):
    """What the target accepts of the nodes, and what it adds: its choice after the last of them."""
    accepted = accept(tree, torch.tensor([sampled]), max_depth=24)
    count = int(accepted.counts)
    assert accepted.rows[0, 0] == 0, "the root comes first"
    assert accepted.tokens[0, :count].tolist() == [sampled[row] for row in accepted.rows[0, :count].tolist()]
    return [row - 1 for row in accepted.rows[0, 1:count].tolist()]


def ancestors(tree, node):
    found = [node]
    while (parent := tree.parents[0, found[-1]].item()) >= 0:
        found.append(parent)
    return set(found)


@given(trees(), st.integers(0, 9))
def test_layout(tree, position):
    inputs = verify_input(tree, torch.tensor([3]), torch.tensor([position]), position, max_depth=24, dtype=torch.float32)
    assert inputs.tokens[0].tolist() == [3, *tree.tokens[0].tolist()]
    assert inputs.positions[0].tolist() == [position, *(position + 1 + d for d in tree.depths[0].tolist())]
    seen = inputs.layout.mask[0, 0] == 0
    assert seen[:, : position + 1].all(), "everyone sees the context and the root"
    assert not seen[0, position + 1 :].any(), "the root sees no node"
    for node in range(tree.num_nodes):
        assert set(seen[1 + node, position + 1 :].nonzero().flatten().tolist()) == ancestors(tree, node)


@given(trees(), st.randoms(use_true_random=False))
def test_accepted_path_follows_the_samples(tree, random):
    sampled = [random.randrange(3) for _ in range(tree.num_nodes + 1)]
    assert path_of(tree, sampled) == accepted_path(
        tree.tokens[0].tolist(), tree.parents[0].tolist(), tree.valid[0].tolist(), sampled
    )


@given(trees(), st.randoms(use_true_random=False))
def test_a_whole_path_is_accepted(tree, random):
    """However deep: the target samples just what leads to one node."""
    node, sampled = random.randrange(tree.num_nodes), [9] * (tree.num_nodes + 1)
    for one in ancestors(tree, node):
        sampled[int(tree.parents[0, one]) + 1] = int(tree.tokens[0, one])
    assert path_of(tree, sampled) == sorted(ancestors(tree, node))


@given(st.lists(trees(), min_size=2, max_size=4), st.randoms(use_true_random=False))
def test_requests_are_accepted_apart(alone, random):
    """Several trees in one call, filled up to one size, give what each gives."""
    nodes = max(tree.num_nodes for tree in alone)
    filled = [with_dead_leaves(tree, nodes - tree.num_nodes) for tree in alone]
    together = DraftTree(*(torch.cat([getattr(tree, field.name) for tree in filled]) for field in fields(DraftTree)[:5]))
    sampled = [[random.randrange(3) for _ in range(nodes + 1)] for _ in alone]
    accepted = accept(together, torch.tensor(sampled), max_depth=24)
    for tree, draws, rows, count in zip(alone, sampled, accepted.rows.tolist(), accepted.counts.tolist(), strict=True):
        assert [row - 1 for row in rows[1:count]] == path_of(tree, draws[: tree.num_nodes + 1])


@given(trees(), st.integers(1, 5), st.randoms(use_true_random=False))
def test_dead_leaves_are_never_accepted(tree, count, random):
    sampled = [random.randrange(3) for _ in range(tree.num_nodes + count + 1)]
    assert path_of(with_dead_leaves(tree, count), sampled) == path_of(tree, sampled)
