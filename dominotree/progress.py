"""Progress of long work: a bar on a terminal, a plain line now and then in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from tqdm import tqdm

from dominotree.log import log_line

T = TypeVar("T")
LOG_INTERVAL_S = 20.0


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


class Progress:
    """Counts steps of known number; `advance` after each, `close` at the end. Says how much time is left."""

    def __init__(self, label: str, total: int, done: int = 0) -> None:
        self.label, self.total, self.done, self.first = label, total, done, done
        self.start = self.last = time.monotonic()
        self.bar = tqdm(desc=label, total=total, initial=done, dynamic_ncols=True) if sys.stderr.isatty() else None

    def advance(self, note: str = "") -> None:
        self.done += 1
        if self.bar is not None:
            self.bar.set_postfix_str(note, refresh=False)
            self.bar.update()
        now = time.monotonic()
        if now - self.last >= LOG_INTERVAL_S or self.done == self.total:
            self.last = now
            self._write_line(now, note)

    def _write_line(self, now: float, note: str) -> None:
        left = (now - self.start) / (self.done - self.first) * (self.total - self.done)
        line = f"{self.label}: {self.done}/{self.total}, {_duration(left)} left{', ' + note if note else ''}"
        log_line(line)
        if self.bar is None:
            print(line, file=sys.stderr, flush=True)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()


def report(text: str) -> None:
    """A plain line, to the log and to the terminal."""
    log_line(text)
    print(text, file=sys.stderr, flush=True)


def track(label: str, items: Iterable[T], total: int, done: int = 0) -> Iterator[T]:
    """Yield `items`, advancing a `Progress` after each."""
    progress = Progress(label, total, done)
    for item in items:
        yield item
        progress.advance()
    progress.close()
