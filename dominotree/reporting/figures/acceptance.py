"""How many tokens rounds commit."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pandas as pd
from matplotlib.ticker import MaxNLocator, PercentFormatter

from dominotree.errors import UserError
from dominotree.reporting.figures.panels import Plot, Row, arms_told_apart, legend, panels, settings_of, summed
from dominotree.reporting.figures.style import COLUMN_WIDTH, PAGE_WIDTH, method_style
from dominotree.reporting.names import arm_title, arms, families
from dominotree.reporting.source import complete


def acceptance(records: pd.DataFrame) -> Plot:
    """How many rounds commit at least n tokens, by method; a row a setting, a column a family."""
    records = records[(records.method != "ar") & records.accept_hist.notna()]
    if records.empty:
        raise UserError("no record of a drafted round has its length, which the figure needs; measure a method with a drafter")
    names, kinds = arms_told_apart(records), families(records)
    settings = settings_of(complete(records, names))
    width = PAGE_WIDTH if len(kinds) > 1 else COLUMN_WIDTH
    figure, axes = panels(len(settings), len(kinds), width, 1.6, sharex=True, sharey=True)
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
    legend(figure, axes[0, 0], 6 if len(kinds) > 1 else 3)
    caption = "Share of rounds that commit at least n tokens, the bonus included; the area under a line is its τ over rounds."
    return Plot(figure, caption, pd.concat(parts, ignore_index=True))


def _tails(records: pd.DataFrame, family: str) -> Iterator[Row]:
    """Of each arm, rounds that committed n tokens or more, for n = 1 .. the most that any arm's round committed."""
    length = records.accept_hist.map(len).max()
    for arm in arms(records):
        rounds = summed(records.accept_hist[records.arm == arm], length)
        shares = rounds[::-1].cumsum()[::-1] / rounds.sum()
        for tokens in range(1, length):
            place = {"family": family, "arm": arm, "tokens": tokens}
            yield place | {"rounds": int(rounds[tokens]), "share_of_rounds": shares[tokens]}
