"""Tables 3 and 4: what a tree costs to build, by either builder, and what is left of its gain (Section 4.3)."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from dominotree.errors import UserError
from dominotree.reporting.layout import Cell, Table
from dominotree.reporting.names import arm_title, arms, datasets
from dominotree.reporting.source import Source, arms_of, complete, only_arm
from dominotree.reporting.tables.parts import BOOTSTRAP, CI, OVERALL, STAGES, change_cells, changes, means, sections, value

FRONTIER, HEAP, CHAIN = "dominotree", "dominotree+heap", "domino"
BUILDERS = {"heap": "+heap", "frontier": ""}
"""By builder, the variant of DominoTree's arm that uses it."""


def table3(source: Source) -> Table:
    """Milliseconds of each stage of a round, by arm; of DominoTree's arms, how much longer the heap builds the same tree."""
    columns = [*STAGES, "round"]
    data = source.with_paper("table3", source.each_model(_stages))

    def rows(part: pd.DataFrame) -> Iterable[tuple[Cell, ...]]:
        for _, row in part.iterrows():
            yield Cell(arm_title(row.arm)), *(value(row, f"{stage}_ms") for stage in columns), value(row, "heap_over_frontier")

    return Table(
        name="table3",
        caption="Stages of a round in ms (mean over prompts of each prompt's mean over rounds), and what the reference builder, "
        "a sequential heap, takes to build a tree over what the frontier builder takes for the same tree.",
        stub="Method",
        groups=(),
        columns=(*(stage.capitalize() for stage in columns), "Heap \N{DIVISION SIGN} frontier"),
        sections=sections(data, rows),
        notes=source.notes(data),
        data=data,
    )


def _stages(records: pd.DataFrame) -> pd.DataFrame:
    arms_of(records, FRONTIER, HEAP)
    names = arms(complete(records, arms(records)))
    data = means(records, ["temperature", "arm"]).set_index(["temperature", "arm"])
    data = data.reindex([(temperature, name) for temperature in sorted(records.temperature.unique()) for name in names])
    twins = [(temperature, f"{arm}+heap") for temperature, arm in data.index]
    data["heap_over_frontier"] = data.build_ms.reindex(twins).to_numpy() / data.build_ms
    budgets = records.drop_duplicates("arm").set_index("arm").budget
    data = data.reset_index().assign(budget=lambda data: data.arm.map(budgets))
    stages = [f"{stage}_ms" for stage in (*STAGES, "round")]
    return data[["temperature", "arm", "budget", "rows", *stages, "heap_over_frontier", "tau_per_prompt", "tps"]]


def table4(source: Source) -> Table:
    """Throughput change of DominoTree over Domino's chain under each builder, by temperature and budget."""
    data = source.with_paper("table4", source.each_model(_gains))

    def rows(part: pd.DataFrame) -> Iterable[tuple[Cell, ...]]:
        for budget, gains in part.groupby("budget", sort=False):
            yield Cell(str(budget)), *(cell for _, gain in gains.iterrows() for cell in change_cells(gain))

    return Table(
        name="table4",
        caption=f"Throughput change Δ% of DominoTree over Domino's chain under each builder; {BOOTSTRAP} Rows are pooled. "
        "The chain builds no tree. Bold: CIs wholly above zero.",
        stub="Budget",
        groups=tuple(f"{builder.capitalize()} builder" for builder in BUILDERS),
        columns=("Δ%", CI),
        sections=sections(data, rows),
        notes=source.notes(data),
        data=data,
    )


def _gains(records: pd.DataFrame) -> pd.DataFrame:
    chain, frontiers, heaps = only_arm(records, CHAIN), arms_of(records, FRONTIER), arms_of(records, HEAP)
    trees = {frontier + variant: builder for frontier in frontiers for builder, variant in BUILDERS.items()}
    for arm in trees:
        if arm not in {*frontiers, *heaps}:
            raise UserError(f"no {arm} beside {arm.removesuffix('+heap')}; a builder is compared on the same tree")
    records = complete(records, [chain, *trees])
    data = changes(records, [(arm, chain) for arm in trees], {OVERALL: datasets(records)}).drop(columns="group")
    budgets = records.drop_duplicates("arm").set_index("arm").budget
    return data.assign(builder=data.arm.map(trees), budget=data.arm.map(budgets))
