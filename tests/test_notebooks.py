"""Every notebook runs from top to bottom on a small study, and says what to do where there is none."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from dominotree.errors import UserError
from dominotree.paths import record_file
from dominotree.records import write_records
from tests.published.examples import write_audit
from tests.synthetic import METADATA, study

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.py"))
GRIDS = {
    "main": {"ar": 1.0, "dflash": 1.4, "ddtree@8": 2.0, "caddtree": 2.1, "domino": 1.8, "dominotree@8": 2.4},
    "ladder": {"ar": 1.0, "marginal@8": 1.7, "static@8": 2.1, "dominotree@8": 2.4},
}
BINS = {
    "nodes_by_bin": [20, *[0] * 8, 10],
    "forecast_by_bin": [1.0, *[0.0] * 8, 9.0],
    "accepted_by_bin": [2, *[0] * 8, 6],
}


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo study and the published one, without a measurement behind them, in the folder where we are."""
    for grid, arms in GRIDS.items():
        records = study(arms, temperatures=(0.0, 1.0))
        drafted = records.method != "ar"
        records = records.assign(**{column: [bins if one else [] for one in drafted] for column, bins in BINS.items()})
        for place, rows in records.groupby(["dataset", "temperature", "arm"]):
            write_records(rows, tmp_path / "results/demo/records" / grid / record_file(*place), METADATA)
    write_audit(tmp_path / "results/published")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(notebook: Path, measured: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "agg")
    runpy.run_path(str(notebook), run_name="__main__")


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_says_what_to_run_first(notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="snakemake"):
        runpy.run_path(str(notebook), run_name="__main__")
