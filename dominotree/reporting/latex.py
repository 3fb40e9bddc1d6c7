"""Tables in LaTeX, with the rules of `booktabs` and no vertical ones."""

from __future__ import annotations

from collections.abc import Iterable

from dominotree.reporting.layout import Cell, Table

SPECIAL = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "{": r"\{",
        "}": r"\}",
        "&": r"\&",
        "%": r"\%",
        "$": r"\$",
        "#": r"\#",
        "_": r"\_",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "\N{MINUS SIGN}": r"$-$",
        "\N{EN DASH}": "--",
        "\N{DIVISION SIGN}": r"$\div$",
        "Δ": r"$\Delta$",
        "τ": r"$\tau$",
    }
)


def escape(text: str) -> str:
    """`text` with the characters that mean something to LaTeX, or that its fonts lack, spelt out."""
    return text.translate(SPECIAL)


def to_latex(table: Table) -> str:
    """A `table` environment, made narrower where it is wider than the text; its document needs `booktabs` and `graphicx`."""
    width = len(table.columns) * max(1, len(table.groups))
    sections = [[_title(section.title, 1 + width), *map(_row, section.rows)] for section in table.sections]
    lines = [
        r"\begin{table}[htbp]",
        r"\centering",
        r"\small",
        rf"\caption{{{escape(table.caption)}}}",
        rf"\label{{tab:{table.name}}}\par\smallskip",
        rf"\sbox0{{\begin{{tabular}}{{l{'r' * width}}}",
        r"\toprule",
        *_groups(table),
        _joined(map(escape, [table.stub, *table.columns * max(1, len(table.groups))])),
        r"\midrule",
        "\n\\midrule\n".join(map("\n".join, sections)),
        r"\bottomrule",
        r"\end{tabular}}",
        r"\ifdim\wd0>\linewidth\resizebox{\linewidth}{!}{\usebox0}\else\usebox0\fi",
        *(rf"\par\smallskip\footnotesize {escape(note)}" for note in table.notes),
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _groups(table: Table) -> list[str]:
    """The line of groups and the rules under it."""
    if not table.groups:
        return []
    width = len(table.columns)
    ends = [1 + width * count for count in range(1, len(table.groups) + 1)]
    titles = [rf"\multicolumn{{{width}}}{{c}}{{{escape(group)}}}" for group in table.groups]
    return [_joined(["", *titles]), " ".join(rf"\cmidrule(lr){{{end - width + 1}-{end}}}" for end in ends)]


def _joined(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


def _title(text: str, columns: int) -> str:
    return _joined([rf"\multicolumn{{{columns}}}{{l}}{{\textit{{{escape(text)}}}}}"])


def _row(cells: tuple[Cell, ...]) -> str:
    return _joined(map(_cell, cells))


def _cell(cell: Cell) -> str:
    text = rf"\textbf{{{escape(cell.text)}}}" if cell.bold else escape(cell.text)
    return f"{text} ({escape(cell.beside)})" if cell.beside else text
