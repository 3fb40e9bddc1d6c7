"""Budgets that are not fixed: the forecast, fitted on what was accepted or scaled by it, and nodes shared among requests."""

from __future__ import annotations

from itertools import accumulate, product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dominotree.drafting.budget import CostModel, allocate, best_size, fit_calibration, realised


def observed(worth, count=20_000, seed=0):
    """Nodes of all probabilities, accepted as often as `worth` of their probability says."""
    random = np.random.default_rng(seed)
    probabilities = random.uniform(size=count) ** 2
    return probabilities[None], (random.uniform(size=count) < worth(probabilities)).astype(float)[None]


def test_an_overconfident_drafter_is_corrected():
    calibration = fit_calibration(*observed(lambda p: 0.8 * p))
    at = np.linspace(0.05, 0.95, 19)
    np.testing.assert_allclose(calibration(at), 0.8 * at, atol=0.03)
    assert calibration(np.array([0.0])) == 0


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=200))
def test_a_calibration_is_a_monotone_map_of_probabilities(nodes):
    probabilities, accepted = np.array([[p for p, _ in nodes]]), np.array([[float(a) for _, a in nodes]])
    worth = fit_calibration(probabilities, accepted)(np.linspace(0, 1, 50))
    assert (np.diff(worth) >= 0).all()
    assert ((worth >= 0) & (worth <= 1)).all()


def test_what_came_true_scales_the_forecast():
    assert realised(0.0, 0.0) == 1, "nothing is known yet"
    assert realised(99.0, 49.0) == 0.5
    assert realised(49.0, 99.0) == 2


def test_ranks_are_counted_over_all_trees():
    probabilities = np.array([[0.9, 0.5, 0.1], [0.8, 0.4, np.nan]])
    accepted = np.array([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]])
    assert fit_calibration(probabilities, accepted).by_rank == (1.0, 0.5, 0.0)


falling = st.lists(st.floats(0, 1), max_size=4).map(lambda one: np.array(sorted(one, reverse=True)))


@given(st.lists(falling, min_size=1, max_size=3), st.lists(st.floats(0.01, 5), min_size=13, max_size=13))
def test_no_other_sharing_promises_more(probabilities, steps):
    """Whatever a round costs: against every way to give each request's tree a size."""
    cost = np.array(list(accumulate(steps)))

    def rate(sizes):
        tokens = len(sizes) + sum(one[:size].sum() for one, size in zip(probabilities, sizes, strict=True))
        return tokens / cost[sum(sizes)]

    chosen = allocate(probabilities, cost)
    assert all(size <= len(one) for one, size in zip(probabilities, chosen, strict=True))
    assert rate(chosen) >= max(map(rate, product(*(range(len(one) + 1) for one in probabilities)))) - 1e-9


@given(falling, st.lists(st.floats(0.5, 5), min_size=5, max_size=5))
def test_alone_it_is_the_cost_aware_rule_where_costs_are_convex(probabilities, steps):
    cost = np.array(list(accumulate(sorted(steps))))
    (alone,), rule = allocate([probabilities], cost), best_size(probabilities, cost)
    theta = (1 + np.concatenate(([0.0], np.cumsum(probabilities)))) / cost[: len(probabilities) + 1]
    assert np.isclose(theta[alone], theta[rule])


def test_costs_of_a_round_of_several_requests():
    verify = ((12.0, 20.0), (22.0, 30.0))
    model = CostModel(4.0, (2, 4), (0, 100), verify, (10.0, 20.0), requests=2, rest_ms=1.0, next_rest_ms=0.5)
    # None: the roots alone; 4 nodes are 2 a request; at context 50 all passes take 5 ms more.
    np.testing.assert_allclose(model.shared_cost(8, 50), 5 + np.array([15, 15.5, 16, 16.5, 17, 19, 21, 23, 25]))
    assert model.next_cost(50) == 15.5
