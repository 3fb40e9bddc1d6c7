"""A change of the sources: what the next `snakemake` makes again."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dominotree.compose import load_study
from dominotree.paths import ASSETS
from dominotree.tracking.derived import FIGURE_FILES, TABLE_FILES

ROOT = Path(__file__).parents[2]
TARGETS = ["table2", "figure_speedup", "figure_stages"]


class Copy:
    """A copy of this repository's pipeline with all of the demo study made, and Snakemake on it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.work = folder / "repository", folder / "work"
        for name in ("conf", "profiles", "workflow"):
            shutil.copytree(ROOT / name, self.folder / name)
        shutil.copytree(
            ROOT / "dominotree", self.folder / "dominotree", ignore=lambda at, _: ["assets"] if at == str(ASSETS.parent) else []
        )
        (self.folder / "dominotree/assets").symlink_to(ASSETS)
        for name in ("Snakefile", "environment.yml"):
            shutil.copy(ROOT / name, self.folder)
        study = load_study("demo")
        figures = [study.folder / "figures" / name for name in ("speedup", "stages")]
        made = [
            *study.record_files("main"),
            *(study.folder / "tables" / f"table2{suffix}" for suffix in TABLE_FILES),
            *(figure.with_suffix(suffix) for figure in figures for suffix in FIGURE_FILES),
            Path("cache/SmolLM2-135M-Instruct/model.safetensors"),
        ]
        for path in made:
            (self.work / path).parent.mkdir(parents=True, exist_ok=True)
            (self.work / path).touch()
        self.snakemake("--touch", "--forceall")

    def snakemake(self, *arguments: str) -> str:
        environment = os.environ | {"PYTHONPATH": str(self.folder), "DOMINOTREE_CACHE": str(self.work / "cache")}
        command = [sys.executable, "-m", "snakemake", "--cores", "1", "--directory", str(self.work), *arguments, *TARGETS]
        result = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout + result.stderr

    @contextmanager
    def changed(self, name: str) -> Iterator[str]:
        """The plan after a change of one file of the package."""
        path = self.folder / "dominotree" / name
        text = path.read_text()
        path.write_text(text + "\n# changed\n")
        yield self.snakemake("--dry-run")
        path.write_text(text)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    return Copy(tmp_path_factory.mktemp("copy"))


def jobs(plan: str) -> dict[str, int]:
    """How many jobs of each rule that makes something."""
    found = re.findall(r"^(\w+) +(\d+)$", plan, re.MULTILINE)
    return {rule: int(number) for rule, number in found if rule not in (*TARGETS, "total")}


def test_nothing_changed(copy: Copy) -> None:
    """Nothing.
    Nothing is to be done.
    """
    assert "Nothing to be done" in copy.snakemake("--dry-run")


def test_the_style_of_a_plot(copy: Copy) -> None:
    """The module that draws one figure.
    That figure alone is drawn again; no table is made, nothing is measured.
    """
    with copy.changed("reporting/figures/stages.py") as plan:
        assert jobs(plan) == {"figure": 1}
        assert "figure=stages" in plan and "now: 'reporting/figures/stages.py" in plan


def test_the_bootstrap(copy: Copy) -> None:
    """The bootstrap (`stats.py`).
    Tables and figures are made again; nothing is measured.
    """
    with copy.changed("stats.py") as plan:
        assert jobs(plan) == {"figure": 2, "table": 1}
        assert "now: 'stats.py" in plan


def test_drafting(copy: Copy) -> None:
    """A module of `drafting/`.
    Every run, all of which draft, is measured again, and what is made of it; the reason that Snakemake prints names `drafting`.
    """
    with copy.changed("drafting/heap.py") as plan:
        assert jobs(plan) == {"measure_main": 6, "figure": 2, "table": 1}
        reasons = re.findall(r"Params have changed .*: before: (.*) now: (.*)", plan)
        assert len(reasons) == 6
        for reason in reasons:
            assert all(re.fullmatch(r"\W*drafting \w{16}\W*", side) for side in reason)


def test_the_program(copy: Copy) -> None:
    """The tracking, the journal, or the command line (`tracking`, `journal.py`, `run.py`).
    Nothing is made again: they decide no number.
    """
    with copy.changed("run.py"), copy.changed("journal.py") as plan:
        assert "Nothing to be done" in plan
