"""How large a tree should be where its budget is not fixed: CaDDTree's cost-aware rule (Section 2.5)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import isotonic_regression, nnls

CALIBRATION_BINS = 24


@dataclass(frozen=True)
class CostModel:
    """What a round of so many requests costs on this machine, in milliseconds.

    draft_ms: one draft. sizes [S] trees' sizes in nodes a request, contexts [C] in tokens, both rising; verify_ms [C][S] the
    fitted cost of verifying trees of that many nodes, so of one token more a request: the root's; next_ms [C] of the roots alone.
    """

    draft_ms: float
    sizes: tuple[int, ...]
    contexts: tuple[int, ...]
    verify_ms: tuple[tuple[float, ...], ...]
    next_ms: tuple[float, ...]
    requests: int = 1

    def curve(self, context: int) -> np.ndarray:
        """C_v at every size [S], linear between the profiled contexts and constant outside them."""
        table = np.asarray(self.verify_ms)
        return np.array([np.interp(context, self.contexts, column) for column in table.T])

    def round_cost(self, limit: int, context: int) -> np.ndarray:
        """C_d + C_v(n, context) for n = 0 .. limit [limit + 1], linear between sizes."""
        return self.draft_ms + np.interp(np.arange(limit + 1), self.sizes, self.curve(context))


def fit_convex(sizes: tuple[int, ...], times: np.ndarray) -> np.ndarray:
    """Least-squares fit of `times` [S] at `sizes` [S] by a monotone convex piecewise-linear function, at the sizes.

    A constant plus hinges at the sizes, all with non-negative weights, is exactly that family.
    """
    x = np.asarray(sizes, dtype=float)
    basis = np.column_stack([np.ones_like(x), *(np.maximum(0.0, x - knot) for knot in x[:-1])])
    weights, _ = nnls(basis, np.asarray(times, dtype=float))
    return basis @ weights


def best_size(probabilities: np.ndarray, round_ms: np.ndarray) -> int:
    """How many nodes to keep: grow while theta(n) = (1 + forecast(n)) / (C_d + C_v(n)) rises, stop at the first that does not.

    probabilities [N]: that each node is accepted, in the order in which nodes are added. round_ms [N + 1 or more]: what a
    round with n nodes costs, n = 0 first.
    """
    forecast = 1.0 + np.concatenate(([0.0], np.cumsum(probabilities)))
    theta = forecast / round_ms[: len(forecast)]
    falls = np.flatnonzero(theta[1:] <= theta[:-1])
    return int(falls[0]) if len(falls) else len(probabilities)


@dataclass(frozen=True)
class Calibration:
    """How often nodes were accepted against how often the drafter expected it: both [K], the first strictly rising."""

    forecast: tuple[float, ...]
    accepted: tuple[float, ...]

    def __call__(self, probabilities: np.ndarray) -> np.ndarray:
        """What path probabilities [N] have been worth, linear between the fitted points."""
        return np.interp(probabilities, self.forecast, self.accepted)


def fit_calibration(probabilities: np.ndarray, accepted: np.ndarray) -> Calibration:
    """The monotone map from path probabilities [N] to the share accepted (0 or 1, [N]), through bins of equally many nodes."""
    order = np.argsort(probabilities, kind="stable")
    parts = [part for part in np.array_split(order, CALIBRATION_BINS) if len(part)]
    forecast = np.array([probabilities[part].mean() for part in parts])
    shares = isotonic_regression([accepted[part].mean() for part in parts], weights=[len(part) for part in parts]).x
    # Below the lowest bin the line goes to the origin; bins at one place become one point.
    points = {0.0: 0.0} | dict(zip(forecast.tolist(), shares.tolist(), strict=True))
    return Calibration(tuple(points), tuple(points.values()))


def realised(forecast: float, accepted: float) -> float:
    """How much of what was forecast came true, in tokens, with one token's worth of trust in the drafter beforehand."""
    return (1.0 + accepted) / (1.0 + forecast)
