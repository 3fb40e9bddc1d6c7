"""What a round costs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from dominotree.errors import UserError
from dominotree.reporting.figures.panels import Plot, Row, arms_told_apart, legend, one_run, panels, settings_of
from dominotree.reporting.figures.style import COLUMN_WIDTH, STAGE_STYLES
from dominotree.reporting.names import arm_title
from dominotree.reporting.source import complete


def stages(records: pd.DataFrame) -> Plot:
    """What a round costs, by stage and method; a panel a setting."""
    names = arms_told_apart(records)
    settings = settings_of(one_run(complete(records, names)))
    figure, axes = panels(len(settings), 1, COLUMN_WIDTH, 0.35 + 0.17 * len(names), sharex=True)
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
    legend(figure, axes[0, 0], len(STAGE_STYLES))
    caption = "Time of a round by stage, mean over all rounds; at a bar's end the time that a committed token takes."
    return Plot(figure, caption, pd.concat(parts, ignore_index=True))


def _stage_means(records: pd.DataFrame, names: list[str]) -> Iterator[Row]:
    for arm in names:
        rows = records[(records.arm == arm) & (records.rounds > 0)]
        times = {f"{stage}_ms": np.average(rows[f"{stage}_ms"], weights=rows.rounds) for stage in STAGE_STYLES}
        if np.isnan([*times.values()]).any():
            raise UserError(f"{arm} has no times of all stages, which the figure needs")
        yield {"arm": arm} | times | {"token_ms": sum(times.values()) * rows.rounds.sum() / rows.num_output.sum()}
