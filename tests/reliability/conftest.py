"""A small run of tiny models whose process can be killed."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest

from dominotree.compose import compose_run
from dominotree.config import RunConfig
from dominotree.records import read_records
from tests.reliability import processes
from tests.reliability.document import Writer

ARMS = "arms=[ar,domino,caddtree,dominotree@8]"


@dataclass(frozen=True)
class Run:
    """A run of tiny models, measured by processes of their own. output: where they write."""

    config: RunConfig
    output: Path

    @property
    def journal(self) -> Path:
        """Its only one, whatever the digest in its name."""
        folder = self.config.folder / "journals"
        return next(folder.glob("*.jsonl"), folder / "none yet")

    @property
    def measured(self) -> str:
        """What the journal says, which may grow and never change."""
        return self.journal.read_text() if self.journal.exists() else ""

    @property
    def printed(self) -> str:
        return self.output.read_text()

    def start(self, action: Callable[..., None] = processes.measure, *more: object) -> processes.BaseProcess:
        return processes.start(self.output, os.environ, action, self.config, *more)

    def finish(self, action: Callable[..., None] = processes.measure, *more: object) -> int:
        return processes.run(self.output, os.environ, action, self.config, *more)

    def refused(self, action: Callable[..., None] = processes.measure, *more: object) -> str:
        """The one line with which a process stops."""
        assert self.finish(action, *more) == 2, self.printed
        (line,) = [line for line in self.printed.splitlines() if line.startswith("error: ")]
        assert "Traceback" not in self.printed
        return line

    def records(self) -> pd.DataFrame:
        return read_records(sorted(self.config.records.rglob("*.parquet")))

    def complete(self, before: str = "") -> None:
        """Finish the run, and hold that what was measured `before` stands in the records as it was."""
        assert self.finish() == 0, self.printed
        assert self.measured.startswith(before)
        assert self.measured.count("\n") == 1 + self.config.dataset.num_prompts
        assert len(self.records()) == len(self.config.arms) * self.config.dataset.num_prompts


@pytest.fixture
def small_run(tiny_overrides: list[str], tmp_path: Path) -> Run:
    """Six prompts, four arms."""
    config = compose_run([*tiny_overrides, ARMS, "dataset=math", "dataset.num_prompts=6"])
    return Run(config, tmp_path / "output")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--write-reliability", action="store_true", help="write docs/reliability.md from this run of tests/reliability"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--write-reliability", default=False):
        config.pluginmanager.register(Writer())
