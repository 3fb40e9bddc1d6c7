"""What several tables are built of: means by arm, changes against a baseline, and sections of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import pandas as pd

from dominotree.reporting.layout import Cell, Section, interval, measured
from dominotree.reporting.names import dataset_title, datasets
from dominotree.stats import BOOTSTRAP_SEED, CONFIDENCE, DRAWS, throughput_changes

OVERALL = "Overall"
STAGES = ("draft", "build", "verify", "commit")
MEANS = [*(f"{stage}_ms" for stage in STAGES), "tps", "tree_nodes", "forecast"]
CI = f"{CONFIDENCE:.0%} CI"
BOOTSTRAP = (
    f"{CONFIDENCE:.0%} confidence interval (CI): paired bootstrap, stratified by dataset, clustered by conversation, "
    f"{DRAWS:,} draws, seed {BOOTSTRAP_SEED}."
)
"""What a caption says of its intervals."""

CHANGE = ["delta_percent", "ci_low", "ci_high"]


def means(records: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Means over each group's rows with a throughput; `round_ms` adds up the stages, `tau_per_round` weighs rows by rounds."""
    rows = records[records.tps.notna()].assign(round_ms=lambda rows: rows[[f"{stage}_ms" for stage in STAGES]].sum(axis=1))
    groups = rows.groupby(list(by), sort=False)
    data = groups[[*MEANS, "round_ms"]].mean()
    sums = groups[["num_output", "rounds"]].sum()
    data = data.assign(tau_per_prompt=groups.tau.mean(), tau_per_round=sums.num_output / sums.rounds, rows=groups.size())
    return data.reset_index()


def overall_and_each(records: pd.DataFrame) -> dict[str, list[str]]:
    """All datasets pooled, then each alone."""
    return {OVERALL: datasets(records)} | {dataset: [dataset] for dataset in datasets(records)}


def pooled_means(records: pd.DataFrame) -> pd.DataFrame:
    """`means` by temperature, dataset and arm, where one dataset is Overall: all rows pooled."""
    each = means(records, ["temperature", "dataset", "arm"])
    return pd.concat([means(records, ["temperature", "arm"]).assign(dataset=OVERALL), each], ignore_index=True)


def changes(records: pd.DataFrame, pairs: Iterable[tuple[str, str]], groups: Mapping[str, Sequence[str]]) -> pd.DataFrame:
    """Throughput changes of (arm, baseline) pairs, by temperature and group of datasets; the change is in columns `CHANGE`."""
    return throughput_changes(records, list(pairs), groups)


def tau_changes(records: pd.DataFrame, pairs: Iterable[tuple[str, str]], groups: Mapping[str, Sequence[str]]) -> pd.DataFrame:
    """The same of the mean over prompts of accepted tokens a round: its rows are resampled alike."""
    return throughput_changes(records.assign(tps=records.tau), list(pairs), groups)


def sections(
    data: pd.DataFrame, rows: Callable[[pd.DataFrame], Iterable[tuple[Cell, ...]]], by: Sequence[str] = ()
) -> tuple[Section, ...]:
    """A section for each model, temperature and value of the columns `by`, titled by what differs."""
    keys = ["model", "temperature", *by]
    models = data.model.nunique() > 1

    def title(model: str, temperature: float, *values: object) -> str:
        parts = [
            *([model] if models else []),
            f"temperature = {temperature:g}",
            *(dataset_title(v) if name == "dataset" else f"{name} = {v}" for name, v in zip(by, values, strict=True)),
        ]
        text = ", ".join(parts)
        return text if models else text[0].upper() + text[1:]

    return tuple(Section(title(*place), tuple(rows(part))) for place, part in data.groupby(keys, sort=False))


def value(row: pd.Series, column: str, digits: int = 2, best: float = np.nan) -> Cell:
    """The cell of one number of a row, bold if it is the best of its column, with the paper's if the row has that."""
    return measured(row[column], digits, row[column] == best, row.get(f"paper_{column}", np.nan))


def change_cells(row: pd.Series, prefix: str = "") -> tuple[Cell, Cell]:
    """A change with its interval, which is bold if it lies wholly above zero."""
    point, low, high = (f"{prefix}{column}" for column in CHANGE)
    ends = (row.get(f"paper_{low}", np.nan), row.get(f"paper_{high}", np.nan))
    return value(row, point), interval(row[low], row[high], row[low] > 0, ends)
