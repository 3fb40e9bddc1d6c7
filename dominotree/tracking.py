"""Weights & Biases behind one narrow door: offline by default, nothing at all when disabled, and never fatal.

The project's own files are the truth and W&B mirrors them, so a fault of W&B costs a warning and not a measurement.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from dominotree.config import TrackingConfig

TAG_LENGTH = 64  # W&B refuses longer ones


class TrackedRun:
    """One W&B run, or none: every method does nothing without one, and after the first fault."""

    def __init__(self) -> None:
        self._run: Any = None

    @property
    def id(self) -> str | None:
        """W&B's name of the run, for the metadata of what the run made."""
        return self._run.id if self._run is not None else None

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Points of curves."""
        self._try(lambda run: run.log(dict(values), step=step))

    def summary(self, values: Mapping[str, Any]) -> None:
        """What the run came to."""
        self._try(lambda run: run.summary.update(dict(values)))

    def table(self, name: str, frame: pd.DataFrame) -> None:
        """A table to look at."""

        def log(run: Any) -> None:
            import wandb

            plain = frame.astype(object).where(frame.notna(), None)
            run.log({name: wandb.Table(columns=list(plain.columns), data=plain.to_numpy().tolist())})

        self._try(log)

    def artifact(self, name: str, kind: str, paths: Sequence[Path]) -> None:
        """Files that the run made."""

        def log(run: Any) -> None:
            import wandb

            artifact = wandb.Artifact(re.sub(r"[^\w.-]+", "-", name), kind)
            for path in paths:
                artifact.add_file(str(path), policy="immutable")  # not copied: a file's contents never change under its name
            run.log_artifact(artifact)

        self._try(log)

    def open(self, **settings: Any) -> None:
        """Start the run."""

        def init() -> Any:
            import wandb

            quiet = wandb.Settings(silent=True, console="off", x_disable_stats=True, disable_git=True, save_code=False)
            return wandb.init(settings=quiet, reinit="create_new", **settings)

        self._run = self._guard(init)

    def close(self) -> None:
        """Finish the run."""
        self._try(lambda run: run.finish())

    def _try(self, action: Callable[[Any], None]) -> None:
        if self._run is not None:
            self._guard(lambda: action(self._run))

    def _guard(self, action: Callable[[], Any]) -> Any:
        """Whatever W&B raises becomes a warning, after which the run is given up."""
        try:
            return action()
        except Exception as error:
            self._run = None
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            print(f"warning: W&B failed and logs no more of this run ({reason}); results are not affected", file=sys.stderr)


@contextmanager
def track_run(
    tracking: TrackingConfig, group: str, job_type: str, name: str, tags: Sequence[str], config: Mapping[str, Any]
) -> Iterator[TrackedRun]:
    """Log what the block does as one W&B run. The environment's WANDB_MODE goes before `tracking.mode`.

    group: the study. job_type: the stage. name: for people. Every execution is a run of its own: offline runs cannot be resumed.
    """
    run = TrackedRun()
    mode = os.environ.get("WANDB_MODE") or tracking.mode
    if mode != "disabled":
        run.open(
            mode=mode,
            project=tracking.project,
            entity=tracking.entity,
            dir=tracking.folder,
            group=group,
            job_type=job_type,
            name=name,
            tags=[tag[:TAG_LENGTH] for tag in tags],
            config=dict(config),
        )
    try:
        yield run
    finally:
        run.close()
