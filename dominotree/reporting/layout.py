"""The one shape that all tables have, and its Markdown.

A table has a stub column and groups of columns, each group with the same columns; its rows come in sections, each under a title.
Texts are plain Unicode: what a writer must escape or translate is the writer's business.
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd


@dataclass(frozen=True)
class Cell:
    text: str
    bold: bool = False


@dataclass(frozen=True)
class Section:
    """Rows under one title; in a row the first cell is the stub, then come the groups' cells from left to right."""

    title: str
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True)
class Table:
    """`notes` are sentences under the table; `data` holds the numbers unrounded, for CSV."""

    name: str
    caption: str
    stub: str
    groups: tuple[str, ...]
    columns: tuple[str, ...]
    sections: tuple[Section, ...]
    notes: tuple[str, ...]
    data: pd.DataFrame


def number(value: float, digits: int = 2) -> str:
    """A number as a table prints it, with a true minus sign."""
    return f"{value:.{digits}f}".replace("-", "\N{MINUS SIGN}")


def to_markdown(table: Table) -> str:
    """A pipe table, padded to be read as it is; the titles of sections are rows of their own."""
    header = [table.stub, *(f"{group}: {column}" for group in table.groups for column in table.columns)]
    rows = [header]
    for section in table.sections:
        rows.append([f"*{section.title}*"] + [""] * (len(header) - 1))
        rows += [[f"**{cell.text}**" if cell.bold else cell.text for cell in row] for row in section.rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    first, *lines = [_line(row, widths) for row in rows]
    rule = f"|:{'-' * (widths[0] + 1)}|{'|'.join('-' * (width + 1) + ':' for width in widths[1:])}|"
    return "\n\n".join([table.caption, "\n".join([first, rule, *lines]), *table.notes]) + "\n"


def _line(cells: list[str], widths: list[int]) -> str:
    first, *others = zip(cells, widths, strict=True)
    return f"| {' | '.join([first[0].ljust(first[1]), *(text.rjust(width) for text, width in others)])} |"
