"""Faults of the machine."""

from __future__ import annotations

import errno
import os

import pytest


def fill_disk(patch: pytest.MonkeyPatch) -> None:
    """From here on nothing more can be flushed to disk."""

    def fsync(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    patch.setattr(os, "fsync", fsync)
