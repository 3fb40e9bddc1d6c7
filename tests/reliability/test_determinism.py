"""The same thing twice."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dominotree.paths import record_file
from dominotree.records import write_records
from dominotree.reporting.document import compile_document, has_latex, to_document
from dominotree.reporting.figures.__main__ import make_figure
from dominotree.reporting.tables.__main__ import make_table
from dominotree.tracking.derived import FIGURE_FILES, TABLE_FILES
from tests.reliability.conftest import Run
from tests.synthetic import METADATA, study

TIMED = ["prefill_s", "decode_s", "share_s", "tps", "draft_ms", "build_ms", "verify_ms", "commit_ms"]
SHOWN = (("table1", "table2"), ("speedup", "stages"))
ARMS = {"ar": 1.0, "dflash": 1.4, "ddtree@32": 2.3, "caddtree": 2.5, "domino": 2.0, "dominotree@32": 2.7}


def untimed(run: Run, folder: Path) -> Path:
    """The run's records with the same times everywhere, in `folder`."""
    records = run.records()
    records[TIMED] = 1.0
    records["decode_s"] = records.num_output.astype(float)
    records["tps"] = records.tps.where(records.num_output > 0)
    for arm, rows in records.groupby("arm", sort=False):
        write_records(rows, folder / record_file("math", 0, arm), METADATA)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_the_same_run_twice(small_run: Run, tmp_path: Path) -> None:
    """A run is measured twice on a CPU, with the same profiled costs.
    Outputs, accepted tokens, trees and forecasts are the same, and tables byte for byte once times are set aside.
    """
    found = []
    for turn in ("first", "second"):
        small_run.complete()
        records = untimed(small_run, tmp_path / turn / "records")
        make_table("table1", [records], tmp_path / turn / "table1")
        found.append((small_run.records().drop(columns=TIMED), contents(tmp_path / turn)))
        shutil.rmtree(small_run.config.folder)
    (first, table), (second, again) = found
    assert first.equals(second) and first.tree_nodes.nunique() > 2
    assert table.keys() == again.keys() and {name for name in table if table[name] != again[name]} == set()


def show(records: Path, output: Path) -> None:
    """Tables and figures from records."""
    tables, figures = SHOWN
    for table in tables:
        make_table(table, [records], output / table)
    for figure in figures:
        make_figure(figure, [records], output / figure)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shown")
    for place, rows in study(ARMS).groupby(["dataset", "temperature", "arm"]):
        write_records(rows, folder / "records" / record_file(*place), METADATA)
    show(folder / "records", folder / "first")
    return folder


def test_tables_and_figures_twice(shown: Path) -> None:
    """Tables and figures are made twice from the same records, in two processes with other hash seeds and time zones.
    LaTeX, CSV, Markdown, HTML, PDF and PNG are the same, byte for byte.
    """
    places = f"Path({str(shown / 'records')!r}), Path({str(shown / 'second')!r})"
    code = f"from tests.reliability.test_determinism import *; show({places})"
    environment = os.environ | {"PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo"}
    subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], env=environment, check=True)
    first, second = contents(shown / "first"), contents(shown / "second")
    assert len(first) == 2 * len(TABLE_FILES) + 2 * len(FIGURE_FILES) and first.keys() == second.keys()
    assert {name for name in first if first[name] != second[name]} == set()


@pytest.mark.skipif(not has_latex(), reason="no pdflatex on this machine")
def test_the_document_twice(shown: Path, tmp_path: Path) -> None:
    """The document of all tables and figures is made twice.
    The PDF is the same, byte for byte.
    """
    parts = sorted((shown / "first").glob("*.tex"))
    for name in ("first.pdf", "second.pdf"):
        compile_document(to_document("Tables", parts), tmp_path / name)
    assert (tmp_path / "first.pdf").read_bytes() == (tmp_path / "second.pdf").read_bytes()
