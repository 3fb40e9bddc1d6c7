"""The bootstrap's speed on one core, and its agreement with a plain loop over 500 draws.

    python -m benchmarks.bootstrap [--records results/published/records] [--json FILE]

A model's intervals are those of the paper's comparisons: 3 temperatures, 4 baselines, 12 groups of datasets, 430 rows an arm, and
both units of resampling, 288 intervals of 10 000 draws. With a study's record files it also times all of its tables, reading
included. Times are CPU seconds.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet
import torch

from dominotree.hardware import describe_hardware
from dominotree.published.cells import GROUPS
from dominotree.reporting.catalogue import TABLES
from dominotree.reporting.tables.__main__ import make_table
from dominotree.stats import BOOTSTRAP_SEED, DRAWS, PROTOCOL, Resampling, throughput_change, throughput_changes

SIZES = {dataset: 30 if dataset == "aime25" else 50 for dataset in GROUPS["Overall"]}
SPEEDS = {"ar": 1.0, "dflash": 3.0, "ddtree@16": 3.5, "caddtree": 3.5, "domino": 3.6, "dominotree@16": 4.0}
PAIRS = [("dominotree@16", baseline) for baseline in ("domino", "ddtree@16", "caddtree", "dflash")]
UNITS = {"conversations within datasets": PROTOCOL, "rows of all datasets": Resampling("row", stratified=False)}
LOOP_DRAWS = 500
TIMES = 10
"""So many times the rows: it may take so many times the time."""


@dataclass(frozen=True)
class Row:
    """intervals: 0 where tables decide how many."""

    what: str
    rows: int
    intervals: int
    seconds: float


def records(times: int = 1) -> pd.DataFrame:
    """Records as the bootstrap needs them, of a model at three temperatures, with so many times the paper's prompts."""
    random = np.random.default_rng(0)
    places = [
        (temperature, dataset, f"{number:05d}", turn)
        for temperature, (dataset, size) in product((0.0, 0.5, 1.0), SIZES.items())
        for number in range(times * size)
        for turn in range(2 if dataset == "mt-bench" else 1)
    ]
    frame = pd.DataFrame(places, columns=["temperature", "dataset", "conversation", "turn"]).assign(run="one")
    return pd.concat(
        frame.assign(arm=arm, method=arm.partition("@")[0], tps=60 * speed * random.lognormal(0, 0.4, len(frame)))
        for arm, speed in SPEEDS.items()
    )


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def model_intervals(frame: pd.DataFrame, resamplings: Iterable[Resampling] = UNITS.values()) -> None:
    for resampling in resamplings:
        throughput_changes(frame, PAIRS, GROUPS, resampling=resampling)


def ends_by_loop(frame: pd.DataFrame, arm: str, baseline: str) -> tuple[float, float]:
    """The ends of `throughput_change` with LOOP_DRAWS draws, made by adding up rows, one conversation after the other."""
    totals = np.zeros((LOOP_DRAWS, 2))
    for dataset, part in frame.groupby("dataset"):
        random = np.random.default_rng([BOOTSTRAP_SEED, *dataset.encode()])
        arms = [[rows.tps.tolist() for _, rows in part[part.arm == name].groupby("conversation")] for name in (arm, baseline)]
        for draw in range(LOOP_DRAWS):
            taken = random.integers(len(arms[0]), size=len(arms[0]))
            totals[draw] += [sum(value for index in taken for value in conversations[index]) for conversations in arms]
    low, high = np.quantile(100 * (totals[:, 0] / totals[:, 1] - 1), [0.025, 0.975])
    return float(low), float(high)


def make_all_tables(folder: Path) -> None:
    """Every table for which the study has a grid, from its record files."""
    with tempfile.TemporaryDirectory() as output:
        for name, reads in TABLES.items():
            if places := [path for path in sorted(folder.iterdir()) if path.name.partition("_")[0] == reads.grid]:
                make_table(name, places, Path(output, name))


def measure(folder: Path | None) -> tuple[list[Row], float]:
    """All rows of the report, and how far the ends by a loop are from the package's."""
    one, ten = records(), records(TIMES)
    model_intervals(one)  # warm up
    half = len(PAIRS) * len(GROUPS) * one.temperature.nunique()
    rows = [Row(f"a model, {name}", len(one), half, seconds(partial(model_intervals, one, [way]))) for name, way in UNITS.items()]
    rows.append(Row("a model, both", len(one), 2 * half, seconds(lambda: model_intervals(one))))
    rows.append(Row(f"a model, both, {TIMES} times the rows", len(ten), 2 * half, seconds(lambda: model_intervals(ten))))
    cold = one[one.temperature == 0]
    rows.append(Row(f"one, {LOOP_DRAWS} draws in a loop", len(cold), 1, seconds(lambda: ends_by_loop(cold, *PAIRS[0]))))
    change = throughput_change(cold, *PAIRS[0], draws=LOOP_DRAWS)
    apart = max(abs(a - b) for a, b in zip(ends_by_loop(cold, *PAIRS[0]), (change.low, change.high), strict=True))
    if folder:
        count = sum(pyarrow.parquet.read_metadata(path).num_rows for path in folder.rglob("*.parquet"))
        rows.append(Row(f"all tables of {folder}", count, 0, seconds(lambda: make_all_tables(folder))))
    return rows, apart


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bootstrap", description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=Path, metavar="DIR", help="a study's folder of record files, to time its tables")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there as well")
    options = parser.parse_args(arguments)
    rows, apart = measure(options.records)
    print(f"{'':60} {'rows':>8} {'intervals':>9} {'seconds':>8}")
    for row in rows:
        print(f"{row.what:60} {row.rows:8} {row.intervals:9} {row.seconds:8.3f}")
    print(f"ends of the interval of {LOOP_DRAWS} draws, loop against package: at most {apart:.1e} per cent apart")
    result = {
        "draws": DRAWS,
        "apart": apart,
        "rows": [asdict(row) for row in rows],
        "hardware": describe_hardware(torch.device("cpu")),
    }
    print(json.dumps(result))
    if options.json:
        options.json.write_text(json.dumps(result, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
