from __future__ import annotations

import lzma
from pathlib import Path

import pytest

from dominotree.errors import UserError
from dominotree.training.corpus import Conversation, read_corpus, save_corpus

CORPUS = [Conversation("math", 0.0, (1, 2, 3), (4, 5)), Conversation("chat", 0.8, (6,), (7, 8, 9))]


@pytest.mark.parametrize("name", ["corpus.jsonl", "corpus.jsonl.xz"])
def test_round_trip(tmp_path: Path, name: str) -> None:
    save_corpus(CORPUS, tmp_path / "folder" / name)
    assert read_corpus(tmp_path / "folder" / name) == CORPUS
    assert [path.name for path in (tmp_path / "folder").iterdir()] == [name]


@pytest.mark.parametrize("line", ["{", "[]", '{"family": "math"}', '{"family": 1, "temperature": 0, "prompt_ids": 3}'])
def test_bad_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "corpus.jsonl"
    save_corpus(CORPUS, path)
    path.write_text(path.read_text() + line)
    with pytest.raises(UserError, match=r"corpus\.jsonl, line 3: not a conversation"):
        read_corpus(path)


def test_cut_or_foreign_file(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl.xz"
    save_corpus(CORPUS, path)
    whole = path.read_bytes()
    for content in (whole[:-20], b"something else", lzma.compress(b"\xff\xfe")):
        path.write_bytes(content)
        with pytest.raises(UserError, match="cannot be read"):
            read_corpus(path)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        read_corpus(tmp_path / "corpus.jsonl")
