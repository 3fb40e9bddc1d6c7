"""The reference builder against brute force, for every scorer; budgets."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dominotree.drafting.budget import CostModel, best_size, fit_convex
from dominotree.drafting.heap import build_tree
from dominotree.drafting.scorers import ConditionalScorer, InputTable, SampledScorer, marginal_scorer, static_scorer
from tests.tiny import VOCAB, tiny_drafter

DRAFTER = tiny_drafter("domino")
EMBEDDING = torch.randn(VOCAB, 32, generator=torch.Generator().manual_seed(5))
INPUTS = InputTable(DRAFTER, EMBEDDING)
ONLY = torch.zeros(1, 1, dtype=torch.int64)


def child_of(scorer, state, token):
    """The state of a node's child with this token."""
    return scorer.advance(state, ONLY, torch.tensor([[token]]))


def conditional(seed, depths, children, width):
    generator = torch.Generator().manual_seed(seed)
    z, logits = torch.randn(1, depths, 32, generator=generator), 2 * torch.randn(1, depths, VOCAB, generator=generator)
    return ConditionalScorer(DRAFTER, INPUTS, z, logits, torch.tensor([seed % VOCAB]), children, width)


def scorer_of(kind, seed, depths, children, width):
    if kind == "marginal":
        logits = 2 * torch.randn(1, depths, VOCAB, generator=torch.Generator().manual_seed(seed))
        return marginal_scorer(logits, children)
    scorer = conditional(seed, depths, children, width)
    return scorer if kind == "conditional" else static_scorer(scorer)


def every_path(scorer):
    """{path: log-probability} of the whole candidate tree, by exhaustive expansion."""
    paths, level = {}, [((), 0.0, scorer.root_state)]
    for depth in range(scorer.num_depths):
        following = []
        for path, base, state in level:
            tokens, log_probs = scorer.score(state, depth)
            for token, log_prob in zip(tokens[0, 0].tolist(), log_probs[0, 0].tolist(), strict=True):
                child = child_of(scorer, state, token)
                following.append(((*path, token), base + log_prob, child))
        paths |= {path: log_prob for path, log_prob, _ in following}
        level = following
    return paths


def paths_of(tree):
    paths = []
    for token, parent in zip(tree.tokens[0].tolist(), tree.parents[0].tolist(), strict=True):
        paths.append((*(paths[parent] if parent >= 0 else ()), token))
    return dict(zip(paths, tree.log_probs[0].tolist(), strict=True))


@pytest.mark.parametrize("kind", ["marginal", "static", "conditional"])
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), depths=st.integers(1, 4), children=st.integers(1, 4), budget=st.integers(1, 40))
def test_pops_the_best_nodes_of_the_whole_tree(kind, seed, depths, children, budget):
    scorer = scorer_of(kind, seed, depths, children, width=7)
    candidates = every_path(scorer)
    tree = build_tree(scorer, budget)
    got = paths_of(tree)
    best = sorted(candidates, key=candidates.get, reverse=True)[:budget]
    assert set(got) == set(best)
    assert all(math.isclose(got[path], candidates[path], abs_tol=1e-5) for path in got)
    assert tree.log_probs[0].tolist() == sorted(tree.log_probs[0].tolist(), reverse=True), "pop order is best first"
    assert all(parent < node for node, parent in enumerate(tree.parents[0].tolist()))


@given(seed=st.integers(0, 10**6), width=st.sampled_from([1, 5, VOCAB, None]))
@settings(max_examples=30, deadline=None)
def test_one_child_a_node_is_the_greedy_chain(seed, width):
    scorer = conditional(seed, 5, 1, width)
    tree = build_tree(scorer, 5)
    state, expected = scorer.root_state, []
    for depth in range(5):
        expected.append(scorer.score(state, depth)[0][0, 0, 0].item())
        state = child_of(scorer, state, expected[-1])
    assert tree.tokens[0].tolist() == expected
    assert tree.parents[0].tolist() == [-1, 0, 1, 2, 3]


def test_full_width_corrects_the_whole_vocabulary():
    restricted, full = conditional(3, 4, 5, VOCAB), conditional(3, 4, 5, None)
    for depth in range(4):
        for (tokens, log_probs), (other, other_probs) in [
            (restricted.score(restricted.root_state, depth), full.score(full.root_state, depth))
        ]:
            assert tokens.tolist() == other.tolist()
            torch.testing.assert_close(log_probs, other_probs)


def test_correction_against_the_written_formula():
    """logits_d = base_d + W2 SiLU(W1 [z_d ; s_d]), log-softmax over the M candidates; base alone below the prefix."""
    generator = torch.Generator().manual_seed(1)
    z, base = torch.randn(4, 32, generator=generator), torch.randn(4, VOCAB, generator=generator)
    scorer = ConditionalScorer(DRAFTER, INPUTS, z[None], base[None], torch.tensor([2]), children=3, candidate_width=6)
    gru = torch.nn.GRU(32, 12, bias=False, batch_first=True)
    gru.load_state_dict(DRAFTER.prefix_gru.state_dict())
    torch.testing.assert_close(scorer.score(scorer.root_state, 0)[1][0, 0], base[0].log_softmax(-1).topk(3).values)
    path = [2, 9, 4]
    state = scorer.root_state
    for token in path[1:]:
        state = child_of(scorer, state, token)
    expected_state = gru(EMBEDDING[path].unsqueeze(0))[1][0]
    torch.testing.assert_close(state[0], expected_state, atol=1e-5, rtol=1e-5)
    first, _, second = DRAFTER.embed_proj
    logits = base[2] + second(torch.nn.functional.silu(first(torch.cat((z[2], expected_state[0])))))
    candidates = base[2].topk(6).indices
    expected = logits[candidates].log_softmax(-1).topk(3)
    tokens, log_probs = scorer.score(state, 2)
    assert tokens[0, 0].tolist() == candidates[expected.indices].tolist()
    torch.testing.assert_close(log_probs[0, 0], expected.values, atol=1e-5, rtol=1e-5)


def test_budget_larger_than_the_tree():
    assert build_tree(scorer_of("marginal", 0, 2, 2, None), 100).num_nodes == 2 + 4


def normalisers_of(seed, width, children=4):
    generator = torch.Generator().manual_seed(seed)
    draft = torch.randn(1, 3, 32, generator=generator), torch.randn(1, 3, VOCAB, generator=generator), torch.tensor([4])
    return [ConditionalScorer(DRAFTER, INPUTS, *draft, children, width, normaliser) for normaliser in ("candidates", "tail")]


@pytest.mark.parametrize("width", [5, 20, VOCAB - 1])
def test_the_tail_is_the_bases_mass_outside_the_candidates(width):
    """Of the corrected candidates and, outside them, the uncorrected base, everything together has probability 1."""
    _, tail = normalisers_of(3, width, children=width)
    _, everything = normalisers_of(3, VOCAB, children=VOCAB)
    base, tokens = everything.corrections[0][1][0], everything.tokens[0][0]
    outside = base[[token not in tail.tokens[0][0] for token in tokens]]
    inside = tail.score(tail.root_state, 1)[1].exp().sum()
    assert inside < 1
    # The candidates' unnormalised mass, from the correction over the full vocabulary.
    first, _, second = DRAFTER.embed_proj
    z = torch.randn(1, 3, 32, generator=torch.Generator().manual_seed(3))[0, 1]
    correction = second(torch.nn.functional.silu(first(torch.cat((z, tail.root_state[0, 0])))))
    candidates = tail.corrections[0][1][0] + correction[tail.tokens[0][0]]
    torch.testing.assert_close(inside, candidates.exp().sum() / (candidates.exp().sum() + outside.exp().sum()))


def test_the_tail_of_the_whole_vocabulary_is_nothing():
    for one, other in zip(*(scorer.score(scorer.root_state, 2) for scorer in normalisers_of(5, VOCAB)), strict=True):
        torch.testing.assert_close(one, other)


def test_a_drawn_draft_follows_the_drafters_distribution():
    """First children at temperature T stand first in the draw as often as softmax(logits / T) says, and none stands twice."""
    scorer_of_candidates = conditional(7, 3, 2, 6)
    state = scorer_of_candidates.root_state
    tokens, log_probs = scorer_of_candidates.distribution(state, 1)
    expected = (log_probs[0, 0] / 0.7).softmax(-1)
    scorer = SampledScorer(scorer_of_candidates, 0.7, torch.Generator().manual_seed(0))
    drawn = torch.cat([scorer.score(state, 1)[0][0] for _ in range(4000)])  # [4000, 2]
    assert (drawn[:, 0] != drawn[:, 1]).all()
    # The chance that a candidate is among two drawn without replacement.
    one = expected
    second = torch.stack([sum(one[j] * one[i] / (1 - one[j]) for j in range(6) if j != i) for i in range(6)])
    counted = torch.stack([(drawn == token).any(dim=1).float().mean() for token in tokens[0, 0]])
    torch.testing.assert_close(counted, one + second, atol=0.03, rtol=0)


# --- the cost-aware rule ---------------------------------------------------------------------------------------------


@given(st.lists(st.floats(0.01, 3), min_size=5, max_size=30), st.integers(0, 10**6), st.integers(1, 25))
@settings(max_examples=60, deadline=None)
def test_cost_aware_stops_at_the_first_theta_that_does_not_rise(increments, seed, limit):
    costs = list(itertools.accumulate(sorted(increments), initial=5.0))
    model = CostModel(1.0, tuple(range(len(costs))), (0,), (tuple(costs),), (0.5,))
    order = build_tree(scorer_of("marginal", seed, 3, 4, None), limit).log_probs[0].exp().tolist()
    best, forecast, chosen = 1.0 / (1.0 + costs[0]), 1.0, 0
    for nodes, probability in enumerate(order, 1):
        forecast += probability
        theta = forecast / (1.0 + np.interp(nodes, range(len(costs)), costs))
        if theta <= best:
            break
        best, chosen = theta, nodes
    assert best_size(np.array(order), model.round_cost(limit, context=0)) == chosen


def test_nodes_that_cost_nothing_are_all_taken():
    assert best_size(np.full(9, 0.1), np.full(10, 5.0)) == 9


@given(st.lists(st.floats(0.1, 100), min_size=3, max_size=12))
def test_fit_is_monotone_and_convex(times):
    sizes = tuple(2**i for i in range(len(times)))
    fitted = fit_convex(sizes, np.array(times))
    slopes = np.diff(fitted) / np.diff(sizes)
    assert (slopes >= -1e-9).all() and (np.diff(slopes) >= -1e-6).all()


def test_fit_keeps_what_is_convex_already():
    sizes = (1, 2, 8, 32, 64)
    times = np.array([10.0, 10.5, 14.0, 40.0, 90.0])
    np.testing.assert_allclose(fit_convex(sizes, times), times, rtol=1e-6)


def test_cost_between_contexts_and_sizes_is_linear():
    model = CostModel(1.0, (0, 10), (0, 100), ((10.0, 20.0), (30.0, 60.0)), (9.0, 29.0))
    np.testing.assert_allclose(model.round_cost(10, 50)[[0, 5, 10]], [21.0, 31.0, 41.0])
    np.testing.assert_allclose(model.round_cost(10, 500)[10], 61.0)
