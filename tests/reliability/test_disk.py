"""A disk that is full or may not be written."""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import subprocess
from pathlib import Path

import pytest

from dominotree.config import RunConfig
from tests.reliability import processes
from tests.reliability.conftest import Run

NEW_MOUNTS = 0x00020000  # CLONE_NEWNS
NOT_PERMITTED = 77
PAGE = 4096


def mount(kind: str, folder: Path) -> None:
    """Put a file system of its own at `folder`, seen by this process alone; without leave to, end with `NOT_PERMITTED`."""
    folder.mkdir(parents=True, exist_ok=True)
    private = ["mount", "--make-rprivate", "/"]
    if ctypes.CDLL(None).unshare(NEW_MOUNTS) or subprocess.run(private).returncode:
        os._exit(NOT_PERMITTED)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", kind, "tmpfs", str(folder)]).returncode:
        os._exit(NOT_PERMITTED)


def on_a_small_disk(config: RunConfig, size: int, copy: Path) -> None:
    """Measure on a disk of `size` bytes, keep a copy of what stood on it then, make room, and measure again."""
    results = Path(config.results)
    mount(f"size={size}", results)
    try:
        processes.measure(config)
    except SystemExit as refused:
        shutil.copytree(results, copy / "full")
        subprocess.run(["mount", "-o", "remount,size=64m", str(results)], check=True)
        processes.measure(config)
        shutil.copytree(results, copy / "after")
        raise refused from None


def with_short_files(config: RunConfig, limit: int) -> None:
    """Measure where no file may be longer than `limit` bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    processes.measure(config)


def with_a_cache_to_read_only(config: RunConfig) -> None:
    mount("ro", Path(os.environ["DOMINOTREE_CACHE"]))
    processes.measure(config)


@pytest.mark.parametrize("full_while", ["measuring", "records are written"])
def test_a_full_disk(small_run: Run, tmp_path: Path, full_while: str) -> None:
    """The disk (a small tmpfs) is full: while the run is measured, or while its records are written.
    One line. Nothing of what was measured is lost; with room again the same command goes on and completes.
    """
    small_run.complete()
    journal = len(small_run.measured)
    shutil.rmtree(small_run.config.results)
    size = journal if full_while == "measuring" else 2 * journal + 6 * PAGE  # a journal is replaced as a whole
    status = small_run.finish(on_a_small_disk, size, tmp_path / "copy")
    if status == NOT_PERMITTED:
        pytest.skip("this process may not mount a tmpfs")
    assert status == 2, small_run.printed
    (line,) = [line for line in small_run.printed.splitlines() if line.startswith("error: ")]
    assert "No space left on device); make room or choose another folder" in line
    full, after = (tmp_path / "copy" / name for name in ("full", "after"))
    assert not [path for path in full.rglob("*") if path.name.endswith(".partial")]
    Path(small_run.config.results).rmdir()  # where the disk was
    shutil.copytree(full, small_run.config.results)
    before = small_run.measured
    shutil.rmtree(small_run.config.results)
    shutil.copytree(after, small_run.config.results)
    assert before.count("\n") > 1 and small_run.measured.startswith(before)
    assert len(small_run.records()) == 24


def test_a_limit_on_the_length_of_files(small_run: Run) -> None:
    """No file may grow beyond a limit (`ulimit -f`).
    One line. With the limit gone the same command goes on and completes.
    """
    small_run.complete()
    limit = len(small_run.measured) // 2
    shutil.rmtree(small_run.config.folder)
    line = small_run.refused(with_short_files, limit)
    assert "not written (File too large)" in line
    assert small_run.measured.count("\n") > 1
    small_run.complete(small_run.measured)


def test_a_cache_that_may_only_be_read(small_run: Run) -> None:
    """The cache folder (`DOMINOTREE_CACHE`) is mounted read-only.
    One line, before the first prompt; with a cache that can be written the run completes.
    """
    if small_run.finish(with_a_cache_to_read_only) == NOT_PERMITTED:
        pytest.skip("this process may not mount a tmpfs")
    (line,) = [line for line in small_run.printed.splitlines() if line.startswith("error: ")]
    assert "not written (Read-only file system); make room or choose another folder" in line
    assert small_run.measured.count("\n") == 1
    small_run.complete()


def test_a_file_in_place_of_the_cache(small_run: Run) -> None:
    """A file stands where the cache folder should be.
    One line, before the first prompt; without it the run completes.
    """
    cache = Path(os.environ["DOMINOTREE_CACHE"])
    cache.touch()
    assert "not written" in small_run.refused()
    cache.unlink()
    small_run.complete()


def test_results_that_cannot_be_written(small_run: Run) -> None:
    """A file stands where the results folder should be.
    One line, before anything is measured; without it the run completes.
    """
    results = Path(small_run.config.results)
    results.touch()
    assert "not written (Not a directory); choose another folder" in small_run.refused()
    results.unlink()
    small_run.complete()
