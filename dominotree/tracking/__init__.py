"""Weights & Biases behind one narrow door: offline by default, nothing at all when disabled, and never fatal.

The project's own files are the truth and W&B mirrors them, so a fault of W&B costs a warning and not a measurement.
`python -m dominotree.tracking` lists the runs of a study and makes a workspace for them (docs/tracking.md).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np
import pandas as pd

from dominotree.config import TrackingConfig
from dominotree.errors import UserError
from dominotree.provenance import git_commit, versions
from dominotree.spelling import hint

TAG_LENGTH = 64  # W&B refuses longer ones
MODES = ("offline", "online", "disabled")
QUIET = {
    "silent": True,
    "console": "off",
    "disable_git": True,  # the config says of versions and commit what counts
    "save_code": False,
    "x_disable_stats": True,
    "x_save_requirements": False,
}
PATIENCE = {"init_timeout": 20.0, "finish_timeout": 60.0}
"""Seconds that W&B may take to find its server and to upload what is left, unless WANDB_INIT_TIMEOUT and so on say otherwise."""

Frame = pd.DataFrame | Callable[[], pd.DataFrame]


class TrackedRun:
    """One W&B run, or none: every method does nothing without one, and after the first fault."""

    def __init__(self) -> None:
        self._run: Any = None

    @property
    def id(self) -> str | None:
        """W&B's name of the run, for the metadata of what the run made."""
        return self._run.id if self._run is not None else None

    def log(self, values: Mapping[str, float], step: int, counts: Mapping[str, Sequence[int]] | None = None) -> None:
        """Points of curves, and histograms: a count says how often 0, 1, 2, ... came."""

        def log(run: Any) -> None:
            histograms = {name: _histogram(often) for name, often in (counts or {}).items() if sum(often)}
            run.log({name: value for name, value in values.items() if not pd.isna(value)} | histograms, step=step)

        self._try(log)

    def summary(self, values: Mapping[str, Any]) -> None:
        """What the run came to."""
        self._try(lambda run: run.summary.update({name: value for name, value in values.items() if not pd.isna(value)}))

    def table(self, name: str, frame: Frame) -> None:
        """A table to look at, or what makes it, which is called where there is a run."""

        def log(run: Any) -> None:
            import wandb

            made = frame if isinstance(frame, pd.DataFrame) else frame()
            plain = made.astype(object).where(made.notna(), None)
            run.log({name: wandb.Table(columns=list(plain.columns), data=plain.to_numpy().tolist())})

        self._try(log)

    def image(self, name: str, path: Path) -> None:
        """A picture to look at."""

        def log(run: Any) -> None:
            import wandb

            run.log({name: wandb.Image(str(path))})

        self._try(log)

    def artifact(self, name: str, kind: str, paths: Sequence[Path]) -> None:
        """Files that the run made, as they are now."""
        self._try(lambda run: run.log_artifact(_artifact(name, kind, paths, policy="mutable")))

    def use(self, kind: str, artifacts: Mapping[str, Sequence[Path]]) -> None:
        """What the run was made from: artifacts that other runs logged, by name, with their files.

        `use_artifact` asks the server, which is not there offline. So an artifact is declared once more, as one that this run
        uses: W&B uploads nothing twice, has one artifact of one content, and draws the line from its maker to its users.
        """

        def use(run: Any) -> None:
            for name, paths in artifacts.items():
                used = _artifact(name, kind, paths, policy="immutable")
                run._log_artifact(used, aliases=[], is_user_created=True, use_after_commit=True)
            run.config.update({"inputs": [*run.config.get("inputs", []), *map(artifact_name, artifacts)]}, allow_val_change=True)

        self._try(use)

    def open(self, mode: str, folder: str, **settings: Any) -> None:
        """Start the run; one that cannot start online is kept offline, and so are those after it in this process."""

        def start(mode: str) -> Any:
            import wandb

            patience = {name: seconds for name, seconds in PATIENCE.items() if f"WANDB_{name.upper()}" not in os.environ}
            # W&B's own process writes the files, and stays in the working directory that it was started in.
            place = Path(folder).resolve()
            return wandb.init(settings=wandb.Settings(**QUIET, **patience), mode=mode, dir=place, reinit="create_new", **settings)

        def start_somewhere() -> Any:
            _check_writable(folder)
            if mode == "online":
                try:
                    check_key()
                    return start("online")
                except Exception as error:
                    os.environ["WANDB_MODE"] = "offline"
                    _warn(f"W&B is not to be had online ({_reason(error)}); runs are kept offline, for `wandb sync` to upload")
            return start("offline")

        self._run = self._guard(start_somewhere)

    def close(self) -> None:
        """Finish the run."""
        self._try(lambda run: run.finish())

    def _try(self, action: Callable[[Any], None]) -> None:
        if self._run is not None:
            self._guard(lambda: action(self._run))

    def _guard(self, action: Callable[[], Any]) -> Any:
        """Whatever is raised becomes a warning; the run is given up then, counts as failed, and keeps what it has logged."""
        try:
            return action()
        except Exception as error:
            failed, self._run = self._run, None
            _warn(f"W&B failed and logs no more of this run ({_reason(error)}); results are not affected")
            if failed is not None:
                with suppress(Exception):
                    failed.finish(exit_code=1)


@contextmanager
def track_run(
    tracking: TrackingConfig, group: str, job_type: str, name: str, tags: Sequence[str], config: Mapping[str, Any]
) -> Iterator[TrackedRun]:
    """Log what the block does as one W&B run; versions and commit are added to its config.

    group: the study. job_type: the stage. name: for people. Every execution is a run of its own: offline runs cannot be resumed.
    """
    run = TrackedRun()
    mode = tracking_mode(tracking)
    if mode == "disabled":
        yield run
        return
    with _staging_in(tracking.folder):
        run.open(
            mode=mode,
            folder=tracking.folder,
            project=tracking.project,
            entity=tracking.entity,
            group=group,
            job_type=job_type,
            name=name,
            tags=list(dict.fromkeys(tag[:TAG_LENGTH] for tag in tags)),
            config={"study": group, "stage": job_type, "versions": versions(), "git_commit": git_commit(), **config},
        )
        try:
            yield run
        finally:
            run.close()


def tracking_mode(tracking: TrackingConfig) -> str:
    """How runs are logged: the environment's WANDB_MODE goes before the configuration. Raises `UserError` on an unknown one."""
    mode = os.environ.get("WANDB_MODE") or tracking.mode
    if mode not in MODES:
        raise UserError(f"WANDB_MODE={mode}: not one of {', '.join(MODES)}{hint(mode, MODES)}")
    return mode


def check_tracking(tracking: TrackingConfig) -> None:
    """Raise `UserError` if runs cannot be logged as asked for, to know before anything is computed."""
    mode = tracking_mode(tracking)
    if mode == "disabled":
        return
    try:
        _check_writable(tracking.folder)
    except OSError as error:
        where = Path(tracking.folder, "wandb")
        raise UserError(f"{where}: not writable ({error.strerror}); set tracking.folder, or tracking=disabled") from None
    if mode == "online":
        check_key()


def check_key() -> None:
    """Raise `UserError` if W&B has no key of this person; it would ask for one, where nobody may be looking."""
    import wandb

    if not wandb.login(prompt=False, verify=False):
        raise UserError("no key for W&B, which it needs online; run `wandb login`, set WANDB_API_KEY, or take tracking=offline")


def artifact_name(words: str) -> str:
    """Words as W&B takes them for the name of an artifact."""
    return re.sub(r"[^\w.-]+", "-", words)


def _artifact(name: str, kind: str, paths: Sequence[Path], policy: str) -> Any:
    """policy: `mutable` copies the files, which may be made anew before they are uploaded; `immutable` does not."""
    import wandb

    artifact = wandb.Artifact(artifact_name(name), kind)
    for path in paths:
        artifact.add_file(str(path.resolve()), name=path.name, policy=policy)
    return artifact


def _histogram(often: Sequence[int]) -> Any:
    import wandb

    return wandb.Histogram(np_histogram=(np.array(often), np.arange(len(often) + 1) - 0.5))


def _check_writable(folder: str) -> None:
    """W&B itself would go to a temporary folder instead, and say nothing."""
    Path(folder, "wandb").mkdir(parents=True, exist_ok=True)
    with TemporaryFile(dir=Path(folder, "wandb")):
        pass


@contextmanager
def _staging_in(folder: str) -> Iterator[None]:
    """Keep the files of artifacts beside the runs, so that the folder holds all that an upload needs."""
    if "WANDB_DATA_DIR" in os.environ:
        yield
        return
    os.environ["WANDB_DATA_DIR"] = str(Path(folder, "wandb").resolve())
    try:
        yield
    finally:
        del os.environ["WANDB_DATA_DIR"]


def _reason(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _warn(text: str) -> None:
    print(f"warning: {text}", file=sys.stderr)
