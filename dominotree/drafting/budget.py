"""How large a tree may grow: a fixed budget, or CaDDTree's cost-aware rule (Section 2.5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.optimize import nnls


class Budget(Protocol):
    """Asked before each node is added, in best-first order."""

    limit: int

    def admits(self, nodes: int, forecast: float) -> bool:
        """Whether a tree of `nodes` nodes, forecast to commit `forecast` tokens (bonus included), may be."""


@dataclass(frozen=True)
class FixedBudget:
    """At most `limit` nodes."""

    limit: int

    def admits(self, nodes: int, forecast: float) -> bool:
        return nodes <= self.limit


@dataclass(frozen=True)
class CostModel:
    """What a round costs on this machine, in milliseconds.

    draft_ms: one draft. sizes [S] tree sizes in nodes, contexts [C] in tokens, both rising; verify_ms [C][S] the fitted
    cost of verifying a tree of that many nodes, so of one token more: the root's.
    """

    draft_ms: float
    sizes: tuple[int, ...]
    contexts: tuple[int, ...]
    verify_ms: tuple[tuple[float, ...], ...]

    def curve(self, context: int) -> np.ndarray:
        """C_v at every size [S], linear between the profiled contexts and constant outside them."""
        table = np.asarray(self.verify_ms)
        return np.array([np.interp(context, self.contexts, column) for column in table.T])

    def verify_cost(self, limit: int, context: int) -> np.ndarray:
        """C_v(n, context) for n = 0 .. limit [limit + 1], linear between sizes."""
        return np.interp(np.arange(limit + 1), self.sizes, self.curve(context))


def fit_convex(sizes: tuple[int, ...], times: np.ndarray) -> np.ndarray:
    """Least-squares fit of `times` [S] at `sizes` [S] by a monotone convex piecewise-linear function, at the sizes.

    A constant plus hinges at the sizes, all with non-negative weights, is exactly that family.
    """
    x = np.asarray(sizes, dtype=float)
    basis = np.column_stack([np.ones_like(x), *(np.maximum(0.0, x - knot) for knot in x[:-1])])
    weights, _ = nnls(basis, np.asarray(times, dtype=float))
    return basis @ weights


class CostAwareBudget:
    """Grow while theta(n) = forecast(n) / (C_d + C_v(n)) rises; stop at the first n where it does not.

    One instance serves one tree. `limit` is the rule's own cap, not the fixed budget of the arms beside it.
    """

    def __init__(self, cost: CostModel, context: int, limit: int) -> None:
        self.limit = limit
        self.round_ms = cost.draft_ms + cost.verify_cost(limit, context)
        self.theta = 1.0 / self.round_ms[0]

    def admits(self, nodes: int, forecast: float) -> bool:
        if nodes > self.limit:
            return False
        before, self.theta = self.theta, forecast / self.round_ms[nodes]
        return bool(self.theta > before)
