"""Comparison of two arms: the ratio of their mean throughputs, with an interval from a paired, stratified, clustered bootstrap.

Rows are paired by prompt-turn, strata are the datasets, clusters the conversations: a draw takes from every dataset as many
conversations as it has, with replacement, and with a conversation come all its turns in both arms. What a draw needs is how
often it takes each conversation, not copies of rows: the pooled sums of all draws are one product of matrices a stratum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from dominotree.errors import UserError

BOOTSTRAP_SEED = 20260708
DRAWS = 10_000
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A statistic of paired rows with its percentile interval; `rows` counts the pairs that it rests on."""

    point: float
    low: float
    high: float
    rows: int


def pair(records: pd.DataFrame, arm: str, baseline: str) -> pd.DataFrame:
    """Tokens a second of two arms, matched: columns `arm` and `baseline`, index (dataset, conversation, turn), sorted.

    `records` are of one temperature. Rows without output (`tps` is NaN in either arm) are left out. Raises `UserError` if an arm
    has no records, if a row has no partner, or if the arms were not measured in one run, since machines drift between runs.
    """
    _check_one_run(records[records.arm.isin([arm, baseline])])
    first, second = _throughputs(records, arm), _throughputs(records, baseline)
    for dataset, conversation, turn in first.index.symmetric_difference(second.index):
        row = f"{dataset}, conversation {conversation}, turn {turn}"
        raise UserError(f"{row}: a record of only one of {arm} and {baseline}; measure the run again")
    pairs = pd.DataFrame({"arm": first, "baseline": second}).dropna()
    if pairs.empty:
        raise UserError(f"{arm} and {baseline}: no prompt with output in both; ask for other prompts")
    return pairs


def _check_one_run(records: pd.DataFrame) -> None:
    for dataset, rows in records.groupby("dataset"):
        first = rows.drop_duplicates("run")
        if len(first) > 1:
            place = f"{dataset} at temperature {first.temperature.iloc[0]:g}"
            raise UserError(f"{place}: {' and '.join(first.arm)} come from different runs; measure them in one to compare them")


def _throughputs(records: pd.DataFrame, arm: str) -> pd.Series:
    rows = records[records.arm == arm]
    if rows.empty:
        raise UserError(f"no records of arm {arm}; the arms are {', '.join(sorted(records.arm.unique()))}")
    throughputs = rows.set_index(["dataset", "conversation", "turn"]).tps.sort_index()
    if not throughputs.index.is_unique:
        raise ValueError("records of several temperatures or studies; compare one at a time")
    return throughputs


def speedup(records: pd.DataFrame, arm: str, baseline: str = "ar") -> float:
    """Mean throughput of `arm` over that of `baseline`, on paired rows of one temperature."""
    pairs = pair(records, arm, baseline)
    return float(pairs.arm.mean() / pairs.baseline.mean())


def throughput_change(records: pd.DataFrame, arm: str, baseline: str, draws: int = DRAWS, seed: int = BOOTSTRAP_SEED) -> Interval:
    """By how many per cent the pooled mean throughput of `arm` exceeds that of `baseline`, on paired rows of one temperature."""
    pairs = pair(records, arm, baseline)
    clusters = pairs.groupby(["dataset", "conversation"]).sum()
    strata = clusters.index.get_level_values("dataset").to_numpy()
    # As many rows in both arms: the ratio of means is the ratio of sums, in every draw.
    point, samples = bootstrap(clusters.to_numpy(), strata, lambda sums: 100 * (sums[..., 0] / sums[..., 1] - 1), draws, seed)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(samples, [tail, 1 - tail])
    return Interval(point, float(low), float(high), len(pairs))


def bootstrap(
    sums: np.ndarray, strata: np.ndarray, statistic: Callable[[np.ndarray], np.ndarray], draws: int, seed: int
) -> tuple[float, np.ndarray]:
    """A statistic of the data, and of `draws` samples of it: (scalar, [draws]).

    `sums` [C, K] are K sums over the rows of each cluster, `strata` [C] the stratum of each; `statistic` maps pooled sums
    [..., K] to [...]. Strata are drawn in their sorted order, so that the order of clusters matters only within one.
    """
    random = np.random.default_rng(seed)
    pooled = np.zeros((draws, sums.shape[1]))
    for stratum in np.unique(strata):
        members = sums[strata == stratum]
        pooled += multiplicities(len(members), draws, random) @ members
    return float(statistic(sums.sum(axis=0))), statistic(pooled)


def multiplicities(count: int, draws: int, random: np.random.Generator) -> np.ndarray:
    """How often each of `count` clusters is taken when as many are drawn with replacement: [draws, count]."""
    taken = random.integers(count, size=(draws, count))
    cells = taken + count * np.arange(draws)[:, None]
    return np.bincount(cells.ravel(), minlength=draws * count).reshape(draws, count)
