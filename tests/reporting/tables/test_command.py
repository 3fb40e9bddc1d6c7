"""From record files to the files of a table."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pandas as pd
import pyarrow
import pyarrow.parquet
import pytest

from dominotree.config import TrackingConfig
from dominotree.errors import UserError
from dominotree.paths import record_file
from dominotree.records import write_records
from dominotree.reporting.notes import Setting
from dominotree.reporting.source import Source
from dominotree.reporting.tables import __main__ as command
from dominotree.reporting.tables.__main__ import main, make_table, write_table
from dominotree.reporting.tables.main_results import table2
from dominotree.tracking.derived import TABLE_FILES
from tests.faults import fill_disk
from tests.synthetic import HARDWARE, METADATA, study

ARMS = {"ar": 1.0, "ddtree@32": 2.3, "caddtree": 2.5, "domino": 2.0, "dominotree@32": 2.5}
RECORDS = study(ARMS, temperatures=(0.0, 1.0))
SETTING = Setting("float32", "Some CPU")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The records of a study, a file an arm."""
    folder = tmp_path / "records"
    for place, rows in RECORDS.groupby(["dataset", "temperature", "arm"]):
        write_records(rows, folder / record_file(*place), METADATA)
    return folder


def test_the_command_writes_four_files_and_prints_one(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = folder.parent / "tables" / "table2"
    main(["table2", "--records", str(folder), "--output", str(output)])
    assert sorted(os.listdir(output.parent)) == ["table2.csv", "table2.html", "table2.md", "table2.tex"]
    assert output.with_suffix(".md").read_text().strip() in capsys.readouterr().out
    pd.testing.assert_frame_equal(pd.read_csv(output.with_suffix(".csv")), table2(Source(RECORDS, SETTING)).data)


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["--arms", "domino@9"], "records: no records of arm domino@9"),
        (["--records", "nowhere"], "nowhere: no such file"),
    ],
)
def test_the_command_fails_in_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], fault: str
) -> None:
    output = folder.parent / "tables" / "table2"
    with pytest.raises(SystemExit) as stop:
        main(["table2", "--records", str(folder), "--output", str(output), *arguments])
    assert stop.value.code == 2
    assert re.fullmatch(f"error: .*{fault}.*\n", capsys.readouterr().err)
    assert not output.parent.exists()


def corrupt(path: Path, change: Callable[[pd.DataFrame], pd.DataFrame]) -> None:
    """Change a record file behind the back of `write_records`, which would refuse."""
    table = pyarrow.parquet.read_table(path)
    changed = pyarrow.Table.from_pandas(change(table.to_pandas()), preserve_index=False)
    pyarrow.parquet.write_table(changed.replace_schema_metadata(table.schema.metadata), path)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda rows: rows.drop(columns="tps"), r"code/t1/domino.parquet: column tps is missing"),
        (lambda rows: rows.assign(tps=rows.tps.where(rows.index != 2)), r"code/t1/domino.parquet: row 2: tps is not num_output"),
        (lambda rows: rows.iloc[[0, 1, 2, 3, 1]], r"code/t1/domino.parquet: row 4: a second record of one model, arm"),
        (lambda rows: rows.assign(run="another"), r"code at temperature 1: .*domino.* come from different runs"),
        (lambda rows: rows.iloc[:3], r"code, conversation code-03, turn 0: a record of only one of dominotree@32 and domino"),
        (lambda rows: rows.assign(arm="dominoes"), r"code/t1/domino.parquet is missing"),
    ],
    ids=["missing column", "no throughput", "duplicate", "different runs", "missing row", "other arm"],
)
def test_bad_records_are_one_line_with_file_and_row_and_no_table(
    folder: Path, capsys: pytest.CaptureFixture[str], change: Callable[[pd.DataFrame], pd.DataFrame], fault: str
) -> None:
    corrupt(folder / record_file("code", 1.0, "domino"), change)
    output = folder.parent / "tables" / "table2"
    with pytest.raises(SystemExit) as stop:
        main(["table2", "--records", str(folder), "--output", str(output)])
    assert stop.value.code == 2
    assert re.fullmatch(f"error: .*{fault}.*\n", capsys.readouterr().err)
    assert not output.parent.exists()


def test_the_command_logs_the_table_where_its_records_were_logged(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, logged = Mock(), []

    @contextmanager
    def track_run(*about: Any) -> Iterator[Mock]:
        logged.extend(about)
        yield run

    monkeypatch.setattr(command, "track_run", track_run)
    output = folder.parent / "table1"
    table = make_table("table1", [folder], output)
    assert logged[:5] == [TrackingConfig("disabled"), "demo", "table", "table1 demo", ["tiny", "Some CPU (2 cores, 2 threads)"]]
    run.table.assert_called_once_with("table1", table.data)
    run.use.assert_called_once_with("records", {})
    run.artifact.assert_called_once_with("table1-demo", "table", [output.with_suffix(end) for end in TABLE_FILES])


def test_a_missing_file_is_named(folder: Path) -> None:
    (folder / "code" / "t1" / "domino.parquet").unlink()
    with pytest.raises(UserError, match=r"table2 from .*records: code/t1/domino.parquet is missing"):
        make_table("table2", [folder], folder.parent / "table2")


def test_files_of_two_machines_are_refused(folder: Path) -> None:
    rows = RECORDS[(RECORDS.dataset == "math") & (RECORDS.arm == "ar") & (RECORDS.temperature == 0)]
    write_records(rows, folder / record_file("math", 0, "ar"), METADATA | {"hardware": HARDWARE | {"cores": 8}})
    with pytest.raises(UserError, match=r"chat/t0/ar.parquet and .*math/t0/ar.parquet differ in dtype or hardware"):
        make_table("table2", [folder], folder.parent / "table2")


def test_a_failure_on_the_way_leaves_all_old_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "table2"
    for suffix in TABLE_FILES:
        output.with_suffix(suffix).write_text("old")
    fill_disk(monkeypatch)
    with pytest.raises(UserError, match="No space left on device"):
        write_table(table2(Source(RECORDS, SETTING)), output)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {f"table2{s}": "old" for s in TABLE_FILES}
