"""A killed Snakemake, and two of them."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.pipeline import SMALL, finish

Start = Callable[..., subprocess.Popen]
KILLS = 6
ALL = [f"demo-small main chat t0.5 chat-{number:02d}" for number in range(4)]


def measured(folder: Path) -> list[str]:
    """The conversations that were measured, in order, as the stand-in notes them."""
    log = folder / "measured"
    return log.read_text().splitlines() if log.exists() else []


def start_and_pause(snakemake: Start, folder: Path) -> subprocess.Popen:
    """A Snakemake whose job has measured two conversations and waits before the third."""
    (folder / "pause").touch()
    process = snakemake("table2", "--config", *SMALL)
    while len(measured(folder)) < 2:
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.1)
    return process


def refused(process: subprocess.Popen) -> str:
    """The one line of ours with which Snakemake, or its job, stops."""
    output, _ = process.communicate()
    assert process.returncode != 0, output
    lines = [line for line in output.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, output
    return lines[0]


def test_two_snakemakes_on_one_study(snakemake: Start, tmp_path: Path) -> None:
    """A second Snakemake is started on a study, then the first is killed with all that it started (SIGKILL).
    The second stops with one line that names the first; the next one goes on, and no conversation is lost or measured twice.
    """
    first = start_and_pause(snakemake, tmp_path)
    line = refused(snakemake("table2", "--config", *SMALL))
    assert line.endswith(
        f"study.lock: another process is at work on study demo-small (process {first.pid}); wait for it or end it"
    )
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    (tmp_path / "pause").unlink()
    finish(snakemake("table2", "--config", *SMALL))
    assert measured(tmp_path) == ALL
    assert (tmp_path / "results/demo-small/tables/table2.md").is_file()


@pytest.mark.slow
def test_snakemake_alone_is_killed(snakemake: Start, tmp_path: Path) -> None:
    """Snakemake alone is killed, and the job that it started lives on.
    The next one stops with one line while that job measures; after it, all is taken from the journal, and nothing measured again.
    """
    first = start_and_pause(snakemake, tmp_path)
    first.kill()
    first.wait()
    assert "another process is measuring this run" in refused(snakemake("table2", "--config", *SMALL))
    (tmp_path / "pause").unlink()
    while len(measured(tmp_path)) < len(ALL):
        time.sleep(0.1)
    time.sleep(2)  # while the job writes its records
    finish(snakemake("table2", "--config", *SMALL))
    assert measured(tmp_path) == ALL


@pytest.mark.slow
def test_snakemake_is_killed_at_random_moments(snakemake: Start, tmp_path: Path) -> None:
    """SIGKILL of Snakemake and all that it started, at 6 random moments.
    The next one goes on; in the end every conversation is measured once.
    """
    moment = random.Random(0)
    began = time.monotonic()
    finish(snakemake("table2", "--dry-run", "--config", *SMALL))
    start_up = time.monotonic() - began
    for _ in range(KILLS):
        process = snakemake("table2", "--config", *SMALL)
        time.sleep(moment.uniform(0.8, 2.5) * start_up)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    finish(snakemake("table2", "--config", *SMALL))
    assert measured(tmp_path) == ALL


@pytest.mark.slow
def test_the_clock_is_set_back_between_stages(snakemake: Start, tmp_path: Path) -> None:
    """The clock is set back between two stages, so that one finds its input (here the target) to be of the future.
    Snakemake stops with a message that names both files and the clock, and takes the stage's output away. Once the clock has
    caught up the study completes, its records made from the journal: nothing is measured again.
    """
    (target,) = (tmp_path / "cache").rglob("model.safetensors")
    os.utime(target, (time.time() + 3600,) * 2)
    process = snakemake("table2", "--config", *SMALL)
    output, _ = process.communicate()
    assert process.returncode != 0 and "has older modification time" in output and "clock" in output
    assert measured(tmp_path) == ALL and not [*(tmp_path / "results").rglob("*.parquet")]
    os.utime(target)
    finish(snakemake("table2", "--config", *SMALL))
    assert measured(tmp_path) == ALL
