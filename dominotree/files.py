"""Files that are either whole or not there: written beside their place, flushed to disk, then renamed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from dominotree.errors import UserError


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
