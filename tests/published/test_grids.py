"""The record files of the study `published`."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from dominotree.compose import load_study
from dominotree.published import grids as module
from dominotree.published.collections import AR, MODELS, as_records
from dominotree.published.grids import main, metadata, write_grids
from dominotree.records import read_metadata, read_records, validate
from tests.published.test_collections import rows

SMALL = MODELS[""]


def test_files_give_back_the_records_and_say_where_they_are_from(tmp_path: Path) -> None:
    frame = as_records(rows(), {"ar": AR}, SMALL, "harness")
    assert write_grids({"main": frame}, tmp_path) == 2
    files = sorted(tmp_path.rglob("*.parquet"))
    assert [str(path.relative_to(tmp_path)) for path in files] == ["main/gsm8k/t0/ar.parquet", "main/mt-bench/t0/ar.parquet"]
    pd.testing.assert_frame_equal(read_records(files), frame)
    assert read_metadata(files[0]) == metadata("qwen3-4b")


def test_the_command_writes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(module, "open_archive", lambda path: path)
    monkeypatch.setattr(module, "grids", lambda root: {"main": as_records(rows(), {"ar": AR}, SMALL, f"from {root}")})
    main(["--archive", "somewhere", "--output", str(tmp_path)])
    assert read_records(sorted(tmp_path.rglob("*.parquet"))).run.str.startswith("qwen3-4b from somewhere").all()
    assert capsys.readouterr().out == f"5 records in 2 files below {tmp_path}\n"


# --- the real ones -------------------------------------------------------------------------------------------------------


def test_the_study_says_which_records_there_are(records: dict[str, pd.DataFrame]) -> None:
    grids = load_study("published").grids
    assert grids.keys() == records.keys()
    for name, frame in records.items():
        places = frame[["dataset", "temperature", "arm"]].drop_duplicates().itertuples(index=False, name=None)
        assert set(places) == set(grids[name].places)


def test_every_record_is_in_the_schema(records: dict[str, pd.DataFrame]) -> None:
    assert {name: len(frame) for name, frame in records.items()} == {
        "main": 9030,
        "main_8b": 9030,
        "ladder": 1720,
        "bestladder": 1720,
        "sampled": 1200,
        "served": 2700,
        "served_8b": 800,
        "longcontext": 1000,
        "longcontext_8b": 1500,
    }
    for name, frame in records.items():
        pd.testing.assert_frame_equal(validate(frame, name), frame)
