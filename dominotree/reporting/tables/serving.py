"""Tables 5, 6, 8 and 9, and latencies: what a client measures on a server (Section 4.5). Table 7 is `load`'s.

Throughput is that of a client who waits: the tokens of an answer over the time from sending its prompt to its last token, prefill
included, as the paper's served throughput is.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

import numpy as np
import pandas as pd

from dominotree.errors import UserError
from dominotree.reporting.layout import Cell, Table
from dominotree.reporting.names import arm_title, arms, dataset_title, datasets
from dominotree.reporting.source import Source, arms_of, complete, only_arm
from dominotree.reporting.tables.parts import BOOTSTRAP, CHANGE, CI, OVERALL, change_cells, sections, value
from dominotree.stats import TAIL, sampled_changes

AR, CHAIN, TREE = "ar", "domino", "dominotree"
CLIENT = "ratio of the answers' mean tokens a second, prefill included, at batch size 1"
TAU = "τ: mean over prompts of accepted tokens a round, where the server tells it"
CONTEXTS = {"8k": 8192, "16k": 16384, "32k": 32768}
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


def table5(source: Source) -> Table:
    """Speedup over AR and tau of every served method, by dataset and temperature."""
    data = source.with_paper("table5", source.each_model(lambda records: _speedups(records, "dataset")))
    shown = [*datasets(source.records), OVERALL]
    return Table(
        name="table5",
        caption=f"Serving at batch size 1: speedup over AR ({CLIENT}) and {TAU}. Overall: unweighted mean of datasets. "
        "Bold: highest of a column.",
        stub="Method",
        groups=tuple(map(dataset_title, shown)),
        columns=("Speedup", "τ"),
        sections=sections(data, lambda part: _rows(part, "dataset", shown)),
        notes=source.notes(data),
        data=data,
    )


def table6(source: Source) -> Table:
    """DominoTree's throughput over the chain's, by dataset and temperature; the overall value is the mean of the datasets'."""
    data = source.with_paper("table6", source.each_model(_over_the_chain))

    def rows(part: pd.DataFrame) -> Iterable[tuple[Cell, ...]]:
        for _, row in part.iterrows():
            yield Cell(dataset_title(row.dataset)), *change_cells(row)

    ours = arm_title(data.arm.iloc[0] if data.arm.nunique() == 1 else TREE)
    return Table(
        name="table6",
        caption=f"Serving at batch size 1: throughput change Δ% of {ours} over Domino's chain ({CLIENT}, minus 1); {BOOTSTRAP} "
        "Overall: mean of the datasets' values, its CI from the same draws. Bold: CIs wholly above zero.",
        stub="Dataset",
        groups=(),
        columns=("Δ%", CI),
        sections=sections(data, rows),
        notes=source.notes(data),
        data=data,
    )


def table8(source: Source) -> Table:
    """Speedup over AR and tau as prompts get longer, each the mean over tasks."""
    data = source.with_paper("table8", source.each_model(lambda records: _speedups(_by_context(records), "context")))
    contexts = [context for context in CONTEXTS.values() if context in set(data.context)]
    return Table(
        name="table8",
        caption=f"Long context on HELMET's summarization, by length of the prompt: speedup over AR ({CLIENT}) and {TAU}. Each "
        "value is the mean of the tasks'. Bold: highest of a column.",
        stub="Method",
        groups=tuple(f"{context // 1024}K" for context in contexts),
        columns=("Speedup", "τ"),
        sections=sections(data, lambda part: _rows(part, "context", contexts)),
        notes=source.notes(data),
        data=data,
    )


def table9(source: Source) -> Table:
    """DominoTree's throughput by budget and length of the prompt."""
    data = source.with_paper("table9", source.each_model(_budgets))
    budgets = sorted(data.budget.unique())

    def rows(part: pd.DataFrame) -> Iterable[tuple[Cell, ...]]:
        for context, here in part.groupby("context"):
            cells = {row.budget: value(row, "tps", 1, here.tps.max()) for _, row in here.iterrows()}
            yield Cell(f"{context // 1024}K"), *(cells.get(budget, Cell("")) for budget in budgets)

    return Table(
        name="table9",
        caption="DominoTree's throughput with long prompts (tokens a second, prefill included, at batch size 1; mean of the "
        "tasks) by node budget. Bold: best of a row.",
        stub="Context",
        groups=(),
        columns=tuple(f"B = {budget}" for budget in budgets),
        sections=sections(data, rows),
        notes=source.notes(data),
        data=data,
    )


def latency(source: Source) -> Table:
    """Percentiles of what a client waits for: the first token, each further one, the whole answer."""
    data = source.each_model(_latencies)
    measures = ("first", "next", "whole")

    def rows(part: pd.DataFrame) -> Iterable[tuple[Cell, ...]]:
        for _, row in part.iterrows():
            cells = (value(row, f"{measure}_{name}_ms", 1) for measure, name in product(measures, QUANTILES))
            yield Cell(arm_title(row.arm)), *cells

    return Table(
        name="latency",
        caption="What a client waits for, in ms: the first token, a further one (of an answer on average), the whole answer; "
        "percentiles over answers of all datasets.",
        stub="Method",
        groups=("First token", "Further token", "Whole answer"),
        columns=tuple(QUANTILES),
        sections=sections(data, rows, by=["concurrency"]),
        notes=source.notes(data),
        data=data,
    )


def _waited(records: pd.DataFrame) -> pd.DataFrame:
    """With the client's `tps`: the whole answer over the time that it took. Raises `UserError` if other requests shared that."""
    if (records.concurrency > 1).any():
        raise UserError("records with several requests in flight, where the table needs one at a time")
    return records.assign(tps=((records.num_output + 1) / records.share_s).where(records.num_output > 0))


def _by_context(records: pd.DataFrame) -> pd.DataFrame:
    """With the length of the prompts as a column, from the dataset's name. Raises `UserError` where that has none."""
    lengths = records.dataset.str.rpartition("-")[2].map(CONTEXTS)
    if lengths.isna().any():
        raise UserError(f"dataset {records.dataset[lengths.isna()].iloc[0]} has no length in its name, as infbench-sum-8k has")
    return records.assign(context=lengths.astype(int))


def _measures(records: pd.DataFrame, names: list[str], keys: list[str]) -> pd.DataFrame:
    """Mean throughput and tau by temperature, dataset, arm and `keys`."""
    rows = _waited(complete(records, names)).dropna(subset="tps")
    groups = rows.groupby(["temperature", "dataset", "arm", *keys], sort=False, dropna=False)
    return groups.agg(tps=("tps", "mean"), tau_per_prompt=("tau", "mean"), rows=("tps", "size")).reset_index()


def _speedups(records: pd.DataFrame, by: str) -> pd.DataFrame:
    """A row for each temperature, value of the column `by` and arm; by dataset, one dataset is Overall."""
    names = arms(records)
    if AR not in names:
        raise UserError("no arm of ar, which the table needs as its denominator; measure it beside the others")
    each = _measures(records, names, [] if by == "dataset" else [by])
    base = each[each.arm == AR].set_index(["temperature", "dataset"]).tps
    each["speedup"] = each.tps.to_numpy() / base.reindex(pd.MultiIndex.from_frame(each[["temperature", "dataset"]])).to_numpy()
    # Plain decoding commits a token a pass, whatever a server calls a round.
    each.loc[each.arm == AR, "tau_per_prompt"] = np.nan
    kept = {"speedup": "mean", "tau_per_prompt": "mean", "tps": "mean", "rows": "sum"}
    order = {name: place for place, name in enumerate(names)}
    parts = [each if by == "dataset" else each.groupby(["temperature", by, "arm"]).agg(kept).reset_index()]
    if by == "dataset":
        parts.append(each.groupby(["temperature", "arm"]).agg(kept).reset_index().assign(dataset=OVERALL))
    data = pd.concat(parts, ignore_index=True).assign(place=lambda data: data.arm.map(order))
    return data.sort_values(["temperature", "place"], kind="stable", ignore_index=True)[["temperature", by, "arm", *kept]]


def _rows(data: pd.DataFrame, by: str, shown: Iterable[object]) -> Iterable[tuple[Cell, ...]]:
    """A row for each arm; what a model was not measured on stays empty."""
    cells = {(row[by], row.arm): row for _, row in data.iterrows()}
    best = data.groupby(by)[["speedup", "tau_per_prompt"]].max()
    for arm in data.arm.unique():
        row = [Cell(arm_title(arm))]
        for place, column in product(shown, ("speedup", "tau_per_prompt")):
            here = cells.get((place, arm))
            row.append(Cell("") if here is None else value(here, column, best=best[column][place]))
        yield tuple(row)


def _over_the_chain(records: pd.DataFrame) -> pd.DataFrame:
    """DominoTree's change over the chain, by temperature and dataset, and the mean of the datasets' with its interval."""
    tree, chain = only_arm(records, TREE), only_arm(records, CHAIN)
    rows = _waited(complete(records, [tree, chain]))
    found = pd.DataFrame(
        [
            {"temperature": place["temperature"], "dataset": place["group"], "rows": count, "point": point, "draws": draws}
            for place, count, point, draws in sampled_changes(rows, [(tree, chain)], {name: [name] for name in datasets(rows)})
        ]
    )
    means = found.groupby("temperature").agg(
        {"rows": "sum", "point": "mean", "draws": lambda draws: np.mean(list(draws), axis=0)}
    )
    found = pd.concat([found, means.reset_index().assign(dataset=OVERALL)], ignore_index=True)
    low, high = (found.draws.map(lambda draws, q=q: float(np.quantile(draws, q))) for q in (TAIL, 1 - TAIL))
    data = found.assign(arm=tree, baseline=chain, delta_percent=found.point, ci_low=low, ci_high=high)
    columns = ["temperature", "dataset", "arm", "baseline", "rows", *CHANGE]
    return data.sort_values("temperature", kind="stable", ignore_index=True)[columns]


def _budgets(records: pd.DataFrame) -> pd.DataFrame:
    """Mean over tasks of the mean throughput, by temperature, length and budget."""
    trees = arms_of(records, TREE)
    each = _measures(_by_context(records), trees, ["context", "budget"])
    data = each.groupby(["temperature", "context", "arm", "budget"]).agg({"tps": "mean", "tau_per_prompt": "mean", "rows": "sum"})
    return data.reset_index().sort_values(["temperature", "context", "budget"], ignore_index=True)


def _latencies(records: pd.DataFrame) -> pd.DataFrame:
    """Percentiles by temperature, concurrency and arm. Raises `UserError` if answers were not streamed."""
    rows = records[records.num_output > 0]
    if rows.groupby(["temperature", "concurrency", "arm"]).prefill_s.count().eq(0).any():
        raise UserError("answers that were not streamed have no time to the first token; set stream: true for the grid")
    rows = rows.dropna(subset="prefill_s")  # of an answer without text, as one of special tokens alone is
    waits = pd.DataFrame(
        {
            "temperature": rows.temperature,
            "concurrency": rows.concurrency,
            "arm": rows.arm,
            "first": 1000 * rows.prefill_s,
            "next": 1000 * rows.decode_s / rows.num_output,
            "whole": 1000 * (rows.prefill_s + rows.decode_s.fillna(0)),  # what came in one piece was whole then
        }
    )
    groups = waits.groupby(["temperature", "concurrency", "arm"])
    data = groups.size().rename("rows").to_frame()
    for measure, (name, part) in product(("first", "next", "whole"), QUANTILES.items()):
        data[f"{measure}_{name}_ms"] = groups[measure].quantile(part)
    order = {name: place for place, name in enumerate(arms(rows))}
    return data.reset_index().sort_values(
        ["temperature", "concurrency", "arm"], key=lambda column: column.map(order).fillna(column), ignore_index=True
    )
