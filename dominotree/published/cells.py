"""The authors' numbers, each beside ours, recomputed from their records, and the room that ours leave."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import norm

from dominotree.published.collections import DATASETS, FAMILY, MODELS, Model, leave_out_first_row, read_lines, read_rows
from dominotree.stats import BOOTSTRAP_SEED, DRAWS, TAIL, Resampling, bootstrap, sampled_changes

RELATIVE = 1e-9
"""Of numbers that the authors checked in unrounded."""

AUTHORS_DRAWS = 10_000
LADDER_DRAWS = 5_000
FALSE_ALARM = 1e-3
"""The chance that an audit of right intervals calls any of their ends off."""

POOLED_ROWS = Resampling("row", stratified=False)
"""How the authors resampled: rows of all datasets together."""

NAMES = {
    "gsm8k": "GSM8K",
    "math500": "MATH-500",
    "aime25": "AIME25",
    "humaneval": "HumanEval",
    "mbpp": "MBPP",
    "livecodebench": "LCB",
    "mt-bench": "MT-Bench",
    "alpaca": "Alpaca",
}
GROUPS = {
    **{name: [dataset] for dataset, name in NAMES.items()},
    **{family.capitalize(): [name for name in DATASETS if FAMILY[name] == family] for family in ("math", "code", "chat")},
    "Overall": list(DATASETS),
}
"""The rollups of the authors' pairwise comparisons, as they call them; they pool rows."""

TREE = "dominotree@16"
ARMS = {
    "AR": "ar+caddtree",
    "DFlash": "dflash",
    "DDTree@16": "ddtree@16",
    "CaDDTree": "caddtree",
    "Domino": "domino",
    "DominoTree (16)": TREE,
}
"""Our labels by the names in the authors' tables."""

LADDER = ("marginal@16", "static@16", TREE)
PRINTED_TAU = (6.92, 7.62, 7.98)
PRINTED_STEPS = (10.1, 4.7)
PRINTED_GAINS = {"ladder": (6.57, 5.48, 7.67), "bestladder": (12.56, 11.41, 13.71)}
"""Appendix D: accepted length by arm, its two steps in per cent, and by grid the gain in throughput over both, with interval."""

PRINTED_SAMPLED = {
    ("gsm8k", 0.5): (-3.8, -9.1, -2.1, -5.3),
    ("gsm8k", 1.0): (-3.6, -6.6, -2.9, -5.4),
    ("humaneval", 0.5): (-0.4, -5.1, -0.1, -3.4),
    ("humaneval", 1.0): (-7.9, -10.8, 0.6, -3.1),
    ("alpaca", 0.5): (-9.9, -13.9, -2.1, -4.8),
    ("alpaca", 1.0): (-15.7, -18.1, 1.3, -2.0),
}
"""Table 13: change of tau and throughput in per cent, of the chain and of the tree."""


@dataclass(frozen=True)
class Cell:
    """One published number: what it is, its value, ours, and the range of values that would agree with ours."""

    source: str
    place: str
    quantity: str
    published: float
    recomputed: float
    lowest: float
    highest: float

    @property
    def reproduced(self) -> bool:
        return self.lowest <= self.published <= self.highest


def exact(source: str, place: str, quantity: str, published: float, ours: float) -> Cell:
    """A number that was checked in unrounded."""
    room = RELATIVE * abs(ours)
    return Cell(source, place, quantity, published, ours, ours - room, ours + room)


def printed(source: str, place: str, quantity: str, published: float, ours: float, digits: int) -> Cell:
    """A number that was rounded to `digits` decimals: it agrees if it is a rounding of ours."""
    room = 0.5 * 10**-digits + RELATIVE
    return Cell(source, place, quantity, published, ours, ours - room, ours + room)


def interval_ends(
    source: str, place: str, published: tuple[float, float], samples: np.ndarray, draws: int, deviations: float, room: float = 0.0
) -> Iterator[Cell]:
    """Both ends of a percentile interval that the authors drew `draws` times, against `samples` of the same bootstrap.

    The share of draws below a true quantile has a known standard error, whatever the distribution: ends agree up to `deviations`
    of it, of both samples together, and up to `room`, their rounding.
    """
    error = np.sqrt(TAIL * (1 - TAIL) * (1 / draws + 1 / len(samples)))
    for name, level, value in zip(("ci_low", "ci_high"), (TAIL, 1 - TAIL), published, strict=True):
        levels = np.clip([level - deviations * error, level, level + deviations * error], 0, 1)
        lowest, ours, highest = np.quantile(samples, levels)
        yield Cell(source, place, name, value, float(ours), float(lowest) - room, float(highest) + room)


def deviations_allowed(ends: int) -> float:
    """So many standard errors that none of `ends` right ends of intervals is beyond, but for a chance of FALSE_ALARM."""
    return float(norm.isf(FALSE_ALARM / 2 / ends))


# --- Table 1 and the pairwise comparisons ---------------------------------------------------------------------------------


def speedups(records: pd.DataFrame) -> pd.DataFrame:
    """The authors' Table 1 by temperature, dataset and arm: means of the rows that they keep, speedups over the run's AR."""
    timed = records[records.tps.notna()]
    means = {"tps": ("tps", "mean"), "tau": ("tau", "mean"), "n": ("tps", "size"), "run": ("run", "first")}
    cells = timed.groupby(["temperature", "dataset", "arm"]).agg(**means)
    own_ar = timed[timed.method == "ar"].groupby("run").tps.mean()
    return cells.assign(speedup=cells.tps / cells.run.map(own_ar))


def table1_cells(root: Path, model: Model, suffix: str, records: pd.DataFrame) -> Iterator[Cell]:
    source = f"tables_gpunative/table1_cells{suffix}.csv"
    ours = speedups(records)
    for row in pd.read_csv(root / source).itertuples():
        here, place = ours.loc[row.temp, row.dataset, ARMS[row.method]], f"{row.dataset}, T={row.temp:g}, {row.method}"
        for quantity in ("speedup", "tau", "tps", "n"):
            yield exact(source, place, quantity, getattr(row, quantity), here[quantity])


def pairwise_cells(root: Path, suffix: str, records: pd.DataFrame, deviations: float) -> Iterator[Cell]:
    source = f"tables_gpunative/pairwise_ci{suffix}.csv"
    published = {(row.temp, row.dataset_or_rollup, row.comparison): row for row in pd.read_csv(root / source).itertuples()}
    names = {arm: name for name, arm in ARMS.items()}
    pairs = [(TREE, ARMS[name]) for name in ("Domino", "DDTree@16", "CaDDTree", "DFlash")]
    for at, rows, point, samples in sampled_changes(records, pairs, GROUPS, resampling=POOLED_ROWS):
        row = published.pop((at["temperature"], at["group"], f"{names[TREE]} vs {names[at['baseline']]}"))
        place = f"{row.dataset_or_rollup}, T={row.temp:g}, {row.comparison}"
        yield exact(source, place, "n", row.n, rows)
        yield exact(source, place, "delta_pct", row.delta_pct, point)
        yield from interval_ends(source, place, (row.ci_low, row.ci_high), samples, AUTHORS_DRAWS, deviations)
    for row in published.values():  # a comparison that was not made again is off
        yield exact(source, f"{row.dataset_or_rollup}, T={row.temp:g}, {row.comparison}", "delta_pct", row.delta_pct, np.nan)


def stage_cells(root: Path) -> Iterator[Cell]:
    """Mean stage times per round at temperature 0, builder in Python, the first row of each dataset left out."""
    source = "tables/table2_stage_time.csv"
    folders = {"Domino-chain": ("chain", "chain_stage_timing"), "DominoTree (16)": (TREE, "dominotree_python_builder")}
    for row in pd.read_csv(root / source).itertuples():
        method, folder = folders[row.method]
        rows = read_rows(root / "raw" / folder, temperatures=(0.0,))
        rows = leave_out_first_row(rows[rows.method == method]).dropna(subset="tps")
        stages = rows[["ms_draft", "ms_build", "ms_verify", "ms_commit"]].mean()
        for stage, value in {**stages, "ms_total": stages.sum(), "n": len(rows)}.items():
            yield exact(source, row.method, stage, getattr(row, stage), value)


# --- what the paper printed ----------------------------------------------------------------------------------------------


def ladder_cells(records: Mapping[str, pd.DataFrame], deviations: float) -> Iterator[Cell]:
    """Appendix D. A rollup is the unweighted mean over datasets, of tau and of speedups over the mean AR of each."""
    source, rows = "paper, Appendix D", records["ladder"]
    tau = rows.groupby(["dataset", "arm"]).tau.mean().groupby("arm").mean()[list(LADDER)].to_numpy()
    for arm, value, ours in zip(LADDER, PRINTED_TAU, tau, strict=True):
        yield printed(source, arm, "tau", value, ours, 2)
    for step, value, ours in zip(("correction", "path"), PRINTED_STEPS, 100 * (tau[1:] / tau[:-1] - 1), strict=True):
        yield printed(source, f"gain by the {step}", "delta_tau_pct", value, ours, 1)
    for grid, (point, low, high) in PRINTED_GAINS.items():
        ours, samples = mean_speedup_change(records[grid], TREE, "marginal@16", Resampling("row"))
        place = f"{'matched' if grid == 'ladder' else 'best'} builders, {TREE} vs marginal@16"
        yield printed(source, place, "delta_pct", point, ours, 2)
        yield from interval_ends(source, place, (low, high), samples, LADDER_DRAWS, deviations, room=0.005)


def mean_speedup_change(records: pd.DataFrame, arm: str, baseline: str, resampling: Resampling) -> tuple[float, np.ndarray]:
    """Change in per cent of the unweighted mean over datasets of speedups, and its draws; each mean AR is taken as fixed."""
    wide = records.pivot(index=["dataset", "conversation", "turn"], columns="arm", values="tps")
    per_dataset = wide.groupby("dataset")
    weighted = wide.div(per_dataset.ar.transform("mean") * per_dataset.ar.transform("size"), axis=0)[[arm, baseline]]
    units = weighted if resampling.unit == "row" else weighted.groupby(["dataset", "conversation"]).sum()
    strata = units.index.get_level_values("dataset").to_numpy()
    return bootstrap(units.to_numpy(), strata, lambda sums: 100 * (sums[..., 0] / sums[..., 1] - 1), DRAWS, BOOTSTRAP_SEED)


def sampled_cells(records: pd.DataFrame) -> Iterator[Cell]:
    """Table 13: a sampled draft against a greedy one, ratios of means."""
    source = "paper, Table 13"
    means = records.groupby(["dataset", "temperature", "arm"])[["tau", "tps"]].mean()
    for (dataset, temperature), values in PRINTED_SAMPLED.items():
        here = means.loc[dataset, temperature]
        ours = [100 * (here.loc[f"{arm}+sampled"] / here.loc[arm] - 1) for arm in ("domino", TREE)]
        for place, value in zip([(arm, name) for arm in (0, 1) for name in ("tau", "tps")], values, strict=True):
            arm, name = ("domino", TREE)[place[0]], place[1]
            yield printed(source, f"{dataset}, T={temperature:g}, {arm}", f"delta_{name}_pct", value, ours[place[0]][name], 1)


# --- serving -------------------------------------------------------------------------------------------------------------


def serving_cells(root: Path) -> Iterator[Cell]:
    """serving/PUBLISHED.json, the printed serving tables: goodput under load, and long contexts."""
    published = json.loads((root / "serving" / "PUBLISHED.json").read_text(encoding="utf-8"))
    yield from _concurrency_cells(root / "serving" / "concurrency", published["concurrency"])
    yield from _long_context_cells(root / "serving" / "longcontext", published["longctx"])


def _concurrency_cells(folder: Path, published: Mapping[str, dict]) -> Iterator[Cell]:
    """Means over three datasets, of tau also over all loads."""
    for place, values in published.items():
        if place.startswith("_"):
            continue
        rows = pd.DataFrame(read_lines(folder / place / f"{Path(place).name}.jsonl"))
        goodput = rows.groupby("concurrency").tps.mean()
        for load, value in values["tps"].items():
            yield printed("serving/PUBLISHED.json, concurrency", f"{place}, c={load}", "tps", value, goodput[int(load)], 0)
        if values["tau"] is not None:
            yield printed("serving/PUBLISHED.json, concurrency", place, "tau", values["tau"], rows.mean_accept.mean(), 2)


def _long_context_cells(folder: Path, published: Mapping[str, list[float]]) -> Iterator[Cell]:
    """Means over two tasks, of the prompts' mean tau and of the ratio of the prompts' mean throughput to AR's; AR's tau is 1."""
    for place, values in published.items():
        if place.startswith("_"):
            continue
        size, length, method = place.split("/")
        means = {name: _task_means(folder, size, name, int(length)) for name in (method, "ar")}
        ours = (means[method].accept.mean(), (means[method].tps / means["ar"].tps).mean())
        for quantity, value, mean in zip(("tau", "speedup"), values, ours, strict=True):
            yield printed("serving/PUBLISHED.json, longctx", place, quantity, value, mean, 2)


def _task_means(folder: Path, size: str, method: str, length: int) -> pd.DataFrame:
    rows = pd.DataFrame(read_lines(folder / size / method / f"helmet_{size}.prompts.jsonl"))
    rows = rows[rows.length_bin == length].assign(accept=rows.accept.fillna(1.0))
    return rows.groupby("task")[["accept", "tps"]].mean()


# --- all of them ---------------------------------------------------------------------------------------------------------


def all_cells(root: Path, records: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Every cell: source, place, quantity, published, recomputed, lowest, highest, reproduced."""
    deviations = deviations_allowed(ends=2 * (2 * len(GROUPS) * 4 * 3 + 2))
    cells: list[Cell] = []
    for suffix, model in MODELS.items():
        main = records[f"main{suffix}"]
        cells += [*table1_cells(root, model, suffix, main), *pairwise_cells(root, suffix, main, deviations)]
    cells += [*stage_cells(root), *ladder_cells(records, deviations), *sampled_cells(records["sampled"]), *serving_cells(root)]
    return pd.DataFrame([asdict(cell) | {"reproduced": cell.reproduced} for cell in cells])
