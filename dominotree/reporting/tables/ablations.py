"""Tables 10 to 13: budget, candidate width and sampled drafts (Appendix A.1 and A.2)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from dominotree.errors import UserError
from dominotree.reporting.layout import Cell, Table
from dominotree.reporting.names import arm_title, arms, dataset_title, datasets, kind_of
from dominotree.reporting.source import Source, arms_of, complete, only_arm
from dominotree.reporting.tables.parts import (
    BOOTSTRAP,
    CHANGE,
    CI,
    OVERALL,
    change_cells,
    changes,
    means,
    overall_and_each,
    sections,
    tau_changes,
    value,
)

TREE, CHAIN, SAMPLED = "dominotree", "domino", "+sampled"
FULL = "full"
AGAINST_CHAIN = ("Build (ms)", "τ", "tok/s", "Δ%", CI)
CAPTION = (
    "build time a round, accepted tokens a round (τ: mean over prompts), throughput, and its change Δ% over Domino's chain, "
    f"measured beside it; {BOOTSTRAP} All datasets are pooled. Bold: best of a section's column, and CIs wholly above zero."
)


def against_chain(records: pd.DataFrame, trees: list[str]) -> pd.DataFrame:
    """Of each tree and the chain, pooled over datasets: build time, tau, throughput; of a tree its change over the chain."""
    chain = only_arm(records, CHAIN)
    records = complete(records, [chain, *trees])
    found = changes(records, [(tree, chain) for tree in trees], {OVERALL: datasets(records)})
    data = means(records, ["temperature", "arm"]).merge(found[["temperature", "arm", "baseline", *CHANGE]], how="left")
    budgets = records.drop_duplicates("arm").set_index("arm").budget
    columns = ["temperature", "arm", "baseline", "budget", "rows", "build_ms", "tau_per_prompt", "tps", *CHANGE]
    data = data.assign(
        budget=data.arm.map(budgets), place=data.arm.map({arm: place for place, arm in enumerate([chain, *trees])})
    )
    return data.sort_values(["temperature", "place"])[columns]


def chain_rows(data: pd.DataFrame, stub: str) -> Iterable[tuple[Cell, ...]]:
    """The rows of one section, the column `stub` on the left, or the arm's title where that is missing."""
    trees = data[data.baseline.notna()]
    best = {"build_ms": trees.build_ms.min(), "tau_per_prompt": trees.tau_per_prompt.max(), "tps": trees.tps.max()}
    for _, row in data.iterrows():
        is_tree = pd.notna(row.baseline)
        left = Cell(str(row[stub]) if is_tree else arm_title(row.arm))
        columns = (("build_ms", 2), ("tau_per_prompt", 2), ("tps", 1))
        yield left, *(value(row, name, digits, best[name] if is_tree else np.nan) for name, digits in columns), *change_cells(row)


def table10(source: Source) -> Table:
    """DominoTree at several budgets against the chain."""
    data = source.with_paper("table10", source.each_model(lambda records: against_chain(records, arms_of(records, TREE))))
    return Table(
        name="table10",
        caption=f"Node budget of DominoTree: {CAPTION}",
        stub="Budget",
        groups=(),
        columns=AGAINST_CHAIN,
        sections=sections(data, lambda part: chain_rows(part, "budget")),
        notes=source.notes(data),
        data=data,
    )


def width_of(arm: str) -> str | None:
    """The candidate width that an arm's variant gives it, `16` or `full`; None if none does."""
    variants = arm.split("+")[1:]
    widths = [name.removeprefix("m") for name in variants if name == FULL or (name[:1] == "m" and name[1:].isdecimal())]
    return widths[0] if widths else None


def _widths(records: pd.DataFrame) -> list[str]:
    """DominoTree's arms whose variant is a width, by budget, then by width."""
    names = [arm for arm in arms(records) if kind_of(arm).startswith(f"{TREE}+") and width_of(arm)]
    if not names:
        raise UserError(f"no arm of {TREE}+m64 or another width, which the table needs, only {', '.join(arms(records))}")
    budgets = records.drop_duplicates("arm").set_index("arm").budget
    return sorted(names, key=lambda arm: (budgets[arm], _order(width_of(arm))))


def _order(width: str | None) -> float:
    return float("inf") if width == FULL else float(width or 0)


def _width_title(width: str) -> str:
    return "full vocabulary" if width == FULL else f"M={width}"


def table11(source: Source) -> Table:
    """DominoTree's correction restricted to several widths, at one or more budgets, against the chain."""

    def against(records: pd.DataFrame) -> pd.DataFrame:
        data = against_chain(records, _widths(records))
        data = data[data.baseline.notna()]
        return data.assign(width=data.arm.map(width_of))

    data = source.with_paper("table11", source.each_model(against))
    titled = data.assign(title=data.width.map(_width_title))
    return Table(
        name="table11",
        caption=f"Candidate width of DominoTree, M tokens a depth or the full vocabulary: {CAPTION}",
        stub="Width",
        groups=(),
        columns=AGAINST_CHAIN,
        sections=sections(titled, lambda part: chain_rows(part, "title"), by=["budget"]),
        notes=source.notes(data),
        data=data,
    )


def table12(source: Source) -> Table:
    """Accepted tokens a round by dataset and candidate width."""

    def taus(records: pd.DataFrame) -> pd.DataFrame:
        data = means(complete(records, _widths(records)), ["temperature", "budget", "dataset", "arm"])
        columns = ["temperature", "budget", "dataset", "width", "arm", "rows", "tau_per_prompt", "tau_per_round"]
        return data.assign(width=data.arm.map(width_of))[columns].sort_values(["temperature", "budget"], kind="stable")

    data = source.with_paper("table12", source.each_model(taus))
    widths = sorted(data.width.unique(), key=_order)

    def rows(part: pd.DataFrame) -> Iterable[tuple[Cell, ...]]:
        for dataset in datasets(source.records):
            cells = {row.width: value(row, "tau_per_prompt") for _, row in part[part.dataset == dataset].iterrows()}
            yield Cell(dataset_title(dataset)), *(cells.get(width, Cell("")) for width in widths)

    return Table(
        name="table12",
        caption="Accepted tokens a round (τ: mean over prompts) of DominoTree by dataset, as the candidate width M grows.",
        stub="Dataset",
        groups=(),
        columns=tuple(map(_width_title, widths)),
        sections=sections(data, rows, by=["budget"]),
        notes=source.notes(data),
        data=data,
    )


def table13(source: Source) -> Table:
    """Sampled drafts against greedy ones, for the chain and the tree, by dataset."""
    data = source.with_paper("table13", source.each_model(_sampled))

    def rows(part: pd.DataFrame) -> Iterable[tuple[Cell, ...]]:
        for dataset, pairs in part.groupby("dataset", sort=False):
            cells = ((value(row, "tau_delta_percent", 1), *change_cells(row)) for _, row in pairs.iterrows())
            yield Cell(dataset_title(dataset)), *(cell for three in cells for cell in three)

    return Table(
        name="table13",
        caption="Drafts sampled at the target's temperature against greedy ones: change of accepted tokens a round (Δτ%: means "
        f"over prompts) and of throughput (Δ%); {BOOTSTRAP} Overall pools rows. Bold: CIs wholly above zero.",
        stub="Dataset",
        groups=tuple(dict.fromkeys(arm_title(baseline) for baseline in data.baseline)),
        columns=("Δτ%", "Δ%", CI),
        sections=sections(data, rows),
        notes=source.notes(data),
        data=data,
    )


def _sampled(records: pd.DataFrame) -> pd.DataFrame:
    pairs = [(only_arm(records, kind + SAMPLED), only_arm(records, kind)) for kind in (CHAIN, TREE)]
    records = complete(records, [arm for pair in pairs for arm in pair])
    groups = overall_and_each(records)
    tau = (
        tau_changes(records, pairs, groups)
        .rename(columns={column: f"tau_{column}" for column in CHANGE})
        .drop(columns=["rows", "metric"])
    )
    data = changes(records, pairs, groups).merge(tau, on=["temperature", "group", "arm", "baseline"])
    return data.rename(columns={"group": "dataset"}).sort_values("temperature", kind="stable")
