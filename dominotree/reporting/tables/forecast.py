"""The forecast of accepted tokens against what came true, under each normaliser of the correction (Appendix A.3, Figure 2)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from dominotree.errors import UserError
from dominotree.reporting.layout import Cell, Table
from dominotree.reporting.names import arm_title
from dominotree.reporting.source import Source, arms_of, complete
from dominotree.reporting.tables.parts import BOOTSTRAP, CHANGE, CI, change_cells, overall_and_each, sections, tau_changes, value

TREE, TAIL = "dominotree", "+tail"
BINS = ("nodes_by_bin", "forecast_by_bin", "accepted_by_bin")


def calibration(source: Source) -> Table:
    """Of the tree under both normalisers: tokens forecast and accepted a round, their ratio, and what the choice does to tau."""
    data = source.with_paper("calibration", source.each_model(_forecasts))

    def rows(part: pd.DataFrame) -> Iterable[tuple[Cell, ...]]:
        for _, row in part.iterrows():
            numbers = (("forecast", 2), ("accepted", 2), ("ratio", 2), ("gap", 3), ("tau_per_prompt", 2))
            yield Cell(arm_title(row.arm)), *(value(row, name, digits) for name, digits in numbers), *change_cells(row)

    return Table(
        name="calibration",
        caption="What the drafter's path probabilities forecast: drafted tokens expected and accepted a round, the bonus left "
        "out, and their ratio; Gap: the distance of forecast and accepted share, mean over ten bins of probability weighed by "
        f"nodes; τ: mean over prompts, and its change under the tail normaliser; {BOOTSTRAP} Overall pools rows.",
        stub="Method",
        groups=(),
        columns=("Forecast", "Accepted", "Ratio", "Gap", "τ", "Δτ%", CI),
        sections=sections(data, rows, by=["dataset"]),
        notes=source.notes(data),
        data=data,
    )


def _pairs(records: pd.DataFrame) -> list[tuple[str, str]]:
    """Each arm with the tail normaliser and its twin without. Raises `UserError` if either is missing."""
    plain, tails = arms_of(records, TREE), arms_of(records, TREE + TAIL)
    for arm in tails:
        if arm.removesuffix(TAIL) not in plain:
            raise UserError(f"no {arm.removesuffix(TAIL)} beside {arm}; a normaliser is compared on the same budget")
    return [(arm, arm.removesuffix(TAIL)) for arm in tails]


def _forecasts(records: pd.DataFrame) -> pd.DataFrame:
    pairs = _pairs(records)
    records = complete(records, [arm for arm, twin in pairs for arm in (twin, arm)])
    groups = overall_and_each(records)
    found = tau_changes(records, pairs, groups).rename(columns={"group": "dataset"})
    rows = records[records.tps.notna()]
    data = pd.DataFrame(
        {"temperature": temperature, "dataset": group, "arm": arm} | _bins(part[part.arm == arm])
        for temperature, here in rows.groupby("temperature")
        for group, part in ((name, here[here.dataset.isin(chosen)]) for name, chosen in groups.items())
        for pair in pairs
        for arm in reversed(pair)
    )
    return data.merge(found[["temperature", "dataset", "arm", *CHANGE]], how="left", on=["temperature", "dataset", "arm"])


def _bins(rows: pd.DataFrame) -> dict[str, float]:
    """Of one arm's rows: means a round, and how far the bins' forecasts are from their shares."""
    nodes, forecast, accepted = (np.array(rows[name].to_list()).sum(axis=0) for name in BINS)
    rounds = rows.rounds.sum()
    return {
        "rows": len(rows),
        "forecast": forecast.sum() / rounds,
        "accepted": accepted.sum() / rounds,
        "ratio": forecast.sum() / accepted.sum() if accepted.sum() else np.nan,
        "gap": np.abs(forecast - accepted).sum() / nodes.sum(),
        "tau_per_prompt": rows.tau.mean(),
    }
