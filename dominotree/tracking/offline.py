"""What the offline runs of a folder hold, read by W&B's own reader: nothing is asked of a server, and no account is needed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from dominotree.errors import UserError
from dominotree.progress import track


@dataclass(frozen=True)
class LoggedArtifact:
    """Files of a run: made by it, or used."""

    name: str
    kind: str
    used: bool
    digest: str
    files: tuple[Path, ...]


@dataclass(frozen=True)
class OfflineRun:
    """One run that was logged offline. history: a row for each step, histograms and tables as W&B describes them."""

    folder: Path
    id: str
    name: str
    study: str
    stage: str
    tags: tuple[str, ...]
    started: datetime
    config: Mapping[str, Any]
    summary: Mapping[str, Any]
    history: tuple[Mapping[str, Any], ...]
    artifacts: tuple[LoggedArtifact, ...]
    finished: bool

    @property
    def synced(self) -> bool:
        """Whether it was uploaded from here."""
        return bool(list(self.folder.glob("*.wandb.synced")))


def read_runs(folder: Path, study: str | None = None) -> list[OfflineRun]:
    """The offline runs below `folder`/wandb of one study, or of all, in the order of their start.

    Raises `UserError` if there are none. A run that was cut short is there with what it had logged.
    """
    files = sorted(Path(folder, "wandb").glob("offline-run-*/*.wandb"))
    runs = [run for run in map(read_run, track("runs", files, len(files))) if run]
    found = [run for run in runs if study in (None, run.study)]
    if not found:
        studies = ", ".join(sorted({run.study for run in runs}))
        raise UserError(
            f"{folder}/wandb: no offline runs{f' of study {study}' if study else ''}{f', only of {studies}' if studies else ''}"
        )
    return sorted(found, key=lambda run: run.started)


def by_level(runs: Sequence[OfflineRun]) -> list[list[OfflineRun]]:
    """Runs that use nothing of the others, then those that use what these made, and so on."""
    makers = {artifact.name: run for run in runs for artifact in run.artifacts if not artifact.used}

    def level(run: OfflineRun) -> int:
        used = {artifact.name for artifact in run.artifacts if artifact.used} & makers.keys()
        return 1 + max((level(makers[name]) for name in used if makers[name].id != run.id), default=-1)

    levels = [(level(run), run) for run in runs]
    return [[run for at, run in levels if at == number] for number in sorted({at for at, _ in levels})]


def read_run(file: Path) -> OfflineRun | None:
    """The run of a .wandb file; None if it was cut short before it had said what it is."""
    found = _Reading()
    for record in _records(file):
        found.add(record["type"], record.get(record["type"], {}))
    return found.run(file.parent) if found.about else None


@dataclass
class _Reading:
    """What the records read so far come to."""

    about: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    artifacts: list[LoggedArtifact] = field(default_factory=list)
    finished: bool = False

    def add(self, kind: str, record: dict[str, Any]) -> None:
        if kind == "run":
            self.about |= {name: value for name, value in record.items() if name != "config"}
            self.config |= record.get("config", {}).get("update", {})
        elif kind == "config":
            self.config |= record.get("update", {})
        elif kind == "summary":
            self.summary |= record.get("update", {})
        elif kind == "history":
            self.history.append(record["item"])
        elif kind == "artifact":
            files = tuple(Path(entry["local_path"]) for entry in record["manifest"].get("contents", []))
            used = record.get("use_after_commit", False)
            self.artifacts.append(LoggedArtifact(record["name"], record["type"], used, record["digest"], files))
        elif kind == "exit":
            self.finished = True

    def run(self, folder: Path) -> OfflineRun:
        return OfflineRun(
            folder=folder,
            id=self.about["run_id"],
            name=self.about.get("display_name", ""),
            study=self.about.get("run_group", ""),
            stage=self.about.get("job_type", ""),
            tags=tuple(self.about.get("tags", ())),
            started=datetime.fromisoformat(self.about["start_time"]),
            config=self.config,
            summary=self.summary,
            history=tuple(self.history),
            artifacts=tuple(self.artifacts),
            finished=self.finished,
        )


def _records(file: Path) -> Iterator[dict[str, Any]]:
    """The records of a .wandb file, as `wandb leet inspect --json` prints them, without the second that starting it takes."""
    from wandb.util import get_core_path

    command = [
        get_core_path(),
        "leet",
        "inspect",
        "--no-observability",
        "--json",
        "--run-file",
        file.resolve(),
        file.parent.parent,
    ]
    printed = subprocess.run(list(map(str, command)), capture_output=True, text=True).stdout
    return map(json.loads, printed.splitlines())
