"""All tables in one document."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from dominotree.errors import UserError
from dominotree.reporting import document
from dominotree.reporting.document import compile_document, main, to_document
from dominotree.reporting.tables.__main__ import TABLES, write_table
from tests.reporting.tables import examples

needs_latex = pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    """The LaTeX of every table, with the paper's numbers beside."""
    for name, make in TABLES.items():
        write_table(make(examples.source(name, beside_paper=True)), tmp_path / "tables" / name)
    return [tmp_path / "tables" / f"{name}.tex" for name in TABLES]


@needs_latex
def test_all_tables_compile_and_leave_nothing_but_the_document(parts: list[Path], tmp_path: Path) -> None:
    output = tmp_path / "out" / "paper.pdf"
    main(["--parts", *map(str, parts), "--output", str(output), "--title", "50% of a_b"])
    assert output.read_bytes().startswith(b"%PDF")
    assert os.listdir(output.parent) == ["paper.pdf"]


def test_a_table_has_the_papers_number_or_its_name(parts: list[Path]) -> None:
    text = to_document("x", parts)
    numbers = re.findall(r"\\renewcommand{\\thetable}{(.*)}", text)
    assert numbers == [
        *map(str, range(1, 14)),
        "15",
        "A.3",
        "latency",
        "calibration",
    ]
    assert text.count(r"\begin{table}") == len(TABLES)


def test_files_of_figures_are_found_beside_their_parts(tmp_path: Path) -> None:
    part = tmp_path / "figures" / "speedup.tex"
    part.parent.mkdir()
    part.write_text(r"\includegraphics{speedup}")
    text = to_document("x", [part])
    assert rf"\graphicspath{{{{{part.parent}/}}}}" in text and "thetable" not in text


@needs_latex
def test_a_document_that_does_not_compile_is_no_file(tmp_path: Path) -> None:
    output = tmp_path / "paper.pdf"
    with pytest.raises(UserError, match=r"paper.pdf: LaTeX fails: Undefined control sequence") as raised:
        compile_document(r"\documentclass{article}\begin{document}\nosuch\end{document}", output)
    assert "\n" not in str(raised.value) and not output.exists()


def test_without_latex_it_says_what_to_install(parts: list[Path], tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(document, "has_latex", lambda: False)
    with pytest.raises(SystemExit) as stop:
        main(["--parts", *map(str, parts), "--output", str(tmp_path / "paper.pdf")])
    assert stop.value.code == 2
    assert re.fullmatch("error: no pdflatex on this machine: install one .*texlive-latex-base.*\n", capsys.readouterr().err)
