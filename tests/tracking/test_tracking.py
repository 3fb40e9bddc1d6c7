from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from wandb.proto import wandb_internal_pb2 as messages

from dominotree.config import TrackingConfig
from dominotree.tracking import TrackedRun, track_run


@pytest.fixture(autouse=True)
def no_mode(monkeypatch):
    monkeypatch.delenv("WANDB_MODE", raising=False)


def read_offline(folder: Path) -> list[messages.Record]:
    """All that the one offline run below `folder` wrote.

    The file is a LevelDB log after 7 bytes of its own: blocks of 32 KiB, in them pieces of records, each with a checksum
    (4 bytes), a length (2) and a kind (1): whole, first, middle, last.
    """
    (path,) = folder.glob("wandb/offline-run-*/*.wandb")
    data, place, whole, found = path.read_bytes(), 7, b"", []
    while place < len(data):
        if 32768 - place % 32768 < 7:  # no room for another piece
            place += 32768 - place % 32768
            continue
        _, length, kind = struct.unpack_from("<IHB", data, place)
        whole += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):
            found.append(messages.Record.FromString(whole))
            whole = b""
    return found


def items(entries: Any) -> dict[str, Any]:
    return {entry.key or ".".join(entry.nested_key): json.loads(entry.value_json) for entry in entries}


def use(run: TrackedRun, path: Path) -> None:
    run.log({"tps": 2.5}, 0)
    run.log({"tps": 3.5}, 1)
    run.table("records", pd.DataFrame({"arm": ["ar"], "budget": pd.array([None], dtype="Int64")}))
    run.summary({"tau": 1.25})
    run.artifact("records demo dominotree@32", "records", [path])


def test_an_offline_run_holds_what_was_logged(tmp_path):
    tracking = TrackingConfig(folder=str(tmp_path))
    tags = ["dominotree", "x" * 100]
    with track_run(tracking, "demo", "measure", "dominotree@32 chat t1", tags, {"seed": 7}) as run:
        use(run, Path(__file__))
        assert run.id
    written = read_offline(tmp_path)
    (started,) = [record.run for record in written if record.HasField("run")]
    assert (started.run_group, started.job_type, started.display_name) == ("demo", "measure", "dominotree@32 chat t1")
    assert list(started.tags) == ["dominotree", "x" * 64]
    assert items(started.config.update)["seed"] == 7
    history = [items(record.history.item) for record in written if record.HasField("history")]
    assert [row["tps"] for row in history if "tps" in row] == [2.5, 3.5]
    assert any("records" in row or "records._type" in row for row in history)
    summaries = [items(record.summary.update) for record in written if record.HasField("summary")]
    assert any(summary.get("tau") == 1.25 for summary in summaries)


def test_two_executions_are_two_runs(tmp_path):
    names = set()
    for _ in range(2):
        with track_run(TrackingConfig(folder=str(tmp_path)), "demo", "measure", "same", [], {}) as run:
            names.add(run.id)
    assert len(names) == 2
    assert len(list(tmp_path.glob("wandb/offline-run-*"))) == 2


@pytest.mark.parametrize("configured, environment", [("disabled", ""), ("offline", "disabled")])
def test_disabled_writes_nothing(tmp_path, monkeypatch, configured, environment):
    monkeypatch.setenv("WANDB_MODE", environment)
    with track_run(TrackingConfig(configured, folder=str(tmp_path)), "demo", "measure", "a run", [], {}) as run:
        use(run, Path(__file__))
        assert run.id is None
    assert list(tmp_path.iterdir()) == []


def test_the_environment_goes_before_the_configuration(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    with track_run(TrackingConfig("disabled", folder=str(tmp_path)), "demo", "measure", "a run", [], {}) as run:
        assert run.id


def test_a_fault_at_the_start_costs_one_warning(tmp_path, monkeypatch, capsys):
    def refuse(**_: Any) -> None:
        raise ConnectionError("no route to host\nand a long story")

    monkeypatch.setattr("wandb.init", refuse)
    with track_run(TrackingConfig(folder=str(tmp_path)), "demo", "measure", "a run", [], {}) as run:
        use(run, Path(__file__))
    assert capsys.readouterr().err == (
        "warning: W&B failed and logs no more of this run (no route to host); results are not affected\n"
    )


def test_a_fault_on_the_way_costs_one_warning(tmp_path, capsys):
    with track_run(TrackingConfig(folder=str(tmp_path)), "demo", "measure", "a run", [], {}) as run:
        run.artifact("records", "records", [tmp_path / "missing.parquet"])
        run.log({"tps": 1.0}, 0)
    assert capsys.readouterr().err.count("warning: W&B failed") == 1
    with track_run(TrackingConfig(folder=str(tmp_path)), "demo", "measure", "the next", [], {}) as following:
        assert following.id
    assert len(list(tmp_path.glob("wandb/offline-run-*"))) == 2


def test_an_error_of_the_block_is_not_held_back(tmp_path):
    with pytest.raises(KeyError), track_run(TrackingConfig(folder=str(tmp_path)), "demo", "measure", "a run", [], {}):
        raise KeyError("ours")
