"""A run's journal: what a kill, a cut, another run and another process do to it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from dominotree.errors import UserError
from dominotree.journal import START_OVER, Journal, measured_by
from tests.faults import fill_disk
from tests.synthetic import record

ARMS = ["ar", "domino"]
ORIGIN = {"hardware": {"cpu": "Some CPU"}, "versions": {"torch": "1"}, "git_commit": None}


def conversation(name: str) -> list[dict[str, object]]:
    return [record(arm=arm, conversation=name, num_output=3) for arm in ARMS]


def entry(name: str, records: list[dict[str, object]]) -> str:
    return json.dumps({"conversation": name, "seconds": 1.5, "records": records})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A journal with two conversations."""
    path = tmp_path / "run" / "journal.jsonl"
    with Journal.open(path, "run-1", ARMS, ORIGIN) as journal:
        assert journal.done == set()
        journal.append("math-01", conversation("math-01"))
        journal.append("math-02", conversation("math-02"))
    return path


def test_a_run_goes_on_where_it_stopped(path: Path) -> None:
    with Journal.open(path, "run-1", ARMS, ORIGIN) as journal:
        assert journal.done == {"math-01", "math-02"}
        journal.append("math-03", conversation("math-03"))
    with Journal.open(path, "run-1", ARMS, ORIGIN) as journal:
        assert [row["conversation"] for row in journal.records()] == [f"math-0{n}" for n in (1, 1, 2, 2, 3, 3)]
        assert repr(journal.records()[:2]) == repr(conversation("math-01"))


def test_the_header_stands_before_the_first_measurement(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    Journal.open(path, "run-1", ARMS, ORIGIN).close()
    header = {"format": "dominotree-journal-2", "run": "run-1", "arms": ARMS, "origin": ORIGIN}
    assert json.loads(path.read_text()) == header


@pytest.mark.parametrize(("run", "arms"), [("run-2", ARMS), ("run-1", ["ar"]), ("run-1", ARMS[::-1])])
def test_the_journal_of_another_run_is_refused_and_kept(path: Path, run: str, arms: list[str]) -> None:
    before = path.read_bytes()
    with pytest.raises(UserError, match="line 1: not a journal of this run; delete the file"):
        Journal.open(path, run, arms, ORIGIN)
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [b"", b"\n", b"hello\n", b"\x80\x00\xff\n", b"{}\n", b"[1]\n"])
def test_a_file_that_is_no_journal_is_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(UserError, match="line 1: not a journal of this run"):
        Journal.open(path, "run-1", ARMS, ORIGIN)


def test_a_cut_is_refused_at_every_byte_but_between_lines(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal.open(path, "run-1", ["ar"], ORIGIN) as journal:
        journal.append("math-01", [record()])
    whole = path.read_bytes()
    header = whole.index(b"\n") + 1
    for length in {*range(len(whole))} - {header}:
        path.write_bytes(whole[:length])
        with pytest.raises(UserError, match=f"line {1 if length < header else 2}: .*delete"):
            Journal.open(path, "run-1", ["ar"], ORIGIN)
    path.write_bytes(whole[:header])
    with Journal.open(path, "run-1", ["ar"], ORIGIN) as journal:
        assert journal.done == set()


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("7", "not a conversation"),
        ('{"conversation": "math-03"}', "not a conversation"),
        ('{"conversation": "math-03", "records": []}', "not a conversation"),
        ('{"conversation": "math-03", "seconds": 1.5, "records": []}', "column .* is missing"),
        ('{"conversation": "math-03", "seconds": 1.5, "records": [1]}', "not a conversation"),
        ('{"conversation": "math-03", "seconds": 1.5, "records": [{"0": 1}]}', "column 0 is not one of a record's"),
        (entry("math-01", conversation("math-01")), "one that came before"),
        (entry("math-03", conversation("math-04")), "every arm on one conversation"),
        (entry("math-03", conversation("math-03")[:1]), "every arm on one conversation"),
        (entry("math-03", conversation("math-03") * 2), "a second record"),
        ("{", "not JSON"),
    ],
)
def test_an_invalid_line_is_named_with_the_way_out(path: Path, line: str, fault: str) -> None:
    path.write_text(f"{path.read_text()}{line}\n")
    with pytest.raises(UserError, match=rf"journal.jsonl, line 4: .*{fault}.*; delete this line and those after it"):
        Journal.open(path, "run-1", ARMS, ORIGIN)


def test_an_invalid_measurement_does_not_enter(path: Path) -> None:
    with Journal.open(path, "run-1", ARMS, ORIGIN) as journal:
        with pytest.raises(UserError, match="conversation math-03: row 0: tau"):
            journal.append("math-03", [row | {"tau": 7.0} for row in conversation("math-03")])
        assert journal.done == {"math-01", "math-02"}


def test_a_full_disk_loses_nothing_measured(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Journal.open(path, "run-1", ARMS, ORIGIN) as journal, monkeypatch.context() as patch:
        fill_disk(patch)
        with pytest.raises(UserError, match="No space left on device"):
            journal.append("math-03", conversation("math-03"))
    with Journal.open(path, "run-1", ARMS, ORIGIN) as journal:
        assert journal.done == {"math-01", "math-02"}


def test_a_second_process_is_kept_out_until_the_first_is_through(path: Path) -> None:
    with (
        Journal.open(path, "run-1", ARMS, ORIGIN),
        pytest.raises(UserError, match=rf"another process .*\(process {os.getpid()}\)"),
    ):
        Journal.open(path, "run-1", ARMS, ORIGIN)
    Journal.open(path, "run-1", ARMS, ORIGIN).close()


def test_a_refused_journal_is_not_left_locked(path: Path) -> None:
    with pytest.raises(UserError, match="not a journal of this run"):
        Journal.open(path, "run-2", ARMS, ORIGIN)
    Journal.open(path, "run-1", ARMS, ORIGIN).close()


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file")
    with pytest.raises(UserError, match="not written"):
        Journal.open(tmp_path / "run" / "journal.jsonl", "run-1", ARMS, ORIGIN)


def test_origin_and_seconds_are_those_of_the_measurement(path: Path) -> None:
    elsewhere = ORIGIN | {"git_commit": "another"}
    with Journal.open(path, "run-1", ARMS, elsewhere) as journal:
        assert journal.origin == ORIGIN
        journal.expect(elsewhere)
        journal.append("math-03", conversation("math-03"))
    seconds = [json.loads(line)["seconds"] for line in path.read_text().splitlines()[1:]]
    assert min(seconds) > 0 and measured_by(path) == ORIGIN | {"seconds": sum(seconds)}


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"versions": {"torch": "2"}}, r"other versions \(torch was 1, and is 2\)"),
        ({"hardware": {"cpu": "Some CPU", "gpu": "x"}}, r"other hardware \(gpu was None, and is x\)"),
    ],
)
def test_a_run_does_not_go_on_elsewhere(path: Path, change: dict[str, object], fault: str) -> None:
    with Journal.open(path, "run-1", ARMS, ORIGIN | change) as journal, pytest.raises(UserError, match=fault):
        journal.expect(ORIGIN | change)


def test_what_was_measured_before_is_said(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Journal.open(path, "run-1", ARMS, ORIGIN).close()
    assert capsys.readouterr().err == f"{path}: 2 conversations measured before; {START_OVER}\n"
