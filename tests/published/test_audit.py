"""The audit as a command: its tables, its last line, its exit status."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from dominotree.published import audit as module
from dominotree.published.anomalies import anomaly_table
from dominotree.published.audit import main
from dominotree.published.cells import exact
from dominotree.published.report import interval_table, summary
from dominotree.reporting.latex import to_latex
from dominotree.reporting.layout import to_markdown
from tests.published.examples import audit_frames

TABLES = ("audit", "audit_intervals", "published_anomalies")


def test_all_of_it_is_reproduced(
    results: Path,
    records: dict[str, pd.DataFrame],
    cells: pd.DataFrame,
    found: pd.DataFrame,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What is recomputed is recomputed once for all tests; in test_workflow the command does all of it."""
    monkeypatch.setattr(module, "grids", lambda root: records)
    monkeypatch.setattr(module, "all_cells", lambda root, records: cells)
    monkeypatch.setattr(module, "anomalies", lambda root: found)
    with pytest.raises(SystemExit) as stopped:
        main(["--archive", str(results), "--output", str(tmp_path)])
    assert stopped.value.code == 0
    assert capsys.readouterr().out.splitlines()[-1] == "2449 of 2449 cells reproduced"
    files = {f"{name}{suffix}" for name in TABLES for suffix in (".tex", ".csv", ".md", ".html")}
    assert {path.name for path in tmp_path.iterdir()} == files | {"audit_cells.csv"}
    assert pd.read_csv(tmp_path / "audit.csv").cells.sum() == len(pd.read_csv(tmp_path / "audit_cells.csv")) == 2449


def test_what_is_off_is_listed_with_both_values_and_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    frames = audit_frames()
    wrong = exact("table1_cells.csv", "gsm8k, T=0, AR", "tps", 2.5, 2.0)
    cells = pd.concat([frames["audit_cells.csv"], pd.DataFrame([vars(wrong) | {"reproduced": wrong.reproduced}])])
    monkeypatch.setattr(module, "open_archive", lambda path: tmp_path)
    monkeypatch.setattr(module, "grids", lambda root: {})
    monkeypatch.setattr(module, "all_cells", lambda root, records: cells)
    monkeypatch.setattr(module, "intervals", lambda records: frames["audit_intervals.csv"])
    monkeypatch.setattr(module, "anomalies", lambda root: frames["published_anomalies.csv"])
    with pytest.raises(SystemExit) as stopped:
        main(["--output", str(tmp_path)])
    assert stopped.value.code == 1
    *_, off, last = capsys.readouterr().out.splitlines()
    assert off == "off: table1_cells.csv: gsm8k, T=0, AR: tps: published 2.5, recomputed 2.0"
    assert last == "2 of 3 cells reproduced"


def test_the_summary_counts_by_source_and_quantity() -> None:
    [first, second] = summary(audit_frames()["audit_cells.csv"]).data.to_dict("records")
    assert (first["cells"], first["reproduced"], first["used"]) == (1, 1, 0.0)
    assert second["used"] == pytest.approx(0.2)


def test_the_tables_can_be_written() -> None:
    frames = audit_frames()
    for table in (
        summary(frames["audit_cells.csv"]),
        interval_table(frames["audit_intervals.csv"]),
        anomaly_table(frames["published_anomalies.csv"]),
    ):
        assert to_markdown(table).count("\n") > 4
        assert "\\bottomrule" in to_latex(table)


def test_widths_are_relative_to_the_authors_way() -> None:
    data = audit_frames()["audit_intervals.csv"]
    theirs = data[data.resampling == "authors"]
    assert theirs.ratio.eq(1).all()
    assert not theirs.other_verdict.any()
    single = data[data.group.isin(["GSM8K", "AIME25"]) & (data.resampling == "Conversations within datasets")]
    assert single.ratio.between(0.8, 1.2).all()  # three conversations of one turn: rows are what is drawn
