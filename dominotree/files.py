"""Files that are either whole or not there: written beside their place, flushed to disk, then renamed."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO, TypeVar
from uuid import uuid4

from pydantic import TypeAdapter

from dominotree.errors import UserError

T = TypeVar("T")


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; when the block has written it, rename it to `path`.

    If the block raises, `path` stays as it was. A system error (full disk, read-only folder) becomes a `UserError`.
    """
    partial = path.with_name(f".{path.name}.{uuid4().hex[:8]}.partial")  # of its own: jobs of a cluster share a cache
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        with partial.open("rb") as written:
            os.fsync(written.fileno())
        partial.replace(path)
    except OSError as error:
        raise UserError(f"{path}: not written ({error.strerror or error}); make room or choose another folder") from error
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def hold(path: Path, what: str) -> TextIO:
    """Hold the lock file at `path` until it is closed or the process ends, however it ends.

    Raises `UserError` if another process holds it, saying that it is at `what`, or if the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.open("a+", encoding="ascii")
    except OSError as error:
        raise UserError(f"{path}: not written ({error.strerror}); choose another folder") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        holder = lock.read()
        lock.close()
        raise UserError(f"{path}: another process is {what} ({holder}); wait for it or end it") from None
    lock.truncate(0)
    lock.write(f"process {os.getpid()}")
    lock.flush()
    return lock


def write_together(texts: Mapping[Path, str]) -> list[Path]:
    """Write texts to files, all complete before the first takes its place; returns the files."""
    with ExitStack() as stack:
        for path, text in texts.items():
            stack.enter_context(atomic_write(path)).write_text(text, encoding="utf-8")
    return list(texts)


def cached(kind: type[T], folder: Path, key: dict[str, Any], make: Callable[[], T]) -> T:
    """The dataclass of this kind that `folder` keeps under `key`; made and kept if there is none, or none that can be read."""
    name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    path = folder / f"{name}.json"
    # Written whole or not at all: what does not fit is another version's, and made again.
    with suppress(OSError, ValueError, KeyError, TypeError):
        return TypeAdapter(kind).validate_python(json.loads(path.read_text())["value"])
    made = make()
    with atomic_write(path) as partial:
        partial.write_text(json.dumps({"key": key, "value": asdict(made)}, indent=1))
    return made
