"""The schema of records and their Parquet files."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest

from dominotree.errors import UserError
from dominotree.paths import record_file
from dominotree.records import read_metadata, read_records, validate, write_records
from tests.synthetic import METADATA, record, study

FRAME = study({"ar": 1.0, "ddtree@32": 2.0}, temperatures=(0.0, 1.0))


def test_a_file_gives_back_records_and_metadata(tmp_path: Path) -> None:
    path = tmp_path / record_file("math", 0.5, "ddtree@32")
    write_records(FRAME, path, METADATA)
    pd.testing.assert_frame_equal(read_records([path]), FRAME)
    assert read_metadata(path) == METADATA
    assert os.listdir(path.parent) == ["ddtree@32.parquet"]


def test_files_are_joined_in_their_order(tmp_path: Path) -> None:
    paths = []
    for arm, rows in FRAME.groupby("arm"):
        paths.append(tmp_path / f"{arm}.parquet")
        write_records(rows, paths[-1], METADATA)
    assert read_records(paths).arm.drop_duplicates().tolist() == ["ar", "ddtree@32"]
    assert len(read_records(paths)) == len(FRAME)


def test_a_turn_without_output_is_a_record() -> None:
    frame = validate(pd.DataFrame([record(num_output=0)]), "here")
    assert frame.rounds.tolist() == [0]
    assert frame[["tps", "tau"]].isna().all(axis=None)


def test_values_without_a_type_get_one() -> None:
    frame = validate(pd.DataFrame([record(divergence=None, margin=None)]), "here")
    assert str(frame.budget.dtype) == str(frame.divergence.dtype) == "Int64"
    assert frame.margin.dtype == float


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"tps": np.nan}, "row 1: tps is not num_output / decode_s"),
        ({"tps": 25.0}, "row 1: tps is not num_output / decode_s"),
        ({"tps": np.inf}, "column tps, row 1: inf"),
        ({"tau": 2.0}, "row 1: tau is not num_output / rounds"),
        ({"decode_s": np.nan}, "column decode_s, row 1: nan"),
        ({"accept_hist": [0, 11]}, "row 1: accept_hist does not add up to rounds"),
        ({"accept_hist": [1, 11]}, "row 1: accept_hist does not add up to num_output"),
        ({"accept_hist": "12"}, "column accept_hist, row 1: 12 fails list of whole numbers"),
        ({"output_ids": [1.5]}, r"column output_ids, row 1: \[1.5\] fails list of whole numbers"),
        ({"turn": -1}, "column turn, row 1: -1"),
        ({"turn": 0.5}, "column turn"),
        ({"family": "poems"}, "column family, row 1: poems"),
        ({"stop_reason": "tired"}, "column stop_reason, row 1: tired"),
        ({"model": None}, "column model, row 1"),
        ({"budget": 0}, "column budget, row 1: 0"),
        ({"divergence": -2}, "column divergence, row 1: -2"),
        ({"turn": 0}, "row 1: a second record of one model, arm, dataset, temperature, concurrency, conversation, turn"),
        ({"mood": "good"}, "column mood is not one of a record's"),
    ],
)
def test_a_fault_is_named_with_its_row_and_column(changes: dict[str, object], fault: str) -> None:
    with pytest.raises(UserError, match=f"^here: {fault}.*; delete the file and measure again$"):
        validate(pd.DataFrame([record(), record(**{"turn": 1} | changes)]), "here")


LACKING = dict.fromkeys(
    ["prompt_sha", "seed", "num_input", "num_output", "stop_reason", "rounds", "accept_hist", "output_sha", "output_ids"]
)


def test_published_records_may_lack_what_was_not_published(tmp_path: Path) -> None:
    rows = [record(study="published", turn=turn) for turn in range(3)]
    rows[0] |= LACKING | {"decode_s": np.nan}  # speed and tau alone
    rows[1] |= {"decode_s": np.nan, "tps": np.nan}  # not timed
    rows[2] |= {"tau": 3.1}  # counts tokens after the end
    frame = validate(pd.DataFrame(rows), "here")
    assert frame.num_output.isna().tolist() == [True, False, False]
    write_records(frame, tmp_path / "arm.parquet", METADATA)
    pd.testing.assert_frame_equal(read_records([tmp_path / "arm.parquet"]), frame)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"tps": 25.0}, "row 1: tps is not num_output / decode_s"),
        ({"tps": np.nan}, "row 1: tps is not num_output / decode_s"),
        ({"rounds": None}, "row 1: accept_hist does not add up to rounds"),
        ({"accept_hist": [1]}, "row 1: accept_hist does not add up to rounds"),
        ({"num_input": 1.5}, "column num_input"),
        ({"tau": 0.5}, "column tau, row 1: 0.5"),
        ({"study": "demo", "seed": None}, "column seed"),
        ({"turn": 0}, "row 1: a second record of one model, arm"),
    ],
)
def test_what_published_records_hold_must_agree(changes: dict[str, object], fault: str) -> None:
    rows = [record(study="published"), record(**{"study": "published", "turn": 1} | changes)]
    with pytest.raises(UserError, match=f"^here: {fault}"):
        validate(pd.DataFrame(rows), "here")


def test_a_fault_in_one_of_several_files_is_named(tmp_path: Path) -> None:
    for name, rows in {"good": FRAME[:2], "bad": FRAME[2:4]}.items():
        write_records(rows, tmp_path / f"{name}.parquet", METADATA)
    bad = pd.read_parquet(tmp_path / "bad.parquet").assign(decode_s=1.0)
    table = pyarrow.Table.from_pandas(bad).replace_schema_metadata(pyarrow.parquet.read_schema(tmp_path / "bad.parquet").metadata)
    pyarrow.parquet.write_table(table, tmp_path / "bad.parquet")
    with pytest.raises(UserError, match=r"bad.parquet: row 0: tps is not num_output / decode_s"):
        read_records([tmp_path / "good.parquet", tmp_path / "bad.parquet"])


def test_a_missing_column_is_named() -> None:
    with pytest.raises(UserError, match=r"^here: column tps is missing"):
        validate(FRAME.drop(columns="tps"), "here")


def test_invalid_records_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"arm.parquet: column tps is missing"):
        write_records(FRAME.drop(columns="tps"), tmp_path / "arm.parquet", METADATA)
    assert not os.listdir(tmp_path)


def test_a_record_in_two_files_is_refused_with_both_names(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("first.parquet", "second.parquet")]
    for path in paths:
        write_records(FRAME[:1], path, METADATA)
    with pytest.raises(UserError, match=r"first.parquet and .*second.parquet hold the same records"):
        read_records(paths)


def test_a_truncated_file_is_refused_wherever_it_was_cut(tmp_path: Path) -> None:
    path = tmp_path / "arm.parquet"
    write_records(FRAME, path, METADATA)
    whole = path.read_bytes()
    for length in [0, 1, len(whole) // 2, len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(UserError, match=r"arm.parquet: not a readable Parquet file"):
            read_records([path])


def test_a_damaged_page_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "arm.parquet"
    write_records(FRAME, path, METADATA)
    whole = path.read_bytes()
    path.write_bytes(whole[:4] + bytes(len(whole) // 2) + whole[4 + len(whole) // 2 :])
    with pytest.raises(UserError, match=r"arm.parquet: not a readable Parquet file"):
        read_records([path])


def test_a_foreign_parquet_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.parquet"
    pd.DataFrame({"a": [1]}).to_parquet(path)
    with pytest.raises(UserError, match=r"other.parquet: not a record file of dominotree"):
        read_records([path])


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"arm.parquet: no such file"):
        read_records([tmp_path / "arm.parquet"])
