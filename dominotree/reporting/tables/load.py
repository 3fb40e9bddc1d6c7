"""Table 7: goodput, the tokens a second of all requests together, as more of them are in flight (Section 4.5.2)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from dominotree.reporting.layout import Cell, Table, interval
from dominotree.reporting.names import arm_title, arms, datasets
from dominotree.reporting.source import Source, complete, only_arm
from dominotree.reporting.tables.parts import BOOTSTRAP, sections, value
from dominotree.stats import goodput, goodput_changes

CHAIN = "domino"


def table7(source: Source) -> Table:
    """Goodput by arm and concurrency, its change over Domino's chain, and tau."""
    data = source.with_paper("table7", source.each_model(_goodputs))
    levels = _levels(data)

    def rows(part: pd.DataFrame) -> Iterable[tuple[Cell, ...]]:
        best = {f"goodput_c{c}": part[f"goodput_c{c}"].max() for c in levels}
        for _, row in part.iterrows():
            goodputs = [value(row, column, 1, highest) for column, highest in best.items()]
            yield Cell(arm_title(row.arm)), *goodputs, value(row, "tau")
        for _, row in part[part.arm != part.baseline].iterrows():
            yield Cell(f"{arm_title(row.arm)}: Δ%"), *(value(row, f"delta_percent_c{c}", 1) for c in levels), Cell("")
            yield Cell("CI"), *(_interval(row, c) for c in levels), Cell("")

    return Table(
        name="table7",
        caption="Goodput: output tokens of all requests a second, prefill included, with so many requests in flight at any time "
        f"(c); mean over datasets. Δ%: its change over Domino's chain; {BOOTSTRAP} τ: mean over prompts of accepted tokens a "
        "round, over all c. Bold: best of a column, and CIs wholly above zero.",
        stub="Method",
        groups=(),
        columns=(*(f"c = {c}" for c in levels), "τ"),
        sections=sections(data, rows),
        notes=source.notes(data),
        data=data,
    )


def _levels(data: pd.DataFrame) -> list[int]:
    prefix = "goodput_c"
    return sorted(int(column.removeprefix(prefix)) for column in data if column.startswith(prefix))


def _interval(row: pd.Series, c: int) -> Cell:
    low, high = row[f"ci_low_c{c}"], row[f"ci_high_c{c}"]
    return interval(low, high, low > 0)


def _goodputs(records: pd.DataFrame) -> pd.DataFrame:
    """A row for each temperature and arm, with columns for each concurrency."""
    return pd.concat([_at(rows, temperature) for temperature, rows in records.groupby("temperature")], ignore_index=True)


def _at(records: pd.DataFrame, temperature: float) -> pd.DataFrame:
    chain, names = only_arm(records, CHAIN), arms(records)
    budgets = records.drop_duplicates("arm").set_index("arm").budget.reindex(names)
    data = pd.DataFrame({"temperature": temperature, "arm": names, "budget": budgets.to_numpy(), "baseline": chain})
    levels = {int(c): complete(rows, names) for c, rows in records.groupby("concurrency")}
    for c, rows in levels.items():
        data[f"goodput_c{c}"] = goodput(rows).reindex(names).to_numpy()
    others = [name for name in names if name != chain]
    for c, rows in levels.items():
        found = goodput_changes(rows, others, chain, datasets(rows)).reindex(names)
        for column in ("delta_percent", "ci_low", "ci_high"):
            data[f"{column}_c{c}"] = found[column].to_numpy()
    tau = records.groupby("arm").tau.mean().reindex(names)
    return data.assign(tau=np.where(data.arm.map(records.drop_duplicates("arm").set_index("arm").method) == "ar", np.nan, tau))
