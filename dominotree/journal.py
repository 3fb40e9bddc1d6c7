"""The journal of a run: what is measured so far, on disk after every conversation, so that a kill loses none and repeats none."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import pandas as pd

from dominotree.errors import UserError
from dominotree.files import atomic_write, hold
from dominotree.progress import report
from dominotree.records import validate

FORMAT = "dominotree-journal-2"
START_OVER = "delete the file to measure the run from its start"
CUT_BACK = "delete this line and those after it to keep what is before, or the whole file to start over"


class Journal:
    """JSON lines: the first names the run, its arms and its origin, each other is a conversation with the records of all arms.

    While a journal is open no other process can open it. Every append replaces the whole file, so that no line is ever cut. A
    complete journal stays: record files that were lost are made from it again.
    """

    def __init__(self, path: Path, arms: Sequence[str], lock: TextIO) -> None:
        """For `Journal.open`, which alone knows that `lock` is held."""
        self.path, self.arms = path, frozenset(arms)
        self.origin: dict[str, Any] = {}
        self._lock, self._text, self._since = lock, "", time.monotonic()
        self._entries: dict[str, list[dict[str, Any]]] = {}

    @classmethod
    def open(cls, path: Path, run: str, arms: Sequence[str], origin: Mapping[str, Any]) -> Journal:
        """Create the journal of `run`, or resume it, with a word on that.

        origin: hardware, versions, commit, as JSON; what a journal says of itself is of the process that began it. Raises
        `UserError` if another process has it open, if it belongs to another run, or if a line is cut or invalid.
        """
        journal = cls(path, arms, hold(path.with_name(f"{path.name}.lock"), "measuring this run"))
        header = {"format": FORMAT, "run": run, "arms": list(arms)}
        try:
            if path.exists():
                journal._read(header)
            else:
                journal.origin = dict(origin)
                journal._write(json.dumps(header | {"origin": journal.origin}) + "\n")
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

    def expect(self, origin: Mapping[str, Any]) -> None:
        """Raise `UserError` if the journal was begun on other hardware or versions, where going on would mix their numbers."""
        for part in ("hardware", "versions"):
            then, now = self.origin[part], origin[part]
            if then != now:
                key = next(key for key in [*then, *now] if then.get(key) != now.get(key))
                change = f"{key} was {then.get(key)}, and is {now.get(key)}"
                raise UserError(f"{self.path}: begun on other {part} ({change}); finish it there, or {START_OVER} here")

    def append(self, conversation: str, records: list[dict[str, Any]]) -> None:
        """Add a conversation: plain Python values of the columns of `RECORDS`, for every arm."""
        now = time.monotonic()
        entry = {"conversation": conversation, "seconds": now - self._since, "records": records}
        checked = self._checked(entry, f"conversation {conversation}", "this is a defect of the measurement")
        self._write(self._text + json.dumps(entry) + "\n")
        self._entries |= checked
        self._since = now

    def close(self) -> None:
        """Let other processes open the journal."""
        self._lock.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _checked(self, entry: Any, where: str, remedy: str) -> dict[str, list[dict[str, Any]]]:
        match entry:
            case {"conversation": str(conversation), "seconds": float(), "records": list(records)} if (
                conversation not in self._entries and all(isinstance(record, dict) for record in records)
            ):
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

    def _read(self, header: dict[str, Any]) -> None:
        self._text = self.path.read_bytes().decode("ascii", errors="replace")
        first, *lines = self._text.splitlines(keepends=True) or [""]
        match _parsed(first):
            case {"origin": {"hardware": {}, "versions": {}} as origin, **found} if found == header:
                self.origin = origin
            case _:
                raise UserError(f"{self.path}, line 1: not a journal of this run; {START_OVER}")
        for number, line in enumerate(lines, start=2):
            where, entry = f"{self.path}, line {number}", _parsed(line)
            if entry is None:
                raise UserError(f"{where}: cut short, or not JSON; {CUT_BACK}")
            self._entries |= self._checked(entry, where, CUT_BACK)
        if lines:
            report(f"{self.path}: {len(lines)} conversations measured before; {START_OVER}")


def _parsed(line: str) -> Any:
    """A whole line of JSON; None if it is none."""
    try:
        return json.loads(line if line.endswith("\n") else "")
    except (json.JSONDecodeError, RecursionError):
        return None


def measured_by(path: Path) -> dict[str, Any]:
    """Of a journal that was open: its origin, and the seconds that measuring took."""
    first, *entries = map(json.loads, path.read_text(encoding="ascii").splitlines())
    return first["origin"] | {"seconds": sum(entry["seconds"] for entry in entries)}
