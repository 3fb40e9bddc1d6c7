"""Comparison of arms: the ratio of their mean throughputs, with an interval from a paired bootstrap.

Rows are paired by prompt-turn. A draw takes from every stratum (dataset) as many units (conversations, with all their turns) as
it has, with replacement, and with a unit come both arms. What a draw needs is how often it takes each unit, not copies of rows:
the pooled sums of all draws are one product of matrices a stratum, for any number of comparisons at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from dominotree.errors import UserError

BOOTSTRAP_SEED = 20260708
DRAWS = 10_000
CONFIDENCE = 0.95
TAIL = (1 - CONFIDENCE) / 2
PLACE = ["temperature", "dataset", "conversation", "turn"]
"""What names a prompt-turn at a temperature."""

CELLS_AT_ONCE = 1 << 20
"""Draws times units that are held in memory together: 8 MB."""

Metric = Literal["throughput", "speedup"]


@dataclass(frozen=True)
class Resampling:
    """What a draw takes with replacement.

    unit: whole conversations, since their turns depend on each other, or single rows. stratified: from each dataset as many as it
    has, or from all rows together, as many as there are.
    """

    unit: Literal["conversation", "row"] = "conversation"
    stratified: bool = True


PROTOCOL = Resampling()


@dataclass(frozen=True)
class Interval:
    """A change in per cent with its percentile interval; `rows` counts the pairs that it rests on.

    metric: what is compared, tokens a second of arms of one run, or speedups over the AR of each arm's own run.
    """

    point: float
    low: float
    high: float
    rows: int
    metric: Metric = "throughput"


# --- rows side by side ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Rows:
    """Tokens a second and run of every arm (columns) on every prompt-turn (index: PLACE, sorted); NaN without a record.

    ar: the arms of plain decoding, one a run.
    """

    tps: pd.DataFrame
    run: pd.DataFrame
    ar: tuple[str, ...]


def _side_by_side(records: pd.DataFrame) -> _Rows:
    if records.duplicated([*PLACE, "arm"]).any():
        raise ValueError("records of several studies or models; compare one at a time")
    wide = records.pivot(index=PLACE, columns="arm", values=["tps", "run"])
    return _Rows(wide["tps"].astype(float), wide["run"], tuple(records.arm[records.method == "ar"].unique()))


def _column(frame: pd.DataFrame, arm: str) -> pd.Series:
    if arm not in frame:
        raise UserError(f"no records of arm {arm}; the arms are {', '.join(sorted(frame))}")
    return frame[arm]


def _pair(rows: _Rows, arm: str, baseline: str) -> tuple[pd.DataFrame, Metric]:
    """Two arms on the prompt-turns where both have a throughput: columns `arm` and `baseline`, index PLACE."""
    runs = pd.DataFrame({"arm": _column(rows.run, arm), "baseline": _column(rows.run, baseline)}).dropna(how="all")
    alone = runs.index[runs.isna().any(axis=1)]
    for _, dataset, conversation, turn in alone:
        row = f"{dataset}, conversation {conversation}, turn {turn}"
        raise UserError(f"{row}: a record of only one of {arm} and {baseline}; measure the run again")
    apart = runs.index[runs.arm != runs.baseline]
    values = rows.tps[[arm, baseline]]
    if len(apart):
        own = [_own_ar(rows, name) for name in (arm, baseline)]
        if None in own:
            place = f"{apart[0][1]} at temperature {apart[0][0]:g}"
            both = " and ".join(sorted([arm, baseline]))
            raise UserError(f"{place}: {both} come from different runs; measure them in one to compare them")
        values = values / rows.tps[own].to_numpy()
    pairs = values.set_axis(["arm", "baseline"], axis=1).reindex(runs.index).dropna()
    if pairs.empty:
        raise UserError(f"{arm} and {baseline}: no prompt with output in both; ask for other prompts")
    return pairs, "speedup" if len(apart) else "throughput"


def _own_ar(rows: _Rows, arm: str) -> str | None:
    """The AR of the run that `arm` is from, on all of its rows; None if there is none."""
    own = rows.run[arm]
    return next((ar for ar in rows.ar if (rows.run[ar] == own)[own.notna()].all()), None)


def pair(records: pd.DataFrame, arm: str, baseline: str) -> pd.DataFrame:
    """Two arms, matched: columns `arm` and `baseline`, index (temperature, dataset, conversation, turn), sorted.

    Of arms of one run their tokens a second. Machines drift between runs, so arms of two runs are given as speedups over the AR
    of each one's own run, row by row. Rows without output (`tps` is NaN in either arm) are left out. Raises `UserError` if an arm
    has no records, if a row has no partner, or if the arms come from runs without an AR each.
    """
    return _pair(_side_by_side(records), arm, baseline)[0]


def speedup(records: pd.DataFrame, arm: str, baseline: str | None = None) -> float:
    """Mean throughput of `arm` over that of `baseline`, the AR of its run if none is named, on paired rows of one temperature."""
    rows = _side_by_side(records)
    _column(rows.run, arm)
    pairs, _ = _pair(rows, arm, baseline or _own_ar(rows, arm) or "ar")
    return float(pairs.arm.mean() / pairs.baseline.mean())


# --- intervals -----------------------------------------------------------------------------------------------------------


def throughput_change(
    records: pd.DataFrame,
    arm: str,
    baseline: str,
    draws: int = DRAWS,
    seed: int = BOOTSTRAP_SEED,
    resampling: Resampling = PROTOCOL,
) -> Interval:
    """By how many per cent the pooled mean throughput of `arm` exceeds that of `baseline`, on paired rows of one temperature.

    Arms of two runs are compared by their speedups, as in `pair`.
    """
    if records.temperature.nunique() > 1:
        raise ValueError("records of several temperatures; compare one at a time")
    [change] = throughput_changes(records, [(arm, baseline)], None, draws, seed, resampling).itertuples()
    return Interval(change.delta_percent, change.ci_low, change.ci_high, change.rows, change.metric)


def throughput_changes(
    records: pd.DataFrame,
    pairs: Sequence[tuple[str, str]],
    groups: Mapping[str, Sequence[str]] | None = None,
    draws: int = DRAWS,
    seed: int = BOOTSTRAP_SEED,
    resampling: Resampling = PROTOCOL,
) -> pd.DataFrame:
    """`throughput_change` of many (arm, baseline) `pairs` at every temperature in every group of datasets, with common draws.

    groups: datasets by the group's name; None for one of all, "all". Returns a row for each temperature, group and pair: columns
    temperature, arm, baseline, metric, group, delta_percent, ci_low, ci_high, rows.
    """
    data = []
    for place, rows, point, samples in sampled_changes(records, pairs, groups, draws, seed, resampling):
        low, high = np.quantile(samples, [TAIL, 1 - TAIL])
        data.append(place | {"delta_percent": point, "ci_low": float(low), "ci_high": float(high), "rows": rows})
    return pd.DataFrame(data)


def sampled_changes(
    records: pd.DataFrame,
    pairs: Sequence[tuple[str, str]],
    groups: Mapping[str, Sequence[str]] | None = None,
    draws: int = DRAWS,
    seed: int = BOOTSTRAP_SEED,
    resampling: Resampling = PROTOCOL,
) -> Iterator[tuple[dict[str, str | float], int, float, np.ndarray]]:
    """What `throughput_changes` rests on: for each of its rows (place, rows, change, that change in every draw [draws])."""
    groups = groups or {"all": sorted(records.dataset.unique())}
    comparisons = [
        _compare(rows, temperature, arm, baseline, resampling.unit)
        for temperature, rows in ((temperature, _side_by_side(part)) for temperature, part in records.groupby("temperature"))
        for arm, baseline in pairs
    ]
    strata = {dataset: [dataset] for datasets in groups.values() for dataset in datasets} if resampling.stratified else groups
    pooled = {
        name: _pooled_draws([comparison.sums(datasets) for comparison in comparisons], name, draws, seed)
        for name, datasets in strata.items()
    }
    for group, datasets in groups.items():
        samples = sum(pooled[name] for name in (datasets if resampling.stratified else [group]))
        for index, comparison in enumerate(comparisons):
            rows = sum(comparison.rows.get(dataset, 0) for dataset in datasets)
            if not rows:
                arms = f"{comparison.place['arm']} and {comparison.place['baseline']}"
                raise UserError(f"{arms}: no prompt with output in both in {', '.join(datasets)}; ask for other prompts")
            point = _change(comparison.sums(datasets).sum(axis=0))
            yield comparison.place | {"group": group}, rows, float(point), _change(samples[:, index])


@dataclass(frozen=True)
class _Comparison:
    """Two arms at one temperature. units: by dataset, the sums [C, 2] of both arms over each unit; rows: by dataset, how many."""

    place: dict[str, str | float]
    units: dict[str, np.ndarray]
    rows: dict[str, int]

    def sums(self, datasets: Sequence[str]) -> np.ndarray:
        """The units of several datasets, one under the other."""
        return np.concatenate([np.empty((0, 2)), *(self.units[dataset] for dataset in datasets if dataset in self.units)])


def _compare(rows: _Rows, temperature: float, arm: str, baseline: str, unit: str) -> _Comparison:
    pairs, metric = _pair(rows, arm, baseline)
    sums = pairs if unit == "row" else pairs.groupby(["dataset", "conversation"]).sum()
    names, values = sums.index.get_level_values("dataset").to_numpy(), sums.to_numpy()
    place = {"temperature": temperature, "arm": arm, "baseline": baseline, "metric": metric}
    counts = pairs.index.get_level_values("dataset").value_counts()
    return _Comparison(place, {name: values[names == name] for name in counts.index}, counts.to_dict())


def _change(sums: np.ndarray) -> np.ndarray:
    """Per cent by which the first of two sums [..., 2] exceeds the second; of as many rows, so it is that of the means."""
    return 100 * (sums[..., 0] / sums[..., 1] - 1)


def _pooled_draws(sums: Sequence[np.ndarray], stratum: str, draws: int, seed: int) -> np.ndarray:
    """Sums [C_j, K] of the units of one stratum in J comparisons, pooled over the units of every draw: [draws, J, K].

    Comparisons with as many units have the same draws, whatever other strata there are.
    """
    pooled = np.zeros((draws, len(sums), sums[0].shape[1]))
    for count in {len(part) for part in sums} - {0}:
        chosen = [index for index, part in enumerate(sums) if len(part) == count]
        columns = np.hstack([sums[index] for index in chosen])
        pooled[:, chosen] = _draw(columns, stratum, draws, seed).reshape(draws, len(chosen), -1)
    return pooled


def _draw(sums: np.ndarray, stratum: str, draws: int, seed: int) -> np.ndarray:
    """Sums [C, K] of the units of one stratum, pooled over the units of every draw: [draws, K]."""
    # A stratum has numbers of its own: two of the same size must not be drawn alike.
    random = np.random.default_rng([seed, *stratum.encode()])
    step = max(1, CELLS_AT_ONCE // len(sums))
    parts = [multiplicities(len(sums), min(step, draws - first), random) @ sums for first in range(0, draws, step)]
    return np.concatenate(parts)


def bootstrap(
    sums: np.ndarray, strata: np.ndarray, statistic: Callable[[np.ndarray], np.ndarray], draws: int, seed: int
) -> tuple[float, np.ndarray]:
    """A statistic of the data, and of `draws` samples of it: (scalar, [draws]).

    `sums` [C, K] are K sums over the rows of each unit, `strata` [C] the name of the stratum of each; `statistic` maps pooled
    sums [..., K] to [...]. The order of units matters only within a stratum.
    """
    pooled = sum(_draw(sums[strata == stratum], str(stratum), draws, seed) for stratum in np.unique(strata))
    return float(statistic(sums.sum(axis=0))), statistic(pooled)


# --- requests in flight --------------------------------------------------------------------------------------------------


def goodput(records: pd.DataFrame) -> pd.Series:
    """Output tokens of all requests together a second of wall time, by arm: the mean over datasets of each one's.

    The token that prefill gives counts, as does the time of prefill: a request's `share_s` is its part of all of it.
    """
    sums = records.assign(tokens=records.num_output + 1).groupby(["arm", "dataset"])[["tokens", "share_s"]].sum()
    return (sums.tokens / sums.share_s).groupby("arm").mean()


def goodput_changes(
    records: pd.DataFrame,
    arms: Sequence[str],
    baseline: str,
    datasets: Sequence[str],
    draws: int = DRAWS,
    seed: int = BOOTSTRAP_SEED,
) -> pd.DataFrame:
    """By how many per cent each arm's `goodput` exceeds the baseline's, of one temperature and concurrency.

    A draw takes as many conversations of each dataset as it has, and with one come all arms. Returns a row for each arm: columns
    delta_percent, ci_low, ci_high. Raises `UserError` if an arm lacks a prompt-turn that another has.
    """
    rows = records.assign(tokens=records.num_output + 1.0)
    turns = rows.pivot(index=["dataset", "conversation", "turn"], columns="arm", values=["tokens", "share_s"])
    missing = turns.isna().stack(future_stack=True).any(axis=1)
    if missing.any():
        dataset, conversation, turn, arm = missing.index[missing.argmax()]
        raise UserError(f"{dataset}, conversation {conversation}, turn {turn}: no record of {arm}; measure the run again")
    units = turns.groupby(["dataset", "conversation"]).sum()
    strata, names = units.index.get_level_values("dataset").to_numpy(), [baseline, *arms]
    # A column for each dataset's sums, of which a unit adds to its own: [units, datasets, arms, (tokens, seconds)].
    values = np.stack([units[part][names].to_numpy() for part in ("tokens", "share_s")], axis=-1)
    own = (strata[:, None] == np.asarray(datasets))[:, :, None, None] * values[:, None]

    def changes(sums: np.ndarray) -> np.ndarray:
        sums = sums.reshape(*sums.shape[:-1], len(datasets), len(names), 2)
        goodputs = (sums[..., 0] / sums[..., 1]).mean(axis=-2)
        return 100 * (goodputs[..., 1:] / goodputs[..., :1] - 1)

    pooled = sum(_draw(own[strata == name].reshape((strata == name).sum(), -1), name, draws, seed) for name in datasets)
    low, high = np.quantile(changes(pooled), [TAIL, 1 - TAIL], axis=0)
    point = changes(own.reshape(len(own), -1).sum(axis=0))
    return pd.DataFrame({"delta_percent": point, "ci_low": low, "ci_high": high}, index=list(arms))


def multiplicities(count: int, draws: int, random: np.random.Generator) -> np.ndarray:
    """How often each of `count` units is taken when as many are drawn with replacement: [draws, count]."""
    cells = random.integers(count, size=(draws, count))
    cells += count * np.arange(draws)[:, None]
    return np.bincount(cells.ravel(), minlength=draws * count).reshape(draws, count).astype(float)
