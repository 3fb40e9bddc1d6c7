"""The one shape that all tables have, and its Markdown.

A table has a stub column and columns, which may come in groups, each group with the same columns; its rows come in sections, each
under a title. Texts are plain Unicode: what a writer must escape or translate is the writer's business.
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

NOTHING = "\N{EN DASH}"
"""What a cell holds where there is nothing to measure."""


@dataclass(frozen=True)
class Cell:
    """beside: what the paper printed in its place, if that is to be shown."""

    text: str
    bold: bool = False
    beside: str = ""


@dataclass(frozen=True)
class Section:
    """Rows under one title; in a row the first cell is the stub, then come the columns' cells from left to right."""

    title: str
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True)
class Table:
    """groups: empty where columns have none. notes: sentences under the table. data: the numbers, unrounded, for CSV."""

    name: str
    caption: str
    stub: str
    groups: tuple[str, ...]
    columns: tuple[str, ...]
    sections: tuple[Section, ...]
    notes: tuple[str, ...]
    data: pd.DataFrame


def number(value: float, digits: int = 2) -> str:
    """A number as a table prints it, with a true minus sign; NaN as nothing."""
    return NOTHING if pd.isna(value) else f"{value:.{digits}f}".replace("-", "\N{MINUS SIGN}")


def measured(value: float, digits: int = 2, bold: bool = False, printed: float = float("nan")) -> Cell:
    """The cell of a number, with the paper's unless that is NaN."""
    return Cell(number(value, digits), bold, "" if pd.isna(printed) else number(printed, digits))


def interval(low: float, high: float, bold: bool = False, printed: tuple[float, float] = (float("nan"), float("nan"))) -> Cell:
    """The cell of an interval, with the paper's unless that is NaN."""

    def text(ends: tuple[float, float]) -> str:
        return f"[{number(ends[0])}, {number(ends[1])}]"

    return Cell(NOTHING if pd.isna(low) else text((low, high)), bold, "" if pd.isna(printed[0]) else text(printed))


def to_markdown(table: Table) -> str:
    """A pipe table, padded to be read as it is; the titles of sections are rows of their own."""
    header = [table.stub, *(f"{group}: {column}" for group in table.groups for column in table.columns)]
    rows = [header if table.groups else [table.stub, *table.columns]]
    for section in table.sections:
        rows.append([f"*{section.title}*"] + [""] * (len(rows[0]) - 1))
        rows += [list(map(_markdown, row)) for row in section.rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    first, *lines = [_line(row, widths) for row in rows]
    rule = f"|:{'-' * (widths[0] + 1)}|{'|'.join('-' * (width + 1) + ':' for width in widths[1:])}|"
    return "\n\n".join([table.caption, "\n".join([first, rule, *lines]), *table.notes]) + "\n"


def _markdown(cell: Cell) -> str:
    return (f"**{cell.text}**" if cell.bold else cell.text) + (f" ({cell.beside})" if cell.beside else "")


def _line(cells: list[str], widths: list[int]) -> str:
    first, *others = zip(cells, widths, strict=True)
    return f"| {' | '.join([first[0].ljust(first[1]), *(text.rjust(width) for text, width in others)])} |"
