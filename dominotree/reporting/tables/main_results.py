"""Tables 1 and 2: every method against plain decoding, and DominoTree against the others (Section 4.2)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

import pandas as pd

from dominotree.errors import UserError
from dominotree.reporting.layout import Cell, Table
from dominotree.reporting.names import arm_title, arms, dataset_title, datasets, families, kind_of
from dominotree.reporting.source import Source, complete, only_arm
from dominotree.reporting.tables.parts import BOOTSTRAP, CI, OVERALL, change_cells, changes, means, sections, value
from dominotree.stats import speedup

OURS = "dominotree"
BASELINES = ("domino", "ddtree", "caddtree")
MEASURES = ("speedup", "tps", "tau_per_prompt", "tau_per_round", "tree_nodes")
"""The numbers of Table 1 whose Overall is their mean over datasets."""


def table1(source: Source) -> Table:
    """Speedup over AR and accepted tokens a round of every arm, by dataset and temperature."""
    data = source.with_paper("table1", source.each_model(_speedups))
    shown = [*datasets(source.records), OVERALL]
    return Table(
        name="table1",
        caption="Speedup over AR (ratio of the rows' mean tok/s, within a run) and accepted tokens a round (τ: mean "
        "over prompts; the CSV file has that over rounds too). Overall: unweighted mean of datasets. Bold: highest of a column.",
        stub="Method",
        groups=tuple(map(dataset_title, shown)),
        columns=("Speedup", "τ"),
        sections=sections(data, lambda part: _speedup_rows(part, shown)),
        notes=source.notes(data),
        data=data,
    )


def _speedups(records: pd.DataFrame) -> pd.DataFrame:
    """By temperature, dataset and arm, one dataset being Overall."""
    if "ar" not in set(records.method):
        raise UserError("no arm of ar, which the table needs as its denominator; measure it beside the others")
    complete(records, arms(records))
    places = ["temperature", "dataset", "arm"]
    order = {name: place for place, names in enumerate([datasets(records), arms(records)]) for place, name in enumerate(names)}
    data = means(records, places).sort_values(places, key=lambda column: column.map(order).fillna(column), ignore_index=True)
    here = dict(list(records.groupby(["temperature", "dataset"])))
    data["speedup"] = [speedup(here[row.temperature, row.dataset], row.arm) for row in data.itertuples()]
    grouped = data.groupby(["temperature", "arm"], as_index=False, sort=False)
    overall = grouped[[*MEASURES]].mean().merge(grouped.rows.sum()).assign(dataset=OVERALL)
    return pd.concat([data, overall], ignore_index=True)[[*places, "rows", *MEASURES]]


def _speedup_rows(data: pd.DataFrame, shown: list[str]) -> Iterable[tuple[Cell, ...]]:
    """The rows of one model and temperature; a dataset that this model was not measured on stays empty."""
    cells = {(row.dataset, row.arm): row for _, row in data.iterrows()}
    best = data.groupby("dataset")[["speedup", "tau_per_prompt"]].max()
    for arm in data.arm.unique():
        row = [Cell(arm_title(arm))]
        for dataset, column in product(shown, ("speedup", "tau_per_prompt")):
            here = cells.get((dataset, arm))
            row.append(Cell("") if here is None else value(here, column, best=best[column][dataset]))
        yield tuple(row)


def table2(source: Source) -> Table:
    """Throughput change of DominoTree over Domino, DDTree and CaDDTree, by category and temperature."""
    data = source.with_paper("table2", source.each_model(_changes))
    ours, *baselines = (
        _title(data, column, kind) for column, kind in (("arm", OURS), *(("baseline", name) for name in BASELINES))
    )
    apart = (data.metric == "speedup").any()
    compared = "tok/s, or of their mean speedup over each one's own AR where they come from different runs" if apart else "tok/s"
    return Table(
        name="table2",
        caption=f"Throughput change Δ% of {ours} over each baseline (ratio of the rows' mean {compared}, minus 1); {BOOTSTRAP} "
        "Categories and Overall pool rows. Bold: CIs wholly above zero.",
        stub="Category",
        groups=tuple(f"vs. {baseline}" for baseline in baselines),
        columns=("Δ%", CI),
        sections=sections(data, _change_rows),
        notes=source.notes(data),
        data=data,
    )


def _title(data: pd.DataFrame, column: str, kind: str) -> str:
    """The title of an arm: with its budget, unless that differs between models."""
    names = [name for name in data[column].unique() if kind_of(name) == kind]
    return arm_title(names[0] if len(names) == 1 else kind)


def _changes(records: pd.DataFrame) -> pd.DataFrame:
    ours, *baselines = (only_arm(records, kind) for kind in (OURS, *BASELINES))
    # AR stays: arms of different runs are compared by their speedups.
    records = complete(records, [ours, *baselines, *arms(records[records.method == "ar"])])
    sets = records.groupby("family").dataset.unique()
    groups = {family.capitalize(): list(sets[family]) for family in families(records)} | {OVERALL: datasets(records)}
    data = changes(records, [(ours, baseline) for baseline in baselines], groups)
    # By temperature, then by category, in the order in which both come.
    return data.sort_values("temperature", kind="stable", ignore_index=True).rename(columns={"group": "category"})


def _change_rows(data: pd.DataFrame) -> Iterable[tuple[Cell, ...]]:
    """The rows of one model and temperature; `data` has a category's baselines next to each other, in the columns' order."""
    for category, rows in data.groupby("category", sort=False):
        yield Cell(category), *(cell for _, row in rows.iterrows() for cell in change_cells(row))
