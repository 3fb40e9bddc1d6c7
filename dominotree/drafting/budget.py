"""How large trees should be where their budget is not fixed: CaDDTree's cost-aware rule (Section 2.5), alone and under load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import isotonic_regression, nnls

CALIBRATION_BINS = 24


@dataclass(frozen=True)
class CostModel:
    """What a round of so many requests costs on this machine, in milliseconds.

    draft_ms: one draft. sizes [S] trees' sizes in nodes a request, contexts [C] in tokens, both rising; verify_ms [C][S] the
    fitted cost of verifying trees of that many nodes, so of one token more a request: the root's; next_ms [C] of the roots alone.
    rest_ms: what else there is to a round with a draft, the trees' build first of all; next_rest_ms: to one without. They count
    where the rule may leave drafting alone.
    """

    draft_ms: float
    sizes: tuple[int, ...]
    contexts: tuple[int, ...]
    verify_ms: tuple[tuple[float, ...], ...]
    next_ms: tuple[float, ...]
    requests: int = 1
    rest_ms: float = 0.0
    next_rest_ms: float = 0.0

    def curve(self, context: float) -> np.ndarray:
        """C_v at every size [S], linear between the profiled contexts and constant outside them."""
        table = np.asarray(self.verify_ms)
        return np.array([np.interp(context, self.contexts, column) for column in table.T])

    def round_cost(self, limit: int, context: int) -> np.ndarray:
        """C_d + C_v(n, context) for n = 0 .. limit [limit + 1], linear between sizes."""
        return self.draft_ms + np.interp(np.arange(limit + 1), self.sizes, self.curve(context))

    def shared_cost(self, limit: int, context: float) -> np.ndarray:
        """What a round costs with k = 0 .. limit nodes in all trees together [limit + 1], the drafts and the rest included."""
        sizes = (0, *self.sizes)
        verify = np.maximum.accumulate([self._roots_cost(context), *self.curve(context)])
        return self.draft_ms + self.rest_ms + np.interp(np.arange(limit + 1) / self.requests, sizes, verify)

    def next_cost(self, context: float) -> float:
        """What a round costs that drafts nothing."""
        return self._roots_cost(context) + self.next_rest_ms

    def _roots_cost(self, context: float) -> float:
        return float(np.interp(context, self.contexts, self.next_ms))


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


def shared_rates(probabilities: Sequence[np.ndarray], round_ms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Tokens a millisecond of R requests with the k best of all their nodes, k = 0 .. N, [N + 1], and whose each node is, [N].

    probabilities: of each request's nodes that they are accepted, in the order in which its tree takes them. round_ms [N + 1 or
    more]: what a round with k nodes in all costs.
    """
    # A node is no likelier than those before it in its tree: so the k best of all are the first nodes of every tree.
    values = np.concatenate([np.minimum.accumulate(one) for one in probabilities])
    order = np.argsort(-values, kind="stable")
    tokens = len(probabilities) + np.concatenate(([0.0], np.cumsum(values[order])))
    owners = np.repeat(np.arange(len(probabilities)), [len(one) for one in probabilities])
    return tokens / round_ms[: len(tokens)], owners[order]


def allocate(probabilities: Sequence[np.ndarray], round_ms: np.ndarray) -> list[int]:
    """How many nodes each request's tree should have, so that all together get the most tokens for a round's time.

    See `shared_rates`. None may be the best for some, or for all.
    """
    rates, owners = shared_rates(probabilities, round_ms)
    return np.bincount(owners[: int(np.argmax(rates))], minlength=len(probabilities)).tolist()


@dataclass(frozen=True)
class Calibration:
    """How often nodes were accepted against how often the drafter expected it: both [K], the first strictly rising.

    by_rank [N]: how often the n-th best node of a tree was accepted, whatever its probability.
    """

    forecast: tuple[float, ...]
    accepted: tuple[float, ...]
    by_rank: tuple[float, ...] = ()

    def __call__(self, probabilities: np.ndarray) -> np.ndarray:
        """What path probabilities [N] have been worth, linear between the fitted points."""
        return np.interp(probabilities, self.forecast, self.accepted)


def fit_calibration(probabilities: np.ndarray, accepted: np.ndarray) -> Calibration:
    """The monotone map from path probabilities [trees, N] to the share accepted (0 or 1, [trees, N]), through equally full bins.

    A place without a node has probability NaN.
    """
    there = ~np.isnan(probabilities)
    by_rank = np.where(there, accepted, 0.0).sum(axis=0) / len(accepted)
    probabilities, accepted = probabilities[there], accepted[there]
    order = np.argsort(probabilities, kind="stable")
    parts = [part for part in np.array_split(order, CALIBRATION_BINS) if len(part)]
    forecast = np.array([probabilities[part].mean() for part in parts])
    shares = isotonic_regression([accepted[part].mean() for part in parts], weights=[len(part) for part in parts]).x
    # Below the lowest bin the line goes to the origin; bins at one place become one point.
    points = {0.0: 0.0} | dict(zip(forecast.tolist(), shares.tolist(), strict=True))
    return Calibration(tuple(points), tuple(points.values()), tuple(by_rank.tolist()))


def realised(forecast: float, accepted: float, trust: float = 1.0) -> float:
    """How much of what was forecast came true, in tokens, with so many tokens' worth of trust in the forecast beforehand."""
    return (trust + accepted) / (trust + forecast)
