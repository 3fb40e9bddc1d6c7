"""The reference builder against brute force, for every scorer; budgets."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dominotree.drafting.budget import CostAwareBudget, CostModel, FixedBudget, fit_convex
from dominotree.drafting.heap import build_tree
from dominotree.drafting.scorers import ConditionalScorer, marginal_scorer, static_scorer
from tests.tiny import VOCAB, tiny_drafter

DRAFTER = tiny_drafter("domino")
EMBEDDING = torch.randn(VOCAB, 32, generator=torch.Generator().manual_seed(5))


def conditional(seed, depths, children, width):
    generator = torch.Generator().manual_seed(seed)
    z, logits = torch.randn(depths, 32, generator=generator), 2 * torch.randn(depths, VOCAB, generator=generator)
    return ConditionalScorer(DRAFTER, EMBEDDING, z, logits, torch.tensor([seed % VOCAB]), children, width)


def scorer_of(kind, seed, depths, children, width):
    if kind == "marginal":
        logits = 2 * torch.randn(depths, VOCAB, generator=torch.Generator().manual_seed(seed))
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
            for token, log_prob in zip(tokens[0].tolist(), log_probs[0].tolist(), strict=True):
                child = scorer.advance(state, torch.tensor([token]))
                following.append(((*path, token), base + log_prob, child))
        paths |= {path: log_prob for path, log_prob, _ in following}
        level = following
    return paths


def paths_of(tree):
    paths = []
    for token, parent in zip(tree.tokens.tolist(), tree.parents.tolist(), strict=True):
        paths.append((*(paths[parent] if parent >= 0 else ()), token))
    return dict(zip(paths, tree.log_probs.tolist(), strict=True))


@pytest.mark.parametrize("kind", ["marginal", "static", "conditional"])
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), depths=st.integers(1, 4), children=st.integers(1, 4), budget=st.integers(1, 40))
def test_pops_the_best_nodes_of_the_whole_tree(kind, seed, depths, children, budget):
    scorer = scorer_of(kind, seed, depths, children, width=7)
    candidates = every_path(scorer)
    tree = build_tree(scorer, FixedBudget(budget))
    got = paths_of(tree)
    best = sorted(candidates, key=candidates.get, reverse=True)[:budget]
    assert set(got) == set(best)
    assert all(math.isclose(got[path], candidates[path], abs_tol=1e-5) for path in got)
    assert tree.log_probs.tolist() == sorted(tree.log_probs.tolist(), reverse=True), "pop order is best first"
    assert all(parent < node for node, parent in enumerate(tree.parents.tolist()))


@given(seed=st.integers(0, 10**6), width=st.sampled_from([1, 5, VOCAB, None]))
@settings(max_examples=30, deadline=None)
def test_one_child_a_node_is_the_greedy_chain(seed, width):
    scorer = conditional(seed, 5, 1, width)
    tree = build_tree(scorer, FixedBudget(5))
    state, expected = scorer.root_state, []
    for depth in range(5):
        expected.append(scorer.score(state, depth)[0][0, 0].item())
        state = scorer.advance(state, torch.tensor(expected[-1:]))
    assert tree.tokens.tolist() == expected
    assert tree.parents.tolist() == [-1, 0, 1, 2, 3]


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
    scorer = ConditionalScorer(DRAFTER, EMBEDDING, z, base, torch.tensor([2]), children=3, candidate_width=6)
    gru = torch.nn.GRU(32, 12, bias=False, batch_first=True)
    gru.load_state_dict(DRAFTER.prefix_gru.state_dict())
    torch.testing.assert_close(scorer.score(scorer.root_state, 0)[1][0], base[0].log_softmax(-1).topk(3).values)
    path = [2, 9, 4]
    state = scorer.root_state
    for token in path[1:]:
        state = scorer.advance(state, torch.tensor([token]))
    expected_state = gru(EMBEDDING[path].unsqueeze(0))[1][0]
    torch.testing.assert_close(state, expected_state, atol=1e-5, rtol=1e-5)
    first, _, second = DRAFTER.embed_proj
    logits = base[2] + second(torch.nn.functional.silu(first(torch.cat((z[2], expected_state[0])))))
    candidates = base[2].topk(6).indices
    expected = logits[candidates].log_softmax(-1).topk(3)
    tokens, log_probs = scorer.score(state, 2)
    assert tokens[0].tolist() == candidates[expected.indices].tolist()
    torch.testing.assert_close(log_probs[0], expected.values, atol=1e-5, rtol=1e-5)


def test_fixed_budget_larger_than_the_tree():
    assert len(build_tree(scorer_of("marginal", 0, 2, 2, None), FixedBudget(100))) == 2 + 4


# --- the cost-aware rule ---------------------------------------------------------------------------------------------


def rule(costs, limit):
    return CostAwareBudget(CostModel(1.0, tuple(range(len(costs))), (0,), (tuple(costs),)), context=0, limit=limit)


@given(st.lists(st.floats(0.01, 3), min_size=5, max_size=30), st.integers(0, 10**6), st.integers(1, 25))
@settings(max_examples=60, deadline=None)
def test_cost_aware_stops_at_the_first_theta_that_does_not_rise(increments, seed, limit):
    costs = list(itertools.accumulate(sorted(increments), initial=5.0))
    scorer = scorer_of("marginal", seed, 3, 4, None)
    order = build_tree(scorer, FixedBudget(limit)).log_probs.exp().tolist()
    best, forecast, chosen = 1.0 / (1.0 + costs[0]), 1.0, 0
    for nodes, probability in enumerate(order, 1):
        forecast += probability
        theta = forecast / (1.0 + np.interp(nodes, range(len(costs)), costs))
        if theta <= best:
            break
        best, chosen = theta, nodes
    assert len(build_tree(scorer, rule(costs, limit))) == chosen


def test_cost_aware_has_its_own_cap():
    free = rule([5.0, 5.0], limit=9)
    assert len(build_tree(scorer_of("marginal", 1, 3, 4, None), free)) == 9


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
    model = CostModel(1.0, (0, 10), (0, 100), ((10.0, 20.0), (30.0, 60.0)))
    np.testing.assert_allclose(model.verify_cost(10, 50)[[0, 5, 10]], [20.0, 30.0, 40.0])
    np.testing.assert_allclose(model.verify_cost(10, 500)[10], 60.0)
