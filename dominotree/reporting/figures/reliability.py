"""Whether path probabilities come true."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from dominotree.errors import UserError
from dominotree.reporting.figures.panels import Plot, Row, arms_told_apart, panels, settings_of, summed
from dominotree.reporting.figures.style import PAGE_WIDTH, method_style
from dominotree.reporting.names import arm_title, arms, families
from dominotree.reporting.source import complete

PROBABILITY_BINS = 10
LEAST_NODES = 10
"""Of fewer nodes, a share says next to nothing."""

FAMILY_LINES = {
    "math": {"marker": "o", "linestyle": "-"},
    "code": {"marker": "s", "linestyle": (0, (4, 1))},
    "chat": {"marker": "^", "linestyle": (0, (1, 1))},
}


def reliability(records: pd.DataFrame) -> Plot:
    """Path probabilities against the share of nodes accepted, by family, and node counts; a column a method."""
    records = records[records.nodes_by_bin.map(len) > 0]
    if records.empty:
        raise UserError("no record has path probabilities by bin, which the figure needs; measure a method with a drafter")
    names = arms_told_apart(records)
    settings = settings_of(complete(records, names))
    ratios = (3, 1) * len(settings)
    figure, axes = panels(len(ratios), len(names), PAGE_WIDTH, 1.0, sharex=True, sharey="row", height_ratios=ratios)
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
        nodes, forecast, accepted = (summed(rows[column], PROBABILITY_BINS) for column in columns)
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
