"""What a budget buys."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from dominotree.errors import UserError
from dominotree.reporting.figures.panels import Plot, Row, legend, one_run, panels, settings_of
from dominotree.reporting.figures.style import COLUMN_WIDTH, PAGE_WIDTH, method_style
from dominotree.reporting.names import arm_title, arms, kind_of
from dominotree.reporting.source import complete


def budgets(records: pd.DataFrame) -> Plot:
    """Tokens a round against the budget of nodes, and throughput below it; a column a setting."""
    kinds = {arm: kind_of(arm) for arm in arms(records)}
    sizes = sorted(records.budget.dropna().unique())
    if records.groupby(records.arm.map(kinds)).budget.nunique().max() < 2:
        raise UserError("no method with more than one budget, which the figure needs; measure one, as in ddtree@8 and ddtree@16")
    settings = settings_of(one_run(complete(records, kinds)))
    width = COLUMN_WIDTH if len(settings) < 3 else PAGE_WIDTH
    figure, axes = panels(2, len(settings), width, 1.35, sharex=True, sharey="row")
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
    legend(figure, axes[0, 0], 3 if width == COLUMN_WIDTH else 6)
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
