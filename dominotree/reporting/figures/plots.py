"""What each figure shows: from records to axes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator, PercentFormatter

from dominotree.errors import UserError
from dominotree.reporting.figures.style import COLUMN_WIDTH, PAGE_WIDTH, STAGE_STYLES, method_style
from dominotree.reporting.names import arm_title, arms, dataset_title, datasets, families, kind_of
from dominotree.reporting.source import complete, only_arm
from dominotree.stats import throughput_change

Row = dict[str, Any]
OVERALL = "Overall"
PROBABILITY_BINS = 10
LEAST_NODES = 10
"""Of fewer nodes, a share says next to nothing."""

FAMILY_LINES = {
    "math": {"marker": "o", "linestyle": "-"},
    "code": {"marker": "s", "linestyle": (0, (4, 1))},
    "chat": {"marker": "^", "linestyle": (0, (1, 1))},
}


@dataclass(frozen=True)
class Plot:
    """A figure, what it shows in a sentence or two, and the numbers that it draws, unrounded."""

    figure: Figure
    caption: str
    data: pd.DataFrame


@dataclass(frozen=True)
class Setting:
    """What methods are compared in: a temperature, with its records."""

    temperature: float
    records: pd.DataFrame

    @property
    def title(self) -> str:
        return f"temperature {self.temperature:g}"

    def numbers(self, rows: Iterable[Row]) -> pd.DataFrame:
        """`rows` with the temperature before."""
        return pd.DataFrame([{"temperature": self.temperature} | row for row in rows])


def speedup(records: pd.DataFrame) -> Plot:
    """Speedup over AR of every method, by dataset; a panel a setting."""
    names, baseline = _arms_told_apart(records[records.method != "ar"]), only_arm(records, "ar")
    # Every AR stays: arms of another run are compared by their speedup over its own.
    records = complete(records, [*arms(records[records.method == "ar"]), *names])
    settings, groups = _settings(records), [*datasets(records), OVERALL]
    figure, axes = _axes(len(settings), 1, PAGE_WIDTH, 1.5, sharex=True, sharey=True)
    parts, width = [], 0.84 / len(names)
    for axis, setting in zip(axes.flat, settings, strict=True):
        data = setting.numbers(_speedups(setting.records, names, baseline))
        parts.append(data)
        for place, arm in enumerate(names):
            rows = data[data.arm == arm].set_index("dataset").loc[groups]
            x = np.arange(len(groups)) + (place - (len(names) - 1) / 2) * width
            axis.bar(x, rows.speedup, width, label=arm_title(arm), **method_style(arm).bar())
            whiskers = rows[["ci_low", "ci_high"]].sub(rows.speedup, axis=0).abs().to_numpy().T
            axis.errorbar(x, rows.speedup, whiskers, fmt="none", ecolor="black", elinewidth=0.6, capsize=1.2, capthick=0.6)
        axis.axhline(1, color="black", linewidth=0.6, linestyle=(0, (4, 2)))
        axis.set(title=setting.title.capitalize(), ylabel="speedup over AR")
        axis.set_xticks(np.arange(len(groups)), [*map(dataset_title, groups[:-1]), OVERALL])
    _legend(figure, axes[0, 0], 6)
    caption = (
        "Speedup over AR (ratio of the rows' mean tok/s, within a run) by dataset, with 95% bootstrap intervals. "
        "Overall: unweighted mean of datasets. Dashed: AR."
    )
    return Plot(figure, caption, pd.concat(parts, ignore_index=True))


def _speedups(records: pd.DataFrame, names: list[str], baseline: str) -> Iterator[Row]:
    for arm in names:
        points = []
        for dataset in datasets(records):
            change = throughput_change(records[records.dataset == dataset], arm, baseline)
            point, low, high = (1 + percent / 100 for percent in (change.point, change.low, change.high))
            points.append(point)
            yield {"dataset": dataset, "arm": arm, "speedup": point, "ci_low": low, "ci_high": high}
        yield {"dataset": OVERALL, "arm": arm, "speedup": np.mean(points), "ci_low": np.nan, "ci_high": np.nan}


def budgets(records: pd.DataFrame) -> Plot:
    """Tokens a round against the budget of nodes, and throughput below it; a column a setting."""
    kinds = {arm: kind_of(arm) for arm in arms(records)}
    sizes = sorted(records.budget.dropna().unique())
    if records.groupby(records.arm.map(kinds)).budget.nunique().max() < 2:
        raise UserError("no method with more than one budget, which the figure needs; measure one, as in ddtree@8 and ddtree@16")
    settings = _settings(_one_run(complete(records, kinds)))
    width = COLUMN_WIDTH if len(settings) < 3 else PAGE_WIDTH
    figure, axes = _axes(2, len(settings), width, 1.35, sharex=True, sharey="row")
    parts = []
    for (taus, throughputs), setting in zip(axes.T, settings, strict=True):
        data = setting.numbers(_budget_means(setting.records))
        parts.append(data)
        for kind in dict.fromkeys(kinds.values()):
            _budget_line(taus, data[data.kind == kind], "tau")
            _budget_line(throughputs, data[data.kind == kind], "tps")
        taus.set(title=setting.title.capitalize(), xscale="log")
        throughputs.set_xlabel("budget, nodes")
        throughputs.set_xticks(sizes, map(str, sizes))
        throughputs.xaxis.set_minor_locator(NullLocator())
    axes[0, 0].set_ylabel("tokens a round, τ")
    axes[1, 0].set_ylabel("tok/s")
    _legend(figure, axes[0, 0], 3 if width == COLUMN_WIDTH else 6)
    caption = (
        "Accepted tokens a round (τ, mean over prompts) and throughput against the budget, both unweighted means of datasets. "
        "Lines without markers: methods without a budget."
    )
    return Plot(figure, caption, pd.concat(parts, ignore_index=True))


def _budget_means(records: pd.DataFrame) -> Iterator[Row]:
    means = records.groupby(["dataset", "arm"])[["tau", "tps"]].mean().groupby("arm").mean()
    for arm in arms(records):
        budget = records.budget[records.arm == arm].iloc[0]
        yield {"arm": arm, "kind": kind_of(arm), "budget": budget} | means.loc[arm].to_dict()


def _budget_line(axis: Axes, rows: pd.DataFrame, measure: str) -> None:
    """One method: a line over its budgets, or a level for one that has none."""
    kind, style = rows.kind.iloc[0], method_style(rows.kind.iloc[0])
    if rows.budget.isna().all():
        axis.axhline(rows[measure].iloc[0], color=style.color, linestyle=style.dashes, label=arm_title(kind))
    else:
        hollow = {"markerfacecolor": "white"} if "+" in kind else {}
        axis.plot(rows.budget.astype(int), rows[measure], label=arm_title(kind), **style.line() | hollow)


def stages(records: pd.DataFrame) -> Plot:
    """What a round costs, by stage and method; a panel a setting."""
    names = _arms_told_apart(records)
    settings = _settings(_one_run(complete(records, names)))
    figure, axes = _axes(len(settings), 1, COLUMN_WIDTH, 0.35 + 0.17 * len(names), sharex=True)
    parts = []
    for axis, setting in zip(axes.flat, settings, strict=True):
        data = setting.numbers(_stage_means(setting.records, names))
        parts.append(data)
        y, left = np.arange(len(names)), np.zeros(len(names))
        for stage, style in STAGE_STYLES.items():
            axis.barh(y, data[f"{stage}_ms"], 0.72, left, label=stage, **style)
            left += data[f"{stage}_ms"]
        for place, end, token in zip(y, left, data.token_ms, strict=True):
            axis.annotate(f"{token:.3g}", (end, place), xytext=(3, 0), textcoords="offset points", va="center", size=6)
        axis.set_yticks(y, map(arm_title, names))
        axis.set_title(setting.title.capitalize())
        axis.margins(x=0.15)
        axis.invert_yaxis()
        axis.grid(axis="x")
        axis.grid(visible=False, axis="y")
    axes[-1, 0].set_xlabel("ms a round (at its end: ms a token)")
    _legend(figure, axes[0, 0], len(STAGE_STYLES))
    caption = "Time of a round by stage, mean over all rounds; at a bar's end the time that a committed token takes."
    return Plot(figure, caption, pd.concat(parts, ignore_index=True))


def _stage_means(records: pd.DataFrame, names: list[str]) -> Iterator[Row]:
    for arm in names:
        rows = records[(records.arm == arm) & (records.rounds > 0)]
        times = {f"{stage}_ms": np.average(rows[f"{stage}_ms"], weights=rows.rounds) for stage in STAGE_STYLES}
        if np.isnan([*times.values()]).any():
            raise UserError(f"{arm} has no times of all stages, which the figure needs")
        yield {"arm": arm} | times | {"token_ms": sum(times.values()) * rows.rounds.sum() / rows.num_output.sum()}


def acceptance(records: pd.DataFrame) -> Plot:
    """How many rounds commit at least n tokens, by method; a row a setting, a column a family."""
    records = records[(records.method != "ar") & records.accept_hist.notna()]
    if records.empty:
        raise UserError("no record of a drafted round has its length, which the figure needs; measure a method with a drafter")
    names, kinds = _arms_told_apart(records), families(records)
    settings = _settings(complete(records, names))
    width = PAGE_WIDTH if len(kinds) > 1 else COLUMN_WIDTH
    figure, axes = _axes(len(settings), len(kinds), width, 1.6, sharex=True, sharey=True)
    parts = []
    for axis, (setting, family) in zip(axes.flat, product(settings, kinds), strict=True):
        data = setting.numbers(_tails(setting.records[setting.records.family == family], family))
        parts.append(data)
        for arm in names:
            rows = data[data.arm == arm]
            axis.plot(rows.tokens, rows.share_of_rounds, label=arm_title(arm), **method_style(arm).line())
        axis.set(title=f"{family.capitalize()}, {setting.title}", ylim=(0, 1.05))
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.yaxis.set_major_formatter(PercentFormatter(1))
    for axis in axes[-1]:
        axis.set_xlabel("tokens, n")
    for axis in axes[:, 0]:
        axis.set_ylabel("rounds that commit ≥ n")
    _legend(figure, axes[0, 0], 6 if len(kinds) > 1 else 3)
    caption = "Share of rounds that commit at least n tokens, the bonus included; the area under a line is its τ over rounds."
    return Plot(figure, caption, pd.concat(parts, ignore_index=True))


def _tails(records: pd.DataFrame, family: str) -> Iterator[Row]:
    """Of each arm, rounds that committed n tokens or more, for n = 1 .. the most that any arm's round committed."""
    length = records.accept_hist.map(len).max()
    for arm in arms(records):
        rounds = _summed(records.accept_hist[records.arm == arm], length)
        shares = rounds[::-1].cumsum()[::-1] / rounds.sum()
        for tokens in range(1, length):
            place = {"family": family, "arm": arm, "tokens": tokens}
            yield place | {"rounds": int(rounds[tokens]), "share_of_rounds": shares[tokens]}


def reliability(records: pd.DataFrame) -> Plot:
    """Path probabilities against the share of nodes accepted, by family, and node counts; a column a method."""
    records = records[records.nodes_by_bin.map(len) > 0]
    if records.empty:
        raise UserError("no record has path probabilities by bin, which the figure needs; measure a method with a drafter")
    names = _arms_told_apart(records)
    settings = _settings(complete(records, names))
    ratios = (3, 1) * len(settings)
    figure, axes = _axes(len(ratios), len(names), PAGE_WIDTH, 1.0, sharex=True, sharey="row", height_ratios=ratios)
    parts = []
    for shares, counts, setting in zip(axes[::2], axes[1::2], settings, strict=True):
        data = setting.numbers(_bins(setting.records))
        parts.append(data)
        for above, below, arm in zip(shares, counts, names, strict=True):
            _reliability_panel(above, below, data[data.arm == arm], arm)
        shares[0].set_ylabel(f"accepted share,\n{setting.title}")
        counts[0].set_ylabel("nodes")
        counts[0].yaxis.set_minor_locator(NullLocator())
    figure.supxlabel("path probability (forecast)", fontsize=7)
    caption = (
        "Drafted nodes by path probability: mean forecast against the share that the target accepted, and the number of nodes. "
        f"Below the diagonal the drafter is over-confident. Bins of under {LEAST_NODES} nodes are counted, not drawn. "
        "In the legend: tokens forecast over tokens accepted, the bonus of each round included."
    )
    return Plot(figure, caption, pd.concat(parts, ignore_index=True))


def _bins(records: pd.DataFrame) -> Iterator[Row]:
    """Of each arm and family, the bins of path probability that have nodes."""
    columns = ["nodes_by_bin", "forecast_by_bin", "accepted_by_bin"]
    for arm, family in product(arms(records), families(records)):
        rows = records[(records.arm == arm) & (records.family == family)]
        nodes, forecast, accepted = (_summed(rows[column], PROBABILITY_BINS) for column in columns)
        rounds = rows.rounds.sum()
        ratio = (rounds + forecast.sum()) / (rounds + accepted.sum())
        for place in np.flatnonzero(nodes):
            means = {"mean_probability": forecast[place] / nodes[place], "accepted_share": accepted[place] / nodes[place]}
            bin_ = {"bin": int(place), "nodes": int(nodes[place])}
            yield {"family": family, "arm": arm, "forecast_over_accepted": ratio} | bin_ | means


def _reliability_panel(shares: Axes, counts: Axes, data: pd.DataFrame, arm: str) -> None:
    """One method: a line a family above, bars of all its nodes below."""
    style = method_style(arm)
    shares.plot([0, 1], [0, 1], color="0.4", linewidth=0.6, linestyle=(0, (4, 2)))
    for family, rows in data.groupby("family", sort=False):
        drawn = rows[rows.nodes >= LEAST_NODES]
        label = f"{family}: {rows.forecast_over_accepted.iloc[0]:.2f}"
        line = FAMILY_LINES[family] | {"color": style.color, "markersize": 3}
        shares.plot(drawn.mean_probability, drawn.accepted_share, label=label, **line)
    shares.set(title=arm_title(arm), xlim=(0, 1), ylim=(0, 1.45), yticks=[0, 0.5, 1])  # the legend stands above 1
    shares.legend(loc="upper left", fontsize=6, handlelength=1.6, labelspacing=0.2)
    nodes = data.groupby("bin").nodes.sum()
    counts.bar((nodes.index + 0.5) / PROBABILITY_BINS, nodes, 0.8 / PROBABILITY_BINS, **style.bar())
    counts.set(yscale="log", ylim=(0.7, None))


FIGURES: dict[str, Callable[[pd.DataFrame], Plot]] = {
    "speedup": speedup,
    "budgets": budgets,
    "stages": stages,
    "acceptance": acceptance,
    "reliability": reliability,
}


# --- what figures share --------------------------------------------------------------------------------------------------


def _settings(records: pd.DataFrame) -> list[Setting]:
    return [Setting(temperature, rows) for temperature, rows in records.groupby("temperature")]


def _one_run(records: pd.DataFrame) -> pd.DataFrame:
    """`records`; raises `UserError` if arms of one place come from different runs, whose times differ anyway."""
    for (dataset, temperature), rows in records.groupby(["dataset", "temperature"]):
        firsts = rows.drop_duplicates("run")
        if len(firsts) > 1:
            place = f"{dataset} at temperature {temperature:g}"
            raise UserError(f"{place}: {' and '.join(firsts.arm)} come from different runs; measure them in one to compare them")
    return records


def _arms_told_apart(records: pd.DataFrame) -> list[str]:
    """All arms, in order. Raises `UserError` if two are of one method and so would look the same."""
    return [only_arm(records, kind) for kind in dict.fromkeys(map(kind_of, arms(records)))]


def _summed(lists: Iterable[list[float]], length: int) -> np.ndarray:
    """The element-wise sum of lists of at most `length` numbers, [length]."""
    total = np.zeros(length)
    for values in lists:
        total[: len(values)] += values
    return total


def _axes(rows: int, columns: int, width: float, height: float, **settings: object) -> tuple[Figure, np.ndarray]:
    """A figure `width` wide, and its axes [rows, columns], each row `height` high; inches."""
    figure = Figure(figsize=(width, 0.25 + rows * height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **settings)


def _legend(figure: Figure, axis: Axes, columns: int) -> None:
    figure.legend(*axis.get_legend_handles_labels(), loc="outside upper center", ncols=columns)
