"""What W&B gets of a run: an own run for each arm, and one that sets the arms beside each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pandas as pd

from dominotree.config import RunConfig
from dominotree.tracking import TrackedRun, artifact_name, track_run

STAGES = ("draft_ms", "build_ms", "verify_ms", "commit_ms")
PER_ROUND = (*STAGES, "tree_nodes", "forecast")
CURVES = ("tps", "tau", "num_output", *PER_ROUND)
"""What the run of an arm shows prompt by prompt."""

LISTS = ("accept_hist", "nodes_by_bin", "forecast_by_bin", "accepted_by_bin", "output_ids")
"""Columns that a table to look at has no place for."""


def records_artifact(config: RunConfig, arm: str) -> str:
    """The name under which W&B keeps the records of an arm of a run."""
    return artifact_name(f"records {config.label} {arm}")


def track_arm(config: RunConfig, metadata: Mapping[str, Any], rows: pd.DataFrame) -> AbstractContextManager[TrackedRun]:
    """The W&B run of one arm. metadata: of its record file. rows: its records."""
    row = rows.iloc[0]
    about = {"arm": row.arm, "method": row.method, "budget": None if pd.isna(row.budget) else int(row.budget)}
    return _track(config, metadata, "measure", f"{row.arm} {_place(config)}", (row.method,), about)


def log_arm(run: TrackedRun, rows: pd.DataFrame, total: Mapping[str, Any], artifact: str, path: Path) -> None:
    """Log an arm's records, written to `path`, prompt by prompt. total: what they came to."""
    most = rows.accept_hist.map(len).max()
    for step, row in enumerate(rows.itertuples()):
        counts = {"prompt/accepted": row.accept_hist + [0] * (most - len(row.accept_hist))}
        run.log({f"prompt/{name}": getattr(row, name) for name in CURVES}, step, counts)
    run.table("records", rows.drop(columns=list(LISTS)))
    run.summary({**_named(total), **rows[list(PER_ROUND)].mean()})
    run.artifact(artifact, "records", [path])


def log_comparison(
    config: RunConfig,
    metadata: Mapping[str, Any],
    totals: pd.DataFrame,
    paths: Mapping[str, Path],
    answers: Callable[[], pd.DataFrame],
) -> None:
    """Log as one W&B run what the arms of a run came to (`totals`, by arm) and answered, from their record files `paths`."""
    with _track(config, metadata, "compare", _place(config)) as run:
        run.use("records", {records_artifact(config, arm): [path] for arm, path in paths.items()})
        run.summary({f"{name}/{arm}": value for arm, row in totals.iterrows() for name, value in _named(row).items()})
        run.summary({"seconds": metadata["seconds"]})
        run.table("arms", totals.rename_axis("arm").reset_index())
        run.table("prompts", answers)


def _track(
    config: RunConfig,
    metadata: Mapping[str, Any],
    stage: str,
    name: str,
    tags: tuple[str, ...] = (),
    about: Mapping[str, Any] | None = None,
) -> AbstractContextManager[TrackedRun]:
    """A W&B run with the configuration of a run, and all that is known of how its numbers came about."""
    hardware, known = metadata["hardware"], {key: value for key, value in metadata.items() if key != "config"}
    tags = (config.model.name, hardware.get("gpu") or hardware["cpu"], *tags, *([config.grid] if config.grid else []))
    return track_run(config.tracking, config.study_name, stage, name, tags, metadata["config"] | known | (about or {}))


def _named(total: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of an arm by names that W&B does not take for folders."""
    return {"tps" if name == "tok/s" else name: value for name, value in total.items()}


def _place(config: RunConfig) -> str:
    return f"{config.dataset.name} t{config.temperature:g}"
