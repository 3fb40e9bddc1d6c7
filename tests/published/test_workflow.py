"""The study `published` in the workflow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dominotree.compose import load_study
from tests.published.conftest import ARCHIVE

ROOT = Path(__file__).parents[2]


def snakemake(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Snakemake on the study, with its results in `folder`."""
    command = [sys.executable, "-m", "snakemake", "--cores", "1", "--directory", str(folder), *arguments]
    return subprocess.run([*command, "--config", "study=published"], cwd=ROOT, capture_output=True, text=True, check=False)


def test_nothing_is_measured_for_it(tmp_path: Path) -> None:
    done = snakemake(tmp_path, "audit", "tables", "--dry-run")
    assert done.returncode == 0, done.stderr
    output = done.stdout + done.stderr
    for name in ("rule published_records:", "rule audit:", "results/published/tables/table2.tex", "results/published/audit.md"):
        assert name in output
    assert "rule measure" not in output
    for path in load_study("published").record_files("main"):
        assert str(path) in output


def test_a_table_that_its_records_cannot_make_is_refused(tmp_path: Path) -> None:
    done = snakemake(tmp_path, "table10", "--dry-run")
    assert done.returncode != 0
    assert "error: study published has no grid 'budgets'" in done.stderr


@pytest.mark.skipif(not ARCHIVE.is_file(), reason="needs ../shared/published")
def test_the_audit_ends_with_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOMINOTREE_PUBLISHED", str(ARCHIVE))
    monkeypatch.setenv("DOMINOTREE_CACHE", str(tmp_path / "cache"))
    done = snakemake(tmp_path, "audit")
    assert done.returncode == 0, done.stderr
    assert "2449 of 2449 cells reproduced" in done.stdout.splitlines()
    assert (tmp_path / "results/published/audit.md").is_file()
