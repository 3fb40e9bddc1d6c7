"""W&B runs of what is made from the files of other runs: what they use, and how a command without records knows where to log."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dominotree.config import TrackingConfig, parse
from dominotree.records import read_metadata
from dominotree.tracking import TrackedRun, artifact_name, track_run

TABLE_FILES = (".tex", ".csv", ".md", ".html")
FIGURE_FILES = (".pdf", ".png", ".csv", ".tex")


def record_artifacts(paths: Sequence[Path]) -> dict[str, list[Path]]:
    """The record files that a run has logged, by the name of their artifact."""
    names = {path: read_metadata(path).get("artifact") for path in paths}
    return {name: [path] for path, name in names.items() if name}


def made_artifact(name: str, study: str) -> str:
    """The name under which W&B keeps a table or figure of a study."""
    return artifact_name(f"{name} {study}")


def made_artifacts(paths: Sequence[Path], study: str, suffixes: Sequence[str]) -> dict[str, list[Path]]:
    """Tables or figures of a study, of which `paths` are one file each: all their files, by artifact."""
    found = {made_artifact(path.stem, study): [path.with_suffix(suffix) for suffix in suffixes] for path in paths}
    return {name: files for name, files in found.items() if all(file.is_file() for file in files)}


def add_tracking_options(parser: argparse.ArgumentParser) -> None:
    """For a command that reads no records, which would say where they were logged."""
    parser.add_argument("--study", default="", metavar="NAME", help="log this as a W&B run of a study")
    parser.add_argument(
        "--tracking", type=json.loads, default={}, metavar="JSON", help="how to log it, in the words of conf/tracking/ as JSON"
    )


@contextmanager
def track_command(options: argparse.Namespace, stage: str, config: dict[str, Any]) -> Iterator[TrackedRun]:
    """The W&B run of a command with `add_tracking_options`: none where it was told no study."""
    tracking = parse(TrackingConfig, options.tracking if options.study else {"mode": "disabled"}, "tracking")
    with track_run(tracking, options.study, stage, f"{stage} {options.study}", (), config) as run:
        yield run
