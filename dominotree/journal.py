"""The journal of a run: what is measured so far, on disk after every conversation, so that a kill loses none and repeats none."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

import pandas as pd

from dominotree.errors import UserError
from dominotree.files import atomic_write
from dominotree.records import validate

FORMAT = "dominotree-journal-1"
CUT_BACK = "delete this line and those after it to keep what is before, or the whole file to start over"


class Journal:
    """JSON lines: the first names the run and its arms, each other is a conversation with the records of all arms and turns.

    While a journal is open no other process can open it. Every append replaces the whole file, so that no line is ever cut.
    """

    def __init__(self, path: Path, arms: Sequence[str], lock: TextIO) -> None:
        """For `Journal.open`, which alone knows that `lock` is held."""
        self.path, self.arms = path, frozenset(arms)
        self._lock, self._text = lock, ""
        self._entries: dict[str, list[dict[str, Any]]] = {}

    @classmethod
    def open(cls, path: Path, run: str, arms: Sequence[str]) -> Journal:
        """Create the journal of `run`, or resume it.

        Raises `UserError` if another process has it open, if it belongs to another run, or if a line is cut or invalid.
        """
        journal = cls(path, arms, _lock(path))
        header = json.dumps({"format": FORMAT, "run": run, "arms": list(arms)}) + "\n"
        try:
            if path.exists():
                journal._read(header)
            else:
                journal._write(header)
        except BaseException:
            journal.close()
            raise
        return journal

    @property
    def done(self) -> set[str]:
        """The ids of the conversations measured."""
        return set(self._entries)

    def records(self) -> list[dict[str, Any]]:
        """All records, in the order of measuring."""
        return [record for records in self._entries.values() for record in records]

    def append(self, conversation: str, records: list[dict[str, Any]]) -> None:
        """Add a conversation: plain Python values of the columns of `RECORDS`, for every arm."""
        entry = {"conversation": conversation, "records": records}
        checked = self._checked(entry, f"conversation {conversation}", "this is a defect of the measurement")
        self._write(self._text + json.dumps(entry) + "\n")
        self._entries |= checked

    def close(self) -> None:
        """Let other processes open the journal."""
        self._lock.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _checked(self, entry: Any, where: str, remedy: str) -> dict[str, list[dict[str, Any]]]:
        match entry:
            case {"conversation": str(conversation), "records": list(records)} if conversation not in self._entries:
                frame = validate(pd.DataFrame(records), where, remedy)
            case _:
                raise UserError(f"{where}: not a conversation, or one that came before; {remedy}")
        if set(frame.arm) != self.arms or set(frame.conversation) != {conversation}:
            raise UserError(f"{where}: not the records of every arm on one conversation; {remedy}")
        return {conversation: records}

    def _write(self, text: str) -> None:
        with atomic_write(self.path) as partial:
            partial.write_text(text, encoding="ascii")
        self._text = text

    def _read(self, header: str) -> None:
        self._text = self.path.read_bytes().decode("ascii", errors="replace")
        first, *lines = self._text.splitlines(keepends=True) or [""]
        if first != header:
            raise UserError(f"{self.path}, line 1: not a journal of this run; delete the file to measure the run from its start")
        for number, line in enumerate(lines, start=2):
            where = f"{self.path}, line {number}"
            try:
                entry = json.loads(line if line.endswith("\n") else "")
            except json.JSONDecodeError:
                raise UserError(f"{where}: cut short, or not JSON; {CUT_BACK}") from None
            self._entries |= self._checked(entry, where, CUT_BACK)


def _lock(path: Path) -> TextIO:
    """Hold the lock file of the journal at `path` until it is closed or the process ends."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.with_name(f"{path.name}.lock").open("a+", encoding="ascii")
    except OSError as error:
        raise UserError(f"{path}.lock: not written ({error.strerror}); choose another folder") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        holder = lock.read()
        lock.close()
        raise UserError(f"{path}: another process is measuring this run ({holder}); wait for it or end it") from None
    lock.truncate(0)
    lock.write(f"process {os.getpid()}")
    lock.flush()
    return lock
