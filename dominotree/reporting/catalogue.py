"""The tables, by name: which grid of a study each reads, and which arms it needs. The workflow asks before any job."""

from __future__ import annotations

from dataclasses import dataclass

from dominotree.config import Study
from dominotree.errors import UserError
from dominotree.reporting.names import kind_of


@dataclass(frozen=True)
class Reads:
    """grid: the purpose of the grids whose records a table reads. kinds: of arms that it needs, whatever their budgets."""

    grid: str
    kinds: tuple[str, ...]


TABLES = {
    "table1": Reads("main", ("ar",)),
    "table2": Reads("main", ("dominotree", "domino", "ddtree", "caddtree")),
    "table3": Reads("builders", ("dominotree", "dominotree+heap")),
    "table4": Reads("builders", ("domino", "dominotree", "dominotree+heap")),
    "table5": Reads("served", ("ar",)),
    "table6": Reads("served", ("dominotree", "domino")),
    "table7": Reads("load", ("domino",)),
    "table8": Reads("longcontext", ("ar",)),
    "table9": Reads("contextbudgets", ("dominotree",)),
    "table10": Reads("budgets", ("domino", "dominotree")),
    "table11": Reads("widths", ("domino", "dominotree+full")),
    "table12": Reads("widths", ("dominotree+full",)),
    "table13": Reads("sampled", ("domino", "domino+sampled", "dominotree", "dominotree+sampled")),
    "table15": Reads("ladder", ("marginal", "static", "dominotree")),
    "tableA3": Reads("adaptive", ("dominotree", "adaptive")),
    "latency": Reads("latency", ()),
    "calibration": Reads("normaliser", ("dominotree", "dominotree+tail")),
}


def check_arms(table: str, study: Study) -> None:
    """Raise `UserError` if the study lacks the grid that a table reads, or a grid lacks an arm that it needs."""
    for name in study.grids_for(TABLES[table].grid):
        for kind in _missing(table, study, name):
            where = f"grid {name} of study {study.name}"
            raise UserError(f"{table} needs an arm of {kind}, and {where} has only {', '.join(study.grids[name].arms)}")


def _missing(table: str, study: Study, grid: str) -> list[str]:
    """Kinds of arms that a table needs and a grid does not have."""
    kinds = set(map(kind_of, study.grids[grid].arms))
    return [kind for kind in TABLES[table].kinds if kind not in kinds]


def tables_of(study: Study) -> list[str]:
    """The tables for which a study has a grid, and every such grid the arms."""
    grids = {table: [name for name in study.grids if name.partition("_")[0] == needs.grid] for table, needs in TABLES.items()}
    return [table for table, names in grids.items() if names and not any(_missing(table, study, name) for name in names)]
