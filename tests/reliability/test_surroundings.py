"""Other processes, the clock, and the tracking service."""

from __future__ import annotations

import os
import time
from itertools import count
from pathlib import Path

from dominotree.config import RunConfig, TrackingConfig
from tests.reliability import processes
from tests.reliability.conftest import Run


def with_a_clock_going_back(config: RunConfig) -> None:
    """Measure while the system's clock loses an hour at every look."""
    hours = count()
    time.time = lambda: 1.8e9 - 3600 * next(hours)
    processes.measure(config)


def test_two_processes_on_one_run(small_run: Run, tmp_path: Path) -> None:
    """A second process measures a run that is being measured.
    One line that names the first process; that one completes. When it is killed instead, nothing keeps the next one out.
    """
    first = small_run.start()
    while not small_run.journal.exists():
        assert first.is_alive(), small_run.printed
        time.sleep(0.01)
    second = Run(small_run.config, tmp_path / "second")
    os.kill(first.pid, 19)  # SIGSTOP, so that it cannot be through before the second begins
    line = second.refused()
    assert line.endswith(f".jsonl.lock: another process is measuring this run (process {first.pid}); wait for it or end it")
    first.kill()
    first.join()
    small_run.complete(small_run.measured)


def test_a_clock_that_goes_back(small_run: Run) -> None:
    """The clock is set back while a run is measured.
    The run completes, and its times are those of a clock that only goes forward.
    """
    assert small_run.finish(with_a_clock_going_back) == 0, small_run.printed
    records = small_run.records()
    assert len(records) == 24 and (records.decode_s[records.rounds > 0] > 0).all()


def test_a_tracking_folder_that_cannot_be_written(small_run: Run) -> None:
    """W&B's folder cannot be written.
    One line, before anything is measured; with `tracking=disabled`, or a folder that can be written, the run completes.
    """
    object.__setattr__(small_run.config, "tracking", TrackingConfig("offline", folder=small_run.config.results))
    wandb = Path(small_run.config.results) / "wandb"
    wandb.parent.mkdir()
    wandb.touch()
    assert f"{wandb}: not writable" in small_run.refused()
    assert not small_run.journal.exists()
    object.__setattr__(small_run.config, "tracking", TrackingConfig("disabled"))
    small_run.complete()
