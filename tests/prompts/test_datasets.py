from __future__ import annotations

import json
from pathlib import Path

import pytest

from dominotree.errors import UserError
from dominotree.prompts import DATASETS, EMBEDDED_SETS, load_dataset

LINE = {"id": "a", "family": "chat", "turns": ["Say something about the sea."]}


def _write(path: Path, *rows: object) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("family", EMBEDDED_SETS)
def test_embedded_set(family: str) -> None:
    conversations = load_dataset(family)
    assert [c.id for c in conversations] == [f"{family}-{i:02d}" for i in range(1, 13)]
    assert {c.family for c in conversations} == {family}
    assert sum(len(c.turns) == 2 for c in conversations) == (4 if family == "chat" else 0)


def test_embedded_turns_differ() -> None:
    turns = [turn.casefold() for name in EMBEDDED_SETS for c in load_dataset(name) for turn in c.turns]
    assert not [(a, b) for a in turns for b in turns if a is not b and a in b]


def test_subset_is_the_shuffled_head() -> None:
    few, more = load_dataset("math", 4), load_dataset("math", 9)
    assert more[:4] == few == load_dataset("math", 4, seed=0)
    assert few != load_dataset("math")[:4]
    assert few != load_dataset("math", 4, seed=1)
    assert load_dataset("math", 12) == load_dataset("math")


def test_own_file(tmp_path: Path) -> None:
    path = _write(tmp_path / "own.jsonl", LINE, LINE | {"id": "b", "turns": ["One.", "Two."]})
    assert [c.turns for c in load_dataset("chat", path=path)] == [("Say something about the sea.",), ("One.", "Two.")]


def test_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(UserError, match=f"unknown dataset 'xyz'.*{', '.join(DATASETS)}"):
        load_dataset("xyz")
    with pytest.raises(UserError, match="unknown dataset 'gsm8'; did you mean gsm8k"):
        load_dataset("gsm8")


@pytest.mark.parametrize("count", [0, -1, 13])
def test_impossible_number_of_prompts(count: int) -> None:
    with pytest.raises(UserError, match=f"num_prompts={count} asked for, it has 12"):
        load_dataset("code", count)


@pytest.mark.parametrize(
    "bad",
    [
        [],
        {"id": "b", "family": "chat"},
        LINE | {"topic": "sea"},
        LINE | {"id": 3},
        LINE | {"family": "poetry"},
        LINE | {"turns": []},
        LINE | {"turns": "Hello."},
        LINE | {"turns": ["Hello.", " "]},
    ],
    ids=str,
)
def test_bad_line_is_named(tmp_path: Path, bad: object) -> None:
    path = _write(tmp_path / "bad.jsonl", LINE, bad)
    with pytest.raises(UserError, match=r"bad\.jsonl, line 2: not a conversation"):
        load_dataset("chat", path=path)


def test_what_is_not_json_is_named(tmp_path: Path) -> None:
    path = _write(tmp_path / "bad.jsonl", LINE, "not json")
    with pytest.raises(UserError, match=r"bad\.jsonl, line 2: not JSON"):
        load_dataset("chat", path=path)


@pytest.mark.parametrize("separator", ["\u2028", "\x85"])
def test_a_line_separator_within_a_text_ends_no_line(tmp_path: Path, separator: str) -> None:
    text = f"One.{separator}Two."
    path = tmp_path / "own.jsonl"
    path.write_text(json.dumps(LINE | {"turns": [text]}, ensure_ascii=False) + "\n", encoding="utf-8")
    assert load_dataset("chat", path=path)[0].turns == (text,)


def test_repeated_id_is_named(tmp_path: Path) -> None:
    path = _write(tmp_path / "twice.jsonl", LINE, LINE | {"turns": ["Something else."]})
    with pytest.raises(UserError, match=r"twice\.jsonl: the id 'a' stands for more than one"):
        load_dataset("chat", path=path)


def test_empty_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.jsonl: there is no conversation in it"):
        load_dataset("chat", path=_write(tmp_path / "none.jsonl"))


def test_unreadable_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        load_dataset("chat", path=tmp_path / "absent.jsonl")
