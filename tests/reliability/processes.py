"""Runs in processes of their own, to be killed and starved; forked from one that has imported everything, which saves time."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable, Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path

from dominotree.config import RunConfig
from dominotree.errors import exit_on_user_error

FORK = multiprocessing.get_context("forkserver")
FORK.set_forkserver_preload(["dominotree.run", "dominotree.measure", "tests.reliability.processes"])


def measure(config: RunConfig) -> None:
    """What `python -m dominotree.run` does with a configuration."""
    from dominotree.run import measure_run

    exit_on_user_error(measure_run)(config)


def start(output: Path, environment: Mapping[str, str], action: Callable[..., None], *arguments: object) -> BaseProcess:
    """Do `action` in another process, which writes to the file `output` and knows no other environment."""
    process = FORK.Process(target=_within, args=(output, dict(environment), action, arguments))
    process.start()
    return process


def run(output: Path, environment: Mapping[str, str], action: Callable[..., None], *arguments: object) -> int:
    """`start` and wait: the exit status."""
    process = start(output, environment, action, *arguments)
    process.join()
    return process.exitcode


def _within(output: Path, environment: dict[str, str], action: Callable[..., None], arguments: tuple[object, ...]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, sys.stdout.fileno())
    os.dup2(descriptor, sys.stderr.fileno())
    action(*arguments)
