"""Files are whole or not there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dominotree.errors import UserError
from dominotree.files import atomic_write, hold
from tests.faults import fill_disk


def test_replaces_a_file_and_makes_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    for text in ("first", "second"):
        with atomic_write(path) as partial:
            partial.write_text(text)
        assert path.read_text() == text
    assert os.listdir(path.parent) == ["file"]


def test_a_failing_block_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), atomic_write(path) as partial:
        partial.write_text("half of the n")
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


def test_two_writers_of_one_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with atomic_write(path) as first:
        first.write_text("first")
        with atomic_write(path) as second:
            second.write_text("second")
        assert path.read_text() == "second"
    assert path.read_text() == "first"
    assert os.listdir(tmp_path) == ["file"]


def test_a_full_disk_is_one_line_and_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill_disk(monkeypatch)
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(UserError, match=r"file: not written \(No space left on device\)"), atomic_write(path) as partial:
        partial.write_text("new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_folder_that_is_a_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "folder").write_text("a file")
    with pytest.raises(UserError, match="not written"), atomic_write(tmp_path / "folder" / "file"):
        pass


def test_a_lock_is_held_once_and_says_by_whom(tmp_path: Path) -> None:
    path = tmp_path / "new" / "lock"
    with hold(path, "at it"), pytest.raises(UserError, match=rf"lock: another process is at it \(process {os.getpid()}\); wait"):
        hold(path, "at it")
    hold(path, "at it").close()


def test_a_lock_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="lock: not written"):
        hold(tmp_path / "file" / "lock", "at it")
