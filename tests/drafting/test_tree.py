"""Ancestor masks, accepted paths, layout of a verification pass."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from dominotree.decoding.verify import verify_input
from dominotree.drafting.tree import DraftTree, accepted_path, ancestor_mask


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
    integers = [torch.tensor(x, dtype=torch.int64) for x in (tokens, parents, depths)]
    return DraftTree(*integers, torch.zeros(len(parents)))


def ancestors(tree, node):
    found = [node]
    while (parent := tree.parents[found[-1]].item()) >= 0:
        found.append(parent)
    return set(found)


@given(trees())
def test_mask_is_self_and_ancestors(tree):
    mask = ancestor_mask(tree.parents, int(tree.depths.max()))
    for node in range(len(tree)):
        assert set(mask[node].nonzero().flatten().tolist()) == ancestors(tree, node)


@given(trees(), st.integers(0, 9))
def test_layout(tree, position):
    inputs = verify_input(tree, root=3, position=position, dtype=torch.float32)
    assert inputs.tokens[0].tolist() == [3, *tree.tokens.tolist()]
    assert inputs.positions[0].tolist() == [position, *(position + 1 + d for d in tree.depths.tolist())]
    seen = inputs.mask[0, 0] == 0
    assert seen[:, : position + 1].all(), "everyone sees the context and the root"
    assert not seen[0, position + 1 :].any(), "the root sees no node"
    assert torch.equal(seen[1:, position + 1 :], ancestor_mask(tree.parents, int(tree.depths.max())))
    assert seen.any(dim=1).all(), "no row is fully masked"


@given(trees(), st.randoms(use_true_random=False))
def test_accepted_path_follows_the_samples(tree, random):
    sampled = [random.randrange(5) for _ in range(len(tree) + 1)]
    path = accepted_path(tree, sampled)
    parent = -1
    for node in path:
        assert tree.parents[node] == parent and tree.tokens[node] == sampled[parent + 1]
        parent = node
    children = {tree.tokens[n].item() for n in range(len(tree)) if tree.parents[n] == parent}
    assert sampled[parent + 1] not in children, "the path goes on as long as a child was sampled"
