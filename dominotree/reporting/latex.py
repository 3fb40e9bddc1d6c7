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
        "Δ": r"$\Delta$",
        "τ": r"$\tau$",
    }
)


def escape(text: str) -> str:
    """`text` with the characters that mean something to LaTeX, or that its fonts lack, spelt out."""
    return text.translate(SPECIAL)


def to_latex(table: Table) -> str:
    """A `table` environment; its document needs `booktabs`."""
    width = len(table.columns)
    ends = [1 + width * count for count in range(1, len(table.groups) + 1)]
    groups = [rf"\multicolumn{{{width}}}{{c}}{{{escape(group)}}}" for group in table.groups]
    rules = [rf"\cmidrule(lr){{{end - width + 1}-{end}}}" for end in ends]
    sections = [[_title(section.title, ends[-1]), *map(_row, section.rows)] for section in table.sections]
    lines = [
        r"\begin{table}",
        r"\centering",
        r"\small",
        rf"\caption{{{escape(table.caption)}}}",
        rf"\label{{tab:{table.name}}}",
        rf"\begin{{tabular}}{{l{'r' * (ends[-1] - 1)}}}",
        r"\toprule",
        _joined(["", *groups]),
        " ".join(rules),
        _joined(map(escape, [table.stub, *table.columns * len(table.groups)])),
        r"\midrule",
        "\n\\midrule\n".join(map("\n".join, sections)),
        r"\bottomrule",
        r"\end{tabular}",
        *(rf"\par\smallskip\footnotesize {escape(note)}" for note in table.notes),
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _joined(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


def _title(text: str, columns: int) -> str:
    return _joined([rf"\multicolumn{{{columns}}}{{l}}{{\textit{{{escape(text)}}}}}"])


def _row(cells: tuple[Cell, ...]) -> str:
    return _joined(rf"\textbf{{{escape(cell.text)}}}" if cell.bold else escape(cell.text) for cell in cells)
