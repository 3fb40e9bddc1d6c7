"""All tables and figures of a study in one document.

    python -m dominotree.reporting.document --parts results/demo/{tables,figures}/*.tex --output results/demo/paper.pdf

needs pdflatex with booktabs and graphicx (Debian: texlive-latex-base, texlive-latex-recommended); without it, it says so.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from dominotree.errors import UserError, exit_on_user_error
from dominotree.files import atomic_write
from dominotree.provenance import DOCUMENT_SOURCES, source_digests
from dominotree.reporting.latex import escape
from dominotree.tracking.derived import (
    FIGURE_FILES,
    TABLE_FILES,
    add_tracking_options,
    made_artifact,
    made_artifacts,
    track_command,
)

NO_LATEX = (
    "no pdflatex on this machine: install one (Debian: texlive-latex-base texlive-latex-recommended) for a PDF of all tables"
)
PASSES = 2  # the second has the numbers of tables that the first counted


def has_latex() -> bool:
    return shutil.which("pdflatex") is not None


def to_document(title: str, parts: Sequence[Path]) -> str:
    """A document of the LaTeX files `parts`, each of which is a float; the figures' own files lie beside theirs."""
    folders = "".join(rf"{{{folder.resolve()}/}}" for folder in dict.fromkeys(part.parent for part in parts))
    lines = [
        r"\documentclass{article}",
        r"\usepackage[margin=0.75in]{geometry}",
        r"\usepackage{booktabs,graphicx}",
        r"\pdftrailerid{}",  # with the date below, the same PDF from the same parts
        rf"\graphicspath{{{folders}}}",
        r"\begin{document}",
        rf"\section*{{{escape(title)}}}",
        *map(_numbered, parts),
        r"\end{document}",
    ]
    return "\n".join(lines) + "\n"


def _numbered(part: Path) -> str:
    """A part, before a table with its number in the paper, `3` of table3 and `A.3` of tableA3, or its name if it has none."""
    text = part.read_text(encoding="utf-8")
    found = re.fullmatch(r"table([A-Z]?)(\d+)", part.stem)
    number = ".".join(filter(None, found.groups())) if found else part.stem
    return (rf"\renewcommand{{\thetable}}{{{escape(number)}}}" + "\n" if r"\begin{table" in text else "") + text


def compile_document(text: str, output: Path) -> None:
    """Write the PDF of a LaTeX document. Raises `UserError` with what LaTeX says if it does not compile."""
    with TemporaryDirectory() as folder:
        source = Path(folder, "paper.tex")
        source.write_text(text, encoding="utf-8")
        for _ in range(PASSES):
            command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", source.name]
            undated = os.environ | {"SOURCE_DATE_EPOCH": "0"}
            result = subprocess.run(command, cwd=folder, env=undated, capture_output=True, text=True, errors="replace")
            if result.returncode:
                fault = next((line for line in result.stdout.splitlines() if line.startswith("!")), "no error named")
                raise UserError(f"{output}: LaTeX fails: {fault.removeprefix('! ')}; make the tables again, and install booktabs")
        with atomic_write(output) as partial:
            shutil.copyfile(source.with_suffix(".pdf"), partial)


@exit_on_user_error
def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m dominotree.reporting.document", description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", type=Path, required=True, metavar="FILE", help="LaTeX files of tables and figures")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="the PDF to write")
    parser.add_argument("--title", default="Tables and figures", metavar="TEXT")
    add_tracking_options(parser)
    options = parser.parse_args(arguments)
    if not has_latex():
        raise UserError(NO_LATEX)
    with track_command(options, "document", {"sources": source_digests(DOCUMENT_SOURCES)}) as run:
        compile_document(to_document(options.title, options.parts), options.output)
        for kind, suffixes in (("table", TABLE_FILES), ("figure", FIGURE_FILES)):
            run.use(kind, made_artifacts(options.parts, options.study, suffixes))
        run.artifact(made_artifact("document", options.study), "document", [options.output])
    print(options.output)


if __name__ == "__main__":
    main()
