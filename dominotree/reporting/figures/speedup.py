"""Speedup over AR of every method."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from dominotree.reporting.figures.panels import Plot, Row, arms_told_apart, legend, panels, settings_of
from dominotree.reporting.figures.style import PAGE_WIDTH, method_style
from dominotree.reporting.names import arm_title, arms, dataset_title, datasets
from dominotree.reporting.source import complete, only_arm
from dominotree.stats import throughput_change

OVERALL = "Overall"


def speedup(records: pd.DataFrame) -> Plot:
    """Speedup over AR of every method, by dataset; a panel a setting."""
    names, baseline = arms_told_apart(records[records.method != "ar"]), only_arm(records, "ar")
    # Every AR stays: arms of another run are compared by their speedup over its own.
    records = complete(records, [*arms(records[records.method == "ar"]), *names])
    settings, groups = settings_of(records), [*datasets(records), OVERALL]
    figure, axes = panels(len(settings), 1, PAGE_WIDTH, 1.5, sharex=True, sharey=True)
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
    legend(figure, axes[0, 0], 6)
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
