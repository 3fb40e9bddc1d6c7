"""The tables, by name: which records each reads. Needs neither pandas nor torch, for the workflow."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Reads:
    """grid: the purpose of the grids whose records a table reads. methods: those that it cannot do without, without budgets."""

    grid: str
    methods: tuple[str, ...]


TABLES = {
    "table1": Reads("main", ("ar",)),
    "table2": Reads("main", ("dominotree", "domino", "ddtree", "caddtree")),
}
