"""The tables of a study, made from its records.

    python -m dominotree.reporting.tables table2 --records results/demo/records/main --output results/demo/tables/table2

writes table2.tex, table2.csv and table2.md and prints the last.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from itertools import product
from pathlib import Path

import pandas as pd

from dominotree.config import TrackingConfig, parse
from dominotree.errors import UserError, exit_on_user_error
from dominotree.files import atomic_write
from dominotree.paths import record_file
from dominotree.records import read_metadata, read_records
from dominotree.reporting.latex import to_latex
from dominotree.reporting.layout import Cell, Section, Table, number, to_markdown
from dominotree.reporting.names import arm_title, arms, dataset_title, datasets, families
from dominotree.reporting.notes import Setting, notes, read_setting
from dominotree.stats import BOOTSTRAP_SEED, CONFIDENCE, DRAWS, speedup, throughput_change
from dominotree.tracking import track_run

OVERALL = "Overall"
OURS = "dominotree"
BASELINES = ("domino", "ddtree", "caddtree")
MEASURES = ("speedup", "tps", "tau_per_prompt", "tau_per_round", "tree_nodes")
"""The columns of Table 1's data whose Overall is their mean over datasets."""


def table1(records: pd.DataFrame, setting: Setting) -> Table:
    """Speedup over AR and accepted tokens a round of every arm, by dataset and temperature."""
    names = arms(records)
    _check_complete(records, ["ar", *names])
    data = pd.DataFrame([_measures(records, *place) for place in product(_temperatures(records), datasets(records), names)])
    overall = data.groupby(["temperature", "arm"], as_index=False)[[*MEASURES]].mean()
    rows = data.groupby(["temperature", "arm"], as_index=False).rows.sum()
    data = pd.concat([data, overall.merge(rows).assign(dataset=OVERALL)], ignore_index=True)
    return Table(
        name="table1",
        caption="Speedup over AR (ratio of the rows' mean tok/s, within a run) and accepted tokens a round (τ: mean "
        "over prompts; the CSV file has that over rounds too). Overall: unweighted mean of datasets. Bold: highest of a column.",
        stub="Method",
        groups=(*map(dataset_title, datasets(records)), OVERALL),
        columns=("Speedup", "τ"),
        sections=tuple(_section(temperature, _speedup_rows(part, names)) for temperature, part in data.groupby("temperature")),
        notes=notes(records, setting),
        data=data,
    )


def _measures(records: pd.DataFrame, temperature: float, dataset: str, arm: str) -> dict[str, str | float]:
    here = records[(records.temperature == temperature) & (records.dataset == dataset)]
    rows = here[(here.arm == arm) & (here.num_output > 0)]
    return {
        "temperature": temperature,
        "dataset": dataset,
        "arm": arm,
        "rows": len(rows),
        "speedup": speedup(here, arm),
        "tps": rows.tps.mean(),
        "tau_per_prompt": rows.tau.mean(),
        "tau_per_round": rows.num_output.sum() / rows.rounds.sum(),
        "tree_nodes": rows.tree_nodes.mean(),
    }


def _speedup_rows(data: pd.DataFrame, names: list[str]) -> Iterable[tuple[Cell, ...]]:
    """The rows of one temperature; `data` has the datasets in the columns' order."""
    shown = data.pivot(index="arm", columns="dataset", values=["speedup", "tau_per_prompt"])
    columns = list(product(data.dataset.unique(), ["speedup", "tau_per_prompt"]))
    for arm in names:
        values = [shown[measure, dataset] for dataset, measure in columns]
        yield Cell(arm_title(arm)), *(Cell(number(column[arm]), bold=column[arm] == column.max()) for column in values)


def table2(records: pd.DataFrame, setting: Setting) -> Table:
    """Throughput change of DominoTree over Domino, DDTree and CaDDTree, by category and temperature."""
    ours, *baselines = (_only_arm(records, method) for method in (OURS, *BASELINES))
    records = records[records.arm.isin([ours, *baselines])]
    _check_complete(records, [ours, *baselines])
    data = pd.DataFrame(_changes(records, ours, baselines))
    return Table(
        name="table2",
        caption=f"Throughput change Δ% of {arm_title(ours)} over each baseline (ratio of the rows' mean tok/s, minus 1); "
        f"{CONFIDENCE:.0%} confidence interval (CI): paired bootstrap, stratified by dataset, clustered by conversation, "
        f"{DRAWS:,} draws, seed {BOOTSTRAP_SEED}. Categories and Overall pool rows. Bold: CIs wholly above zero.",
        stub="Category",
        groups=tuple(f"vs. {arm_title(baseline)}" for baseline in baselines),
        columns=("Δ%", f"{CONFIDENCE:.0%} CI"),
        sections=tuple(_section(temperature, _change_rows(part)) for temperature, part in data.groupby("temperature")),
        notes=notes(records, setting),
        data=data,
    )


def _changes(records: pd.DataFrame, ours: str, baselines: list[str]) -> Iterable[dict[str, str | float]]:
    for temperature, category, baseline in product(_temperatures(records), [*families(records), OVERALL], baselines):
        rows = records[(records.temperature == temperature) & ((records.family == category) | (category == OVERALL))]
        change = throughput_change(rows, ours, baseline)
        place = {"temperature": temperature, "category": category.capitalize(), "arm": ours, "baseline": baseline}
        yield place | {"delta_percent": change.point, "ci_low": change.low, "ci_high": change.high, "rows": change.rows}


def _change_rows(data: pd.DataFrame) -> Iterable[tuple[Cell, ...]]:
    """The rows of one temperature; `data` has a category's baselines next to each other, in the columns' order."""
    for category, changes in data.groupby("category", sort=False):
        cells = [Cell(category)]
        for change in changes.itertuples():
            interval = f"[{number(change.ci_low)}, {number(change.ci_high)}]"
            cells += [Cell(number(change.delta_percent)), Cell(interval, bold=change.ci_low > 0)]
        yield tuple(cells)


def _section(temperature: float, rows: Iterable[tuple[Cell, ...]]) -> Section:
    return Section(f"Temperature = {temperature:g}", tuple(rows))


def _temperatures(records: pd.DataFrame) -> list[float]:
    return sorted(records.temperature.unique())


def _only_arm(records: pd.DataFrame, method: str) -> str:
    names = arms(records[records.method == method])
    if not names:
        raise UserError(f"no arm of {method}, which the table needs, only {', '.join(arms(records))}; measure it beside them")
    if len(names) > 1:
        raise UserError(f"several arms of {method}: {', '.join(names)}; name the one to take, as in --arms {names[0]}")
    return names[0]


def _check_complete(records: pd.DataFrame, names: list[str]) -> None:
    """Raise `UserError` naming the file of an arm that is missing at a dataset and temperature of the study."""
    present = set(records[["dataset", "temperature", "arm"]].itertuples(index=False, name=None))
    for place in product(datasets(records), _temperatures(records), names):
        if place not in present:
            raise UserError(f"{record_file(*place)} is missing; measure the study to its end")


def select_arms(records: pd.DataFrame, chosen: Sequence[str]) -> pd.DataFrame:
    """`records` without the arms not `chosen` of methods that have a chosen one: ddtree@32 leaves out ddtree@16, not domino."""
    unknown = sorted(set(chosen) - set(records.arm))
    if unknown:
        raise UserError(f"no records of arm {unknown[0]}; the arms are {', '.join(arms(records))}")
    methods = records.method[records.arm.isin(chosen)].unique()
    return records[records.arm.isin(chosen) | ~records.method.isin(methods)]


def write_table(table: Table, output: Path) -> list[Path]:
    """Write `output`.tex, .csv and .md: all are complete before the first takes its place."""
    texts = {".tex": to_latex(table), ".csv": table.data.to_csv(index=False), ".md": to_markdown(table)}
    files = {output.with_name(output.name + suffix): text for suffix, text in texts.items()}
    with ExitStack() as stack:
        for path, text in files.items():
            stack.enter_context(atomic_write(path)).write_text(text, encoding="utf-8")
    return list(files)


TABLES: dict[str, Callable[[pd.DataFrame, Setting], Table]] = {"table1": table1, "table2": table2}


def make_table(name: str, places: Sequence[Path], output: Path, chosen: Sequence[str] = ()) -> Table:
    """Make table `name` from record files, or those below folders, write it, and log it where those records were logged."""
    paths = [path for place in places for path in _record_files(place)]
    records, setting = read_records(paths), read_setting(paths)
    try:
        table = TABLES[name](select_arms(records, chosen), setting)
    except UserError as error:
        raise UserError(f"{name} from {os.path.commonpath(places)}: {error}") from None
    study, model = records.study.iloc[0], records.model.iloc[0]
    config = {"records": os.path.commonpath(places), "arms": list(chosen), "draws": DRAWS, "seed": BOOTSTRAP_SEED}
    tracking = parse(TrackingConfig, read_metadata(paths[0])["config"].get("tracking", {}), "tracking")
    with track_run(tracking, study, "table", f"{name} {study}", [model, setting.hardware], config) as run:
        files = write_table(table, output)
        run.table(name, table.data)
        run.artifact(f"{name} {study}", "table", files)
    return table


def _record_files(place: Path) -> list[Path]:
    """A record file itself, or all below a folder."""
    if not place.is_dir():
        return [place]
    paths = sorted(place.rglob("*.parquet"))
    if not paths:
        raise UserError(f"{place}: no record files; measure the study first")
    return paths


@exit_on_user_error
def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m dominotree.reporting.tables", description=__doc__.splitlines()[0])
    parser.add_argument("table", choices=TABLES)
    parser.add_argument(
        "--records",
        nargs="+",
        type=Path,
        required=True,
        metavar="PATH",
        help="record files, or folders, searched in depth",
    )
    parser.add_argument("--output", type=Path, required=True, metavar="PATH", help="written with .tex, .csv and .md added")
    parser.add_argument("--arms", nargs="+", default=(), metavar="ARM", help="of methods with several, the one to take")
    options = parser.parse_args(arguments)
    print(to_markdown(make_table(options.table, options.records, options.output, options.arms)))


if __name__ == "__main__":
    main()
