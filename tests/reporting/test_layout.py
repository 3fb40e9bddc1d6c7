"""Tables as Markdown and LaTeX."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest

from dominotree.reporting.latex import escape, to_latex
from dominotree.reporting.layout import Cell, Section, Table, number, to_markdown
from dominotree.reporting.notes import Setting
from dominotree.reporting.source import Source
from dominotree.reporting.tables.main_results import table1, table2
from tests.synthetic import study

TABLE = Table(
    name="small",
    caption="Change Δ%",
    stub="Kind",
    groups=("A_1", "B"),
    columns=("Δ%", "τ"),
    sections=(
        Section("T = 0", ((Cell("x & y"), Cell("1"), Cell("2", bold=True), Cell(number(-3)), Cell("4")),)),
        Section("T = 1", ((Cell("z"), Cell("5"), Cell("6"), Cell("7"), Cell("8")),)),
    ),
    notes=("50% of it.",),
    data=pd.DataFrame(),
)


def test_numbers_have_a_true_minus_sign() -> None:
    assert [number(1.005, 1), number(-3.14159)] == ["1.0", "\N{MINUS SIGN}3.14"]


def test_markdown() -> None:
    assert to_markdown(TABLE) == (
        "Change Δ%\n"
        "\n"
        "| Kind    | A_1: Δ% | A_1: τ | B: Δ% | B: τ |\n"
        "|:--------|--------:|-------:|------:|-----:|\n"
        "| *T = 0* |         |        |       |      |\n"
        "| x & y   |       1 |  **2** | \N{MINUS SIGN}3.00 |    4 |\n"
        "| *T = 1* |         |        |       |      |\n"
        "| z       |       5 |      6 |     7 |    8 |\n"
        "\n"
        "50% of it.\n"
    )


def test_latex() -> None:
    assert to_latex(TABLE).splitlines() == [
        r"\begin{table}[htbp]",
        r"\centering",
        r"\small",
        r"\caption{Change $\Delta$\%}",
        r"\label{tab:small}\par\smallskip",
        r"\sbox0{\begin{tabular}{lrrrr}",
        r"\toprule",
        r" & \multicolumn{2}{c}{A\_1} & \multicolumn{2}{c}{B} \\",
        r"\cmidrule(lr){2-3} \cmidrule(lr){4-5}",
        r"Kind & $\Delta$\% & $\tau$ & $\Delta$\% & $\tau$ \\",
        r"\midrule",
        r"\multicolumn{5}{l}{\textit{T = 0}} \\",
        r"x \& y & 1 & \textbf{2} & $-$3.00 & 4 \\",
        r"\midrule",
        r"\multicolumn{5}{l}{\textit{T = 1}} \\",
        r"z & 5 & 6 & 7 & 8 \\",
        r"\bottomrule",
        r"\end{tabular}}",
        r"\ifdim\wd0>\linewidth\resizebox{\linewidth}{!}{\usebox0}\else\usebox0\fi",
        r"\par\smallskip\footnotesize 50\% of it.",
        r"\end{table}",
    ]


def test_every_character_of_latex_is_escaped() -> None:
    assert escape(r"#$%&_{}~^\\"[:-1]) == (r"\#\$\%\&\_\{\}\textasciitilde{}\textasciicircum{}\textbackslash{}")


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_latex_compiles(tmp_path: Path) -> None:
    records = study({"ar": 1.0, "ddtree@32": 2.3, "caddtree": 2.5, "domino": 2.0, "dominotree@32": 2.5})
    setting = Setting("bfloat16", r"50% of a #1 CPU_&_GPU\{}~^$")
    tables = "\n".join(to_latex(table) for table in (TABLE, table1(Source(records, setting)), table2(Source(records, setting))))
    document = rf"\documentclass{{article}}\usepackage{{booktabs,graphicx}}\begin{{document}}{tables}\end{{document}}"
    (tmp_path / "tables.tex").write_text(document, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "tables.tex"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout[-2000:]
