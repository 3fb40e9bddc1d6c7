"""The audit's tables: what was reproduced, and what another resampling changes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from dominotree.published.cells import GROUPS, POOLED_ROWS, TREE
from dominotree.published.collections import MODELS
from dominotree.reporting.layout import Cell, Section, Table, number
from dominotree.stats import PROTOCOL, Resampling, throughput_changes

AUTHORS = "authors"
RESAMPLINGS = {AUTHORS: POOLED_ROWS, "Rows within datasets": Resampling("row"), "Conversations within datasets": PROTOCOL}


def summary(cells: pd.DataFrame) -> Table:
    """By source and quantity: how many cells, how many reproduced, and how much of the room the furthest from ours takes."""
    room = np.where(cells.published < cells.recomputed, cells.recomputed - cells.lowest, cells.highest - cells.recomputed)
    off = (cells.published - cells.recomputed).abs()
    groups = cells.assign(used=(off / room).where(off > 0, 0.0)).groupby(["source", "quantity"], sort=False)
    data = groups.agg(cells=("reproduced", "size"), reproduced=("reproduced", "sum"), used=("used", "max")).reset_index()

    def row(line: pd.Series) -> tuple[Cell, ...]:
        return Cell(line.quantity), Cell(str(line.cells)), Cell(str(line.reproduced)), Cell(f"{line.used:.2g}")

    return Table(
        name="audit",
        caption="The authors' numbers, and ours from their records. Room: 1e-9 relative for what they checked in unrounded, half "
        "a digit for what they printed, Monte-Carlo error for ends of intervals; used: by the number that is furthest from ours.",
        stub="Number",
        groups=(),
        columns=("Cells", "Reproduced", "Room used"),
        sections=tuple(
            Section(source, tuple(row(line) for _, line in part.iterrows()))
            for source, part in data.groupby("source", sort=False)
        ),
        notes=(),
        data=data,
    )


def intervals(records: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Every pairwise comparison's interval under each resampling: its ends, and its width over that of the authors' way."""
    pairs = [(TREE, arm) for arm in ("domino", "ddtree@16", "caddtree", "dflash")]
    parts = []
    for suffix, model in MODELS.items():
        for name, resampling in RESAMPLINGS.items():
            changes = throughput_changes(records[f"main{suffix}"], pairs, GROUPS, resampling=resampling)
            parts.append(changes.assign(model=model.name, resampling=name, width=changes.ci_high - changes.ci_low))
    data = pd.concat(parts, ignore_index=True)
    place = ["model", "temperature", "group", "baseline"]
    theirs = data[data.resampling == AUTHORS].set_index(place)
    other = theirs.loc[list(data[place].itertuples(index=False, name=None))]
    holds_zero, held_zero = ((rows.ci_low.le(0) & rows.ci_high.ge(0)).to_numpy() for rows in (data, other))
    return data.assign(ratio=data.width / other.width.to_numpy(), other_verdict=holds_zero != held_zero)


def interval_table(data: pd.DataFrame) -> Table:
    """What resampling conversations within datasets changes, against the authors' rows of all datasets together."""
    other = [name for name in RESAMPLINGS if name != AUTHORS]

    def row(group: str, part: pd.DataFrame) -> tuple[Cell, ...]:
        by = part.groupby("resampling")
        ratios, verdicts, counts = by.ratio.mean(), by.other_verdict.sum(), by.size()
        return Cell(group), *(
            Cell(text) for name in other for text in (number(ratios[name]), f"{verdicts[name]} of {counts[name]}")
        )

    return Table(
        name="audit_intervals",
        caption="Widths of the pairwise intervals over those of the authors' resampling, which draws rows of all datasets "
        "together; mean over temperatures and baselines. Verdicts: intervals that exclude zero in one of both only.",
        stub="Group",
        groups=tuple(other),
        columns=("Width", "Verdicts"),
        sections=tuple(
            Section(model, tuple(row(group, part) for group, part in rows.groupby("group", sort=False)))
            for model, rows in data.groupby("model", sort=False)
        ),
        notes=("MT-Bench alone has two rows a conversation; Math, Code, Chat and Overall pool datasets of different means.",),
        data=data,
    )
