"""The numbers that a text quotes, each under a name: from a study's tables to JSON, and to macros for LaTeX.

    python -m dominotree.reporting.numbers --tables results/demo/tables/*.csv --output results/demo/numbers

writes numbers.json and numbers.tex, so that no number is ever copied by hand. What is `gain_domino_t0` in the JSON file is
\\numGainDominoTZero in a text, and its interval goes from \\numGainDominoTZeroLow to \\numGainDominoTZeroHigh.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pandas as pd

from dominotree.errors import UserError, exit_on_user_error
from dominotree.files import write_together
from dominotree.provenance import NUMBER_SOURCES, source_digests
from dominotree.reporting.latex import escape
from dominotree.reporting.layout import number
from dominotree.reporting.names import kind_of
from dominotree.reporting.tables.parts import OVERALL
from dominotree.tracking.derived import TABLE_FILES, add_tracking_options, made_artifact, made_artifacts, track_command

DIGITS = dict(zip("0123456789", ["Zero", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine"], strict=True))


@dataclass(frozen=True)
class Number:
    """name: words in small letters and digits, joined by `_`. low, high: of an interval or a range, else None."""

    name: str
    value: float | None
    what: str
    low: float | None = None
    high: float | None = None
    digits: int = 2

    def texts(self) -> dict[str, str]:
        """What a text shows of it, by the ending of the macro's name."""
        values = {"": self.value, "Low": self.low, "High": self.high}
        return {ending: number(value, self.digits) for ending, value in values.items() if value is not None}


def macro(name: str) -> str:
    """`gain_domino_t0` -> `numGainDominoTZero`: LaTeX allows letters alone."""
    words = [part.capitalize() for part in name.replace("+", "_").replace(".", "_point_").split("_")]
    return "num" + "".join(DIGITS.get(letter, letter) for letter in "".join(words) if letter.isalnum())


def speedups(data: pd.DataFrame) -> Iterator[Number]:
    """Table 1: the mean speedup and the mean accepted length of every arm, and the highest speedup of all."""
    overall = data[data.dataset == OVERALL]
    for row, place, at in _rows(overall):
        name = _arm(data, row.arm)
        yield Number(f"speedup_{name}_{place}", row.speedup, f"mean speedup of {row.arm} over AR {at}")
        yield Number(f"tau_{name}_{place}", row.tau_per_prompt, f"mean accepted tokens a round of {row.arm} {at}")
    top = data.loc[data[data.dataset != OVERALL].speedup.idxmax()]
    yield Number(
        "highest_speedup", top.speedup, f"highest speedup over AR: {top.arm}, {top.dataset}, temperature {top.temperature:g}"
    )


def gains(data: pd.DataFrame) -> Iterator[Number]:
    """Table 2: the gain over each baseline, pooled, with its interval, and its range over temperatures."""
    overall = data[data.category == OVERALL].assign(kind=lambda rows: rows.baseline.map(kind_of))
    yield from _changes(
        overall, lambda row: f"gain_{row.kind}", lambda row: f"gain in throughput of {row.arm} over {row.baseline} in per cent"
    )
    for kind, rows in overall.groupby("kind", sort=False):
        low, high = rows.delta_percent.min(), rows.delta_percent.max()
        yield Number(
            f"gain_{kind}_range", None, f"gain in throughput over {kind} in per cent: range over temperatures", low, high
        )
    trees = overall[overall.kind != "domino"].groupby("temperature").delta_percent.min()
    what = "gain in throughput over the stronger of DDTree and CaDDTree in per cent: range over temperatures"
    yield Number("gain_strongest_tree_range", None, what, trees.min(), trees.max())


def builders(data: pd.DataFrame) -> Iterator[Number]:
    """Table 3: how much longer the heap takes to build the same tree."""
    rows = data[data.heap_over_frontier.notna()]
    for row, place, at in _rows(rows):
        yield Number(
            f"heap_over_frontier_budget_{row.budget:g}_{place}",
            row.heap_over_frontier,
            f"build time of the heap over the frontier's, budget {row.budget:g} {at}",
        )
    low, high = rows.heap_over_frontier.min(), rows.heap_over_frontier.max()
    yield Number("heap_over_frontier_range", None, "build time of the heap over the frontier's: range over budgets", low, high)


def builder_gains(data: pd.DataFrame) -> Iterator[Number]:
    """Table 4: the gain over the chain under each builder."""
    yield from _changes(
        data, lambda row: f"gain_{row.builder}_budget_{row.budget:g}", lambda row: f"gain of {row.arm} over the chain in per cent"
    )


def budgets(data: pd.DataFrame) -> Iterator[Number]:
    """Table 10: the gain over the chain at each budget, and the best budget."""
    trees = data[data.baseline.notna()]
    yield from _changes(
        trees, lambda row: f"gain_budget_{row.budget:g}", lambda row: f"gain of {row.arm} over the chain in per cent"
    )
    for temperature, rows in trees.groupby("temperature"):
        best = rows.loc[rows.tps.idxmax()]
        yield Number(f"best_budget_t{temperature:g}", best.budget, f"fastest budget at temperature {temperature:g}", digits=0)


def widths(data: pd.DataFrame) -> Iterator[Number]:
    """Table 11: the gain over the chain at each width."""
    yield from _changes(
        data,
        lambda row: f"gain_width_{row.width}_budget_{row.budget:g}",
        lambda row: f"gain of {row.arm} over the chain in per cent",
    )


def ladder(data: pd.DataFrame) -> Iterator[Number]:
    """Table 15: accepted length on each step, and what the steps add to it and to throughput."""
    overall = data[data.dataset == OVERALL]
    for row, place, at in _rows(overall[overall.tau_per_prompt.notna()]):
        yield Number(f"ladder_tau_{kind_of(row.arm)}_{place}", row.tau_per_prompt, f"accepted tokens a round of {row.arm} {at}")
    steps = overall[overall.baseline.notna()]

    def name(row: pd.Series) -> str:
        return f"{kind_of(row.arm)}_over_{kind_of(row.baseline)}"

    yield from _changes(
        steps,
        lambda row: f"ladder_tau_gain_{name(row)}",
        lambda row: f"accepted tokens a round of {row.arm} over {row.baseline} in per cent",
        "tau_",
    )
    yield from _changes(
        steps, lambda row: f"ladder_gain_{name(row)}", lambda row: f"throughput of {row.arm} over {row.baseline} in per cent"
    )


def adaptive(data: pd.DataFrame) -> Iterator[Number]:
    """Appendix A.3: the budget that each rule chose, forecast over realised tokens, and the gain over the fixed budget."""
    overall = data[data.dataset == OVERALL]
    for row, place, at in _rows(overall):
        yield Number(f"nodes_{kind_of(row.arm)}_{place}", row.tree_nodes, f"mean nodes a round of {row.arm} {at}", digits=1)
        yield Number(
            f"forecast_over_tau_{kind_of(row.arm)}_{place}",
            row.forecast_over_tau,
            f"forecast over realised tokens a round of {row.arm} {at}",
        )
    yield from _changes(
        overall[overall.baseline.notna()],
        lambda row: f"gain_{kind_of(row.arm)}_over_fixed",
        lambda row: f"throughput of {row.arm} over {row.baseline} in per cent",
    )


HEADLINES: dict[str, Callable[[pd.DataFrame], Iterator[Number]]] = {
    "table1": speedups,
    "table2": gains,
    "table3": builders,
    "table4": builder_gains,
    "table10": budgets,
    "table11": widths,
    "table15": ladder,
    "tableA3": adaptive,
}


def _arm(data: pd.DataFrame, arm: str) -> str:
    """An arm without its budget, unless there are several of its kind."""
    kind = kind_of(arm)
    return arm.replace("@", "_") if data.arm[data.arm.map(kind_of) == kind].nunique() > 1 else kind


def _rows(data: pd.DataFrame) -> Iterator[tuple[pd.Series, str, str]]:
    """Each row, the ending of its numbers' names and the same in words."""
    for _, row in data.iterrows():
        yield row, f"t{row.temperature:g}", f"at temperature {row.temperature:g}"


def _changes(
    data: pd.DataFrame, name: Callable[[pd.Series], str], what: Callable[[pd.Series], str], prefix: str = ""
) -> Iterator[Number]:
    for row, place, at in _rows(data):
        point, low, high = (row[f"{prefix}{column}"] for column in ("delta_percent", "ci_low", "ci_high"))
        yield Number(f"{name(row)}_{place}", point, f"{what(row)} {at}", low, high)


def collect(paths: Sequence[Path]) -> list[Number]:
    """The headlines of tables, given by their CSV files; names end with the model where a table has several.

    What was not measured (NaN) has no number. Raises `UserError` if a file cannot be read.
    """
    values = []
    for path in (path for path in paths if path.stem in HEADLINES):
        try:
            data = pd.read_csv(path, dtype={"width": str})
        except (OSError, ValueError) as error:
            raise UserError(f"{path}: not the CSV file of a table ({error}); make it again") from None
        for model, rows in data.groupby("model", sort=False):
            ending = f"_{model}" if data.model.nunique() > 1 else ""
            values += [replace(value, name=value.name + ending) for value in HEADLINES[path.stem](rows)]
    return [value for value in values if value.value is None or pd.notna(value.value)]


def write_numbers(values: Sequence[Number], output: Path) -> list[Path]:
    """Write `output`.json and `output`.tex: both are complete before the first takes its place."""
    entries = {
        value.name: {key: entry for key, entry in asdict(value).items() if key not in ("name", "digits")} for value in values
    }
    lines = [
        rf"\newcommand{{\{macro(value.name)}{ending}}}{{{escape(text)}}} % {value.what}"
        for value in values
        for ending, text in value.texts().items()
    ]
    texts = {".json": json.dumps(entries, indent=1, allow_nan=False) + "\n", ".tex": "\n".join(lines) + "\n"}
    return write_together({output.with_name(output.name + suffix): text for suffix, text in texts.items()})


@exit_on_user_error
def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m dominotree.reporting.numbers", description=__doc__.splitlines()[0])
    parser.add_argument("--tables", nargs="+", type=Path, required=True, metavar="FILE", help="CSV files of a study's tables")
    parser.add_argument("--output", type=Path, required=True, metavar="PATH", help="written with .json and .tex added")
    add_tracking_options(parser)
    options = parser.parse_args(arguments)
    values = collect(options.tables)
    with track_command(options, "numbers", {"sources": source_digests(NUMBER_SOURCES)}) as run:
        files = write_numbers(values, options.output)
        run.use("table", made_artifacts(options.tables, options.study, TABLE_FILES))
        run.table("numbers", pd.DataFrame(map(asdict, values)))
        run.artifact(made_artifact("numbers", options.study), "numbers", files)
    print(f"{options.output}.json, {options.output}.tex: {len(values)} numbers")


if __name__ == "__main__":
    main()
