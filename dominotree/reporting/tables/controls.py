"""Table 15 and the table of Appendix A.3: what the correction buys, and whether a budget chosen at run time buys more."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import pandas as pd

from dominotree.errors import UserError
from dominotree.reporting.layout import Cell, Table, number
from dominotree.reporting.names import arm_title, arms, kind_of
from dominotree.reporting.source import Source, arms_of, complete, only_arm
from dominotree.reporting.tables.parts import (
    BOOTSTRAP,
    CHANGE,
    CI,
    OVERALL,
    change_cells,
    changes,
    overall_and_each,
    pooled_means,
    sections,
    tau_changes,
    value,
)

LADDER = ("marginal", "static", "dominotree")
FIXED, ADAPTIVE, OTHERS = "dominotree", "adaptive", ("adaptive", "adaptive+calibrated", "adaptive+measured", "caddtree")
KEYS = ["temperature", "dataset", "arm"]


def table15(source: Source) -> Table:
    """The ladder: no correction, one a depth, one along each path, all on one drafter, builder and budget."""
    data = source.with_paper("table15", source.each_model(_ladder))

    def rows(part: pd.DataFrame) -> Iterable[tuple[Cell, ...]]:
        for _, row in part.iterrows():
            means = (value(row, name, digits) for name, digits in (("tau_per_prompt", 2), ("build_ms", 2), ("tps", 1)))
            yield Cell(row.step), *means, *change_cells(row, "tau_"), *change_cells(row)

    return Table(
        name="table15",
        caption="What Domino's correction adds to a tree of the same drafter, builder and budget: none (marginal), once a depth "
        "along the greedy path (static), along each node's own path (DominoTree). Δτ% and Δ%: changes of accepted tokens a "
        f"round (τ: mean over prompts) and of throughput over the row before, in the last row over the first; {BOOTSTRAP} "
        "Overall pools rows. Bold: CIs wholly above zero.",
        stub="Scorer",
        groups=(),
        columns=("τ", "Build (ms)", "tok/s", "Δτ%", CI, "Δ%", CI),
        sections=sections(data, rows, by=["dataset"]),
        notes=source.notes(data),
        data=data,
    )


def _ladder(records: pd.DataFrame) -> pd.DataFrame:
    """A row for each arm of the ladder, compared with the arm before; then the last arm once more, compared with the first."""
    ladder = [only_arm(records, kind) for kind in LADDER]
    records = complete(records, ladder)
    if records.budget.nunique() > 1:
        raise UserError(f"{', '.join(ladder)} differ in budget; a ladder compares trees of one size")
    steps = [(arm, baseline) for baseline, arm in pairwise(ladder)] + [(ladder[-1], ladder[0])]
    groups = overall_and_each(records)
    renamed = {column: f"tau_{column}" for column in CHANGE}
    keys = [*KEYS, "baseline"]
    tau, tps = (
        part.rename(columns={"group": "dataset"})
        for part in (tau_changes(records, steps, groups), changes(records, steps, groups))
    )
    found = tau[[*keys, *CHANGE]].rename(columns=renamed).merge(tps[[*keys, *CHANGE]], on=keys)
    data = pooled_means(records).merge(found, how="left", on=KEYS)
    whole = (data.arm == ladder[-1]) & (data.baseline == ladder[0])
    data.loc[whole, ["tau_per_prompt", "build_ms", "tps"]] = float("nan")
    data["step"] = data.arm.map(arm_title).where(~whole, f"{arm_title(ladder[-1])} over {arm_title(ladder[0])}")
    data["place"] = data.arm.map(ladder.index).where(~whole, len(ladder))
    columns = ["step", *KEYS, "baseline", "rows", "tau_per_prompt", "build_ms", "tps", *renamed.values(), *CHANGE]
    return _in_order(data, groups)[columns]


def _in_order(data: pd.DataFrame, groups: Iterable[str]) -> pd.DataFrame:
    """By temperature, by dataset as in `groups`, and by the column `place`."""
    sets = data.dataset.map({dataset: place for place, dataset in enumerate(groups)})
    return data.assign(sets=sets).sort_values(["temperature", "sets", "place"], ignore_index=True)


def table_a3(source: Source) -> Table:
    """Budgets chosen at run time against a fixed one."""
    data = source.with_paper("tableA3", source.each_model(_adaptive))

    def rows(part: pd.DataFrame) -> Iterable[tuple[Cell, ...]]:
        for _, row in part.iterrows():
            span = f"{number(row.fewest_nodes, 1)}\N{EN DASH}{number(row.most_nodes, 1)}"
            forecast = (value(row, name) for name in ("forecast", "tau_per_round", "forecast_over_tau"))
            yield (
                Cell(arm_title(row.arm)),
                value(row, "tree_nodes", 1),
                Cell(span),
                *forecast,
                value(row, "tps", 1),
                *change_cells(row),
            )

    return Table(
        name="tableA3",
        caption="Budgets that CaDDTree's rule chooses on DominoTree's corrected tree (adaptive; with a calibrated forecast; with "
        "the acceptance measured in earlier rounds) and on DDTree's, against a fixed budget: nodes a round, their range over "
        "prompts, forecast and realised tokens a round (τ), and throughput with its change Δ% over the fixed budget; "
        f"{BOOTSTRAP} Overall pools rows. Bold: CIs wholly above zero.",
        stub="Method",
        groups=(),
        columns=("Nodes", "Range", "Forecast", "τ", "Forecast \N{DIVISION SIGN} τ", "tok/s", "Δ%", CI),
        sections=sections(data, rows, by=["dataset"]),
        notes=source.notes(data),
        data=data,
    )


def _adaptive(records: pd.DataFrame) -> pd.DataFrame:
    fixed, others = only_arm(records, FIXED), [arm for arm in arms(records) if kind_of(arm) in OTHERS]
    arms_of(records, ADAPTIVE)
    records = complete(records, [fixed, *others])
    groups = overall_and_each(records)
    found = changes(records, [(arm, fixed) for arm in others], groups).rename(columns={"group": "dataset"})
    data = pooled_means(records).merge(found[[*KEYS, "baseline", *CHANGE]], how="left", on=KEYS)
    nodes = (
        pd.concat([records.assign(dataset=OVERALL), records]).groupby(KEYS).tree_nodes.agg(fewest_nodes="min", most_nodes="max")
    )
    data = data.merge(nodes.reset_index(), on=KEYS).assign(forecast_over_tau=lambda data: data.forecast / data.tau_per_round)
    data["place"] = data.arm.map([fixed, *others].index)
    measures = ["tree_nodes", "fewest_nodes", "most_nodes", "forecast", "tau_per_round", "forecast_over_tau", "tps"]
    return _in_order(data, groups)[[*KEYS, "baseline", "rows", *measures, *CHANGE]]
