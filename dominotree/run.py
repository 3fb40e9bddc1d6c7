"""Measure one run, or sweep over several: python -m dominotree.run [group=option ...] [key=value ...] [-m] [--help]."""

from __future__ import annotations

from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from dominotree.compose import runs_from_command_line
from dominotree.config import RunConfig
from dominotree.errors import exit_on_user_error
from dominotree.journal import measured_by
from dominotree.needs import seconds_of, work
from dominotree.outputs import side_by_side
from dominotree.paths import record_file
from dominotree.prompts import load_dataset
from dominotree.records import write_records
from dominotree.stats import goodput
from dominotree.tracking import check_tracking
from dominotree.tracking.measured import log_arm, log_comparison, records_artifact, track_arm


def measure_run(config: RunConfig) -> None:
    """Measure a run, write a record file and a W&B run for each arm, and print what came out.

    A run that was cut short goes on where it stopped, and record files that were lost are made from the journal again.
    """
    # These need torch, so only once the configuration is known to be right.
    from dominotree.commits import commits, pin
    from dominotree.hardware import gpu_clocks
    from dominotree.loading import resolve_device
    from dominotree.measure import measure
    from dominotree.models.target import ATTENTION

    check_tracking(config.tracking)
    device = resolve_device(config.engine.device)  # first: a machine without the GPU that is asked for need not ask the Hub
    config = pin(config)
    point = config.point.replace(" ", "-")
    journal = config.folder / "journals" / f"{point}-{config.digest}.jsonl"
    records = measure(config, journal)
    metadata = {
        "commits": commits(config),
        "config": asdict(config),
        "digest": config.digest,
        "attention": ATTENTION,
        "dtype": config.model.dtype,
        "gpu_clocks": gpu_clocks(device),  # while it is still warm
        **measured_by(journal),
    }
    totals = summary(records)
    paths = [write_arm(config, rows, metadata, totals.loc[arm]) for arm, rows in records.groupby("arm", sort=False)]
    for stale in set(paths[0].parent.glob("*.parquet")) - set(paths):
        stale.unlink()  # an arm of an earlier run: only arms of one run are compared
    for superseded in set(journal.parent.glob(f"{point}-{'?' * len(config.digest)}.jsonl")) - {journal}:
        superseded.unlink()  # of the same run under an earlier configuration or earlier sources
    print(f"\n{config.label}\n{totals.to_string()}\nrecords: {paths[0].parent}{_grid_left(config)}\n", flush=True)
    files = dict(zip(totals.index, paths, strict=True))
    log_comparison(config, metadata, totals, files, lambda: _answers(config, records))


def write_arm(config: RunConfig, rows: pd.DataFrame, metadata: dict[str, Any], total: pd.Series) -> Path:
    """Write the records of one arm, log them as one W&B run, and return the file. total: what the arm came to."""
    arm = rows.arm.iloc[0]
    path = config.records / record_file(config.dataset.name, config.temperature, arm)
    artifact = records_artifact(config, arm)
    with track_arm(config, metadata, rows) as run:
        write_records(rows, path, metadata | {"wandb": run.id, "artifact": artifact})
        log_arm(run, rows, total, artifact, path)
    return path


def _answers(config: RunConfig, records: pd.DataFrame) -> pd.DataFrame:
    """Every prompt-turn with all arms' answers as text."""
    from dominotree.models.target import load_tokenizer

    tokenizer = load_tokenizer(config.model.target, config.model.revision)
    path = Path(config.dataset.path).expanduser() if config.dataset.path else None
    prompts = load_dataset(config.dataset.name, config.dataset.num_prompts, path, hub=config.dataset.hub)
    return side_by_side(records, {prompt.id: prompt.turns for prompt in prompts}, tokenizer.decode)


def summary(records: pd.DataFrame) -> pd.DataFrame:
    """By arm: mean tokens a second, speedup over AR where there is AR, accepted tokens a round, rows that differ from AR.

    Of several requests in flight, tokens a second are those that each had, and `goodput` what all had together.
    """
    arms = records.groupby("arm", sort=False)
    table = pd.DataFrame({"tok/s": arms.tps.mean().round(2)})
    if (records.concurrency > 1).any():
        table["goodput"] = goodput(records).round(2)
    if "ar" in table.index:
        table["speedup"] = (table["tok/s"] / table.loc["ar", "tok/s"]).round(3)
    table["tau"] = (arms.num_output.sum() / arms.rounds.sum()).round(3)
    table["divergent"] = arms.divergence.agg(lambda first: int((first >= 0).sum()))
    return table


def _grid_left(config: RunConfig) -> str:
    """How many runs of the grid are measured, and how long the others should take."""
    if config.grid is None:
        return ""
    grid = config.grids[config.grid]
    points = product(grid.datasets, grid.temperatures)
    runs = [replace(config, dataset=replace(config.dataset, name=dataset), temperature=t) for dataset, t in points]
    measured = [(work(run), seconds) for run in runs if (seconds := seconds_of(run)) is not None]
    rate = sum(seconds for _, seconds in measured) / sum(expected for expected, _ in measured)
    left = rate * (sum(map(work, runs)) - sum(expected for expected, _ in measured))
    done = f"{len(measured)} of {len(runs)} runs measured, about {left / 60:.0f} min left"
    return f"\nstudy {config.study_name}, grid {config.grid}: {done}"


@exit_on_user_error
def main() -> None:
    for config in runs_from_command_line():
        measure_run(config)


if __name__ == "__main__":
    main()
