"""Browse what was tracked: python -m dominotree.tracking {runs,workspace} [STUDY].

runs        list the offline runs of a study, with their numbers, how to browse them here and how to upload them
workspace   make a W&B workspace for a study, online: speedup and tau by dataset, stage times, budget curves
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from dominotree.config import TrackingConfig
from dominotree.errors import UserError, exit_on_user_error
from dominotree.tracking import check_key
from dominotree.tracking.offline import OfflineRun, by_level, read_runs
from dominotree.tracking.workspace import make_workspace

HEADLINES = ("tps", "speedup", "tau", "divergent")
NOTHING = "-"


def list_runs(folder: Path, study: str | None, stage: str | None) -> None:
    """Print the offline runs, and what to do with them."""
    runs = [run for run in read_runs(folder, study) if stage in (None, run.stage)]
    if not runs:
        raise UserError(f"{folder}/wandb: no offline runs of stage {stage}")
    left = [run for run in runs if not run.synced]
    print(to_table(runs).to_string(index=False))
    print(f"\n{len(runs)} runs, {len(runs) - len(left)} uploaded")
    print(f"browse them here, without an account:  wandb leet {shlex.quote(str(folder / 'wandb'))}")
    if left:
        print("upload them, in this order, so that an artifact is there before what was made from it:")
    for level in by_level(left):
        print(" \\\n    ".join(["wandb sync", *(shlex.quote(str(run.folder)) for run in level)]))


def to_table(runs: Sequence[OfflineRun]) -> pd.DataFrame:
    """A row for each run, in the words of a person."""
    rows = [
        {
            "study": run.study,
            "stage": run.stage,
            "grid": run.config.get("grid") or NOTHING,
            "run": run.name,
            **{name: NOTHING if run.summary.get(name) is None else f"{run.summary[name]:.4g}" for name in HEADLINES},
            "state": "uploaded" if run.synced else "whole" if run.finished else "cut short",
            "id": run.id,
        }
        for run in runs
    ]
    return pd.DataFrame(rows)


@exit_on_user_error
def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m dominotree.tracking", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="{runs,workspace}")
    runs = commands.add_parser("runs", help="list offline runs")
    runs.add_argument("study", nargs="?", help="one study alone, as demo")
    runs.add_argument("--folder", type=Path, default=Path(TrackingConfig().folder), help="where the runs' wandb/ lies")
    runs.add_argument("--stage", metavar="NAME", help="runs of one stage alone: measure, compare, table, figure, ...")
    workspace = commands.add_parser("workspace", help="make a workspace online")
    workspace.add_argument("study")
    workspace.add_argument("--entity", metavar="NAME", help="the W&B user or team that it belongs to")
    workspace.add_argument("--project", default=TrackingConfig().project, metavar="NAME")
    options = parser.parse_args(arguments)
    if options.command == "runs":
        list_runs(options.folder, options.study, options.stage)
        return
    tracking = TrackingConfig(mode="online", project=options.project, entity=options.entity)
    made = make_workspace(options.study, tracking)
    check_key()
    print(made.save().url)


if __name__ == "__main__":
    main()
