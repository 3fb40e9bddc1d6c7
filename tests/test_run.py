from __future__ import annotations

import sys

import pytest

from dominotree import run as entry
from dominotree.compose import compose_run, load_study
from dominotree.errors import UserError
from dominotree.records import read_metadata, read_records
from dominotree.run import summary
from dominotree.tracking.offline import read_runs
from tests import stand_in
from tests.synthetic import study


@pytest.fixture(autouse=True)
def measuring(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setitem(sys.modules, "dominotree.measure", None)
    monkeypatch.setattr(entry, "_answers", lambda _, records: records[["conversation", "turn"]])  # needs the target's tokenizer
    stand_in.install()


def call(monkeypatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["dominotree.run", *arguments])
    entry.main()


def test_a_run_leaves_a_file_and_a_tracked_run_an_arm(tmp_path, capsys):
    config = compose_run(["dataset=chat", "temperature=0.5", "arms=[ar,ddtree,dominotree]"])
    entry.measure_run(config)
    folder = config.folder / "records/chat/t0.5"
    paths = sorted(folder.glob("*.parquet"))
    assert [path.name for path in paths] == ["ar.parquet", "ddtree@32.parquet", "dominotree@32.parquet"]
    records = read_records(paths)
    assert len(records) == 12 and set(records.run) == {config.digest}
    about = [read_metadata(path) for path in paths]
    assert {one["digest"] for one in about} == {config.digest}
    runs = read_runs(tmp_path / "results")
    assert [(run.stage, run.name, run.id) for run in runs] == [
        ("measure", "ar chat t0.5", about[0]["wandb"]),
        ("measure", "ddtree@32 chat t0.5", about[1]["wandb"]),
        ("measure", "dominotree@32 chat t0.5", about[2]["wandb"]),
        ("compare", "chat t0.5", runs[3].id),
    ]
    assert about[0]["config"]["temperature"] == 0.5 and about[0]["versions"]["torch"] and about[0]["hardware"]["cores"]
    assert [path.name for path in config.folder.glob("journals/*.jsonl")] == [f"chat-t0.5-{config.digest}.jsonl"]
    printed = capsys.readouterr().out
    assert all(word in printed for word in ("adhoc chat t0.5", "dominotree@32", "speedup", "tau", str(folder)))


def test_arms_of_an_earlier_run_do_not_stay(monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "disabled")
    for arms in ("[ar,ddtree@16]", "[ar,ddtree@8]"):
        for run in load_study(
            "demo", "small", [f"grids.main.arms={arms}", "grids.main.datasets=[chat]", "grids.main.temperatures=[0]"]
        ).runs[:1]:
            entry.measure_run(run)
    assert {path.name for path in (run.folder / "records/main/chat/t0").iterdir()} == {"ar.parquet", "ddtree@8.parquet"}


def test_what_is_left_of_a_study(monkeypatch, capsys):
    monkeypatch.setenv("WANDB_MODE", "disabled")
    first, second = load_study("demo", "small", ["grids.main.arms=[ar,domino]", "grids.main.datasets=[chat]"]).runs[:2]
    entry.measure_run(first)
    assert "study demo-small, grid main: 1 of 2 runs measured, about" in capsys.readouterr().out
    entry.measure_run(second)
    assert "study demo-small, grid main: 2 of 2 runs measured, about 0 min left" in capsys.readouterr().out


def test_a_sweep(monkeypatch, tmp_path):
    call(monkeypatch, "-m", "temperature=0,0.5", "arms=[ar,domino]", "tracking=disabled")
    records = sorted(tmp_path.glob("results/adhoc/*/records/math/*/*.parquet"))
    assert [path.parent.name for path in sorted(records, key=lambda p: (p.parent.name, p.name))] == ["t0", "t0", "t0.5", "t0.5"]
    assert not [path for path in tmp_path.rglob("*") if set("=,") & set(path.name)]
    assert {path.name for path in tmp_path.iterdir()} == {"results"}


def test_a_sweep_is_checked_before_it_is_measured(monkeypatch, tmp_path, capsys):
    with pytest.raises(SystemExit) as left:
        call(monkeypatch, "-m", "temperature=0,-1", "arms=[ar,domino]", "tracking=disabled")
    assert left.value.code == 2
    assert capsys.readouterr().err == "error: temperature: should be greater than or equal to 0, not -1\n"
    assert list(tmp_path.rglob("*.parquet")) == []


@pytest.mark.parametrize("bad", ["datset=chat", "dataset=chatt", "arms=[ar,domintree]", "+a=1", "temperature=-1", "arms=[ar"])
def test_a_fault_is_one_line(monkeypatch, capsys, bad):
    with pytest.raises(SystemExit) as left:
        call(monkeypatch, bad)
    out, err = capsys.readouterr()
    assert left.value.code == 2 and out == ""
    assert err.startswith("error: ") and err.count("\n") == 1


def test_help_names_groups_and_examples(monkeypatch, capsys):
    with pytest.raises(SystemExit) as left:
        call(monkeypatch, "--help")
    assert left.value.code == 0
    printed = capsys.readouterr().out
    for words in ("dataset: ", "chat, code, ", "method.dominotree.budget=64", "candidate_width: 64"):
        assert words in printed


def test_records_that_cannot_be_written_leave_the_journal(monkeypatch):
    config = compose_run(["arms=[ar,domino]", "tracking=disabled"])
    journal = config.folder / "journals" / f"math-t0-{config.digest}.jsonl"

    def refuse(*_: object) -> None:
        raise UserError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(entry, "write_records", refuse)
        with pytest.raises(UserError, match="full"):
            entry.measure_run(config)
    assert journal.is_file()
    entry.measure_run(config)
    assert len(list(config.records.rglob("*.parquet"))) == 2


def test_the_journal_of_earlier_sources_goes_when_the_run_is_complete(tmp_path):
    config = compose_run(["arms=[ar,domino]", "tracking=disabled"])
    folder = config.folder / "journals"
    folder.mkdir(parents=True)
    earlier, other = folder / f"math-t0-{'0' * 16}.jsonl", folder / f"math-t0.5-{'0' * 16}.jsonl"
    earlier.touch(), other.touch()
    entry.measure_run(config)
    assert sorted(folder.glob("*.jsonl")) == sorted([folder / f"math-t0-{config.digest}.jsonl", other])


def test_the_end_says_what_several_requests_had_together() -> None:
    """Each tokens a second of its own, all together more."""
    alone = study({"ar": 1.0, "domino": 2.0}, size=2, datasets=["math"])
    assert list(summary(alone).columns) == ["tok/s", "speedup", "tau", "divergent"]
    shared = summary(alone.assign(concurrency=2, share_s=alone.share_s / 2))
    rows = alone[alone.arm == "domino"]
    assert shared.goodput["domino"] == pytest.approx(2 * (rows.num_output + 1).sum() / rows.share_s.sum(), abs=0.01)
    assert shared.speedup["domino"] == summary(alone).speedup["domino"]
