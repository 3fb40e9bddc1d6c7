"""Which records and arms a table or figure is made from."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from dominotree.errors import UserError
from dominotree.paths import record_file
from dominotree.records import write_records
from dominotree.reporting.source import arms_of, complete, only_arm, read_source, record_files, select_arms
from tests.synthetic import CONFIG, METADATA, study

ARMS = {"ar": 1.0, "ddtree@32": 2.3, "caddtree": 2.5, "domino": 2.0, "dominotree@32": 2.5}
RECORDS = study(ARMS, temperatures=(0.0, 1.0))


def test_a_chosen_arm_leaves_out_the_others_of_its_method() -> None:
    records = study(ARMS | {"dominotree@16": 2.4, "dominotree@64": 2.3})
    chosen = select_arms(records, ["dominotree@16", "domino"])
    assert set(chosen.arm) == {*ARMS, "dominotree@16"} - {"dominotree@32"}
    pd.testing.assert_frame_equal(select_arms(records, []), records)


def test_a_chosen_arm_that_is_not_there_is_refused() -> None:
    with pytest.raises(UserError, match="no records of arm ddtree@31; the arms are ar, ddtree@32, caddtree"):
        select_arms(RECORDS, ["ddtree@31"])


def test_arms_of_a_kind_are_those_of_all_budgets_without_its_variants() -> None:
    records = study({"domino": 1.0, "dominotree@16": 2.0, "dominotree@8": 2.0, "dominotree@8+heap": 1.5})
    assert arms_of(records, "dominotree") == ["dominotree@8", "dominotree@16"]
    assert arms_of(records, "domino", "dominotree+heap") == ["domino", "dominotree@8+heap"]
    assert only_arm(records, "dominotree+heap") == "dominotree@8+heap"
    with pytest.raises(UserError, match="several arms of dominotree: dominotree@8, dominotree@16; name the one to take"):
        only_arm(records, "dominotree")
    with pytest.raises(UserError, match=r"no arm of dominotree\+tail, which the table needs, only domino, dominotree@8"):
        arms_of(records, "domino", "dominotree+tail")


def test_an_arm_missing_somewhere_is_named_by_its_file() -> None:
    somewhere = (RECORDS.arm == "domino") & (RECORDS.dataset == "code") & (RECORDS.temperature == 1)
    with pytest.raises(UserError, match=r"^code/t1/domino.parquet is missing; measure the study to its end$"):
        complete(RECORDS[~somewhere], ["ar", "domino"])
    assert set(complete(RECORDS[~somewhere], ["ar", "caddtree"]).arm) == {"ar", "caddtree"}


def test_only_the_files_asked_for_are_read(tmp_path: Path) -> None:
    paths = []
    for place, rows in RECORDS.groupby(["dataset", "temperature", "arm"]):
        paths.append(tmp_path / record_file(*place))
        write_records(rows, paths[-1], METADATA)
    stale = [path for path in paths if "t1" in path.parts]
    assert set(read_source([path for path in paths if path not in stale]).records.temperature) == {0.0}
    assert set(read_source([tmp_path]).records.temperature) == {0.0, 1.0}
    assert sorted(record_files(tmp_path)) == sorted(paths)


def test_models_may_come_from_different_machines_but_one_model_not(tmp_path: Path) -> None:
    rows = RECORDS[(RECORDS.dataset == "math") & (RECORDS.temperature == 0)]
    for model, gpu in (("small", "GPU 1"), ("large", "GPU 2")):
        metadata = METADATA | {"config": CONFIG | {"model": {"name": model, "dtype": "bfloat16"}}}
        metadata["hardware"] = metadata["hardware"] | {"gpu": gpu}
        write_records(rows.assign(model=model), tmp_path / f"{model}.parquet", metadata)
    source = read_source([tmp_path / "small.parquet", tmp_path / "large.parquet"])
    assert [part.model.iloc[0] for part in source.models] == ["small", "large"]
    assert source.setting.hardware == "GPU 1, Some CPU (2 cores, 2 threads) and GPU 2, Some CPU (2 cores, 2 threads)"
    assert source.setting.dtype == "bfloat16"
