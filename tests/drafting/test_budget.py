"""The forecast of the adaptive budget: fitted on what was accepted, or scaled by it."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dominotree.drafting.budget import fit_calibration, realised


def observed(worth, count=20_000, seed=0):
    """Nodes of all probabilities, accepted as often as `worth` of their probability says."""
    random = np.random.default_rng(seed)
    probabilities = random.uniform(size=count) ** 2
    return probabilities, (random.uniform(size=count) < worth(probabilities)).astype(float)


def test_an_overconfident_drafter_is_corrected():
    calibration = fit_calibration(*observed(lambda p: 0.8 * p))
    at = np.linspace(0.05, 0.95, 19)
    np.testing.assert_allclose(calibration(at), 0.8 * at, atol=0.03)
    assert calibration(np.array([0.0])) == 0


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=200))
def test_a_calibration_is_a_monotone_map_of_probabilities(nodes):
    probabilities, accepted = np.array([p for p, _ in nodes]), np.array([float(a) for _, a in nodes])
    worth = fit_calibration(probabilities, accepted)(np.linspace(0, 1, 50))
    assert (np.diff(worth) >= 0).all()
    assert ((worth >= 0) & (worth <= 1)).all()


def test_what_came_true_scales_the_forecast():
    assert realised(0.0, 0.0) == 1, "nothing is known yet"
    assert realised(99.0, 49.0) == 0.5
    assert realised(49.0, 99.0) == 2
