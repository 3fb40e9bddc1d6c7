"""What is odd in the authors' data, each with how many of how many: counted, not judged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pandas as pd

from dominotree.published.archive import read_manifest
from dominotree.published.collections import (
    DATASETS,
    MODELS,
    PLACE,
    TEMPERATURES,
    Model,
    first_difference,
    read_decoder,
    read_rows,
)
from dominotree.reporting.layout import Cell, Section, Table

EOS = (151643, 151645)
"""Of Qwen3: either ends a text."""

DRIFT = 0.05
"""A change of speed that is more than noise: the differences between methods that the paper reports begin here."""

Counts = tuple[int, int]


@dataclass(frozen=True)
class Anomaly:
    """count and of: how many of how many; `of` is 0 where the model's data cannot show it."""

    theme: str
    what: str
    model: str
    count: int
    of: int


@dataclass(frozen=True)
class Collections:
    """The rows of one model's main collections, own harness and CaDDTree's, and of Domino's decoder in both modes."""

    own: pd.DataFrame
    reference: pd.DataFrame
    decoder: pd.DataFrame


def read_collections(root: Path, model: Model) -> Collections:
    raw = root / model.raw
    modes = [read_decoder(raw / "domino_official" / f"qwen3-{model.size}", mode) for mode in ("graph", "eager")]
    own, reference = read_rows(raw / "dominotree"), read_rows(raw / "baseline_ddtree_caddtree")
    return Collections(own, reference, pd.concat(modes, ignore_index=True))


# --- outputs -------------------------------------------------------------------------------------------------------------


def until_eos(tokens: Sequence[int]) -> list[int]:
    """The tokens up to the first EOS, with it."""
    end = next((place for place, token in enumerate(tokens) if token in EOS), len(tokens))
    return list(tokens[: end + 1])


def tokens_after_eos(rows: pd.DataFrame) -> Counts:
    """Of the drafted rows whose published beginning holds an EOS, those that go on after it."""
    rows = rows[rows.method != "ar"]
    ended = rows[rows["head"].map(lambda head: any(token in EOS for token in head))]
    return int((ended["head"].map(lambda head: len(until_eos(head))) < ended.num_output).sum()), len(ended)


def differs_from_ar(rows: pd.DataFrame, method: str) -> pd.Series:
    """Whether the beginning of `method`'s output, up to EOS, differs from AR's at temperature 0; index PLACE."""
    heads = rows[rows.temperature == 0].pivot(index=PLACE, columns="method", values="head").map(until_eos)
    differs = [first_difference(*pair) is not None for pair in zip(heads[method], heads["ar"], strict=True)]
    return pd.Series(differs, index=heads.index)


def divergent(rows: pd.DataFrame, method: str) -> Counts:
    """Rows of `differs_from_ar`; 8B's main collection has no chain."""
    differs = differs_from_ar(rows, method) if method in set(rows.method) else pd.Series(dtype=bool)
    return int(differs.sum()), len(differs)


def other_second_prompts(rows: pd.DataFrame) -> Counts:
    """Of MT-Bench's second turns at temperature 0, those whose prompt holds another first answer than AR's."""
    differs = differs_from_ar(rows, "dominotree@16").xs("mt-bench", level="dataset")
    first = differs[differs.index.get_level_values("turn") == 0]
    return int(first.sum()), len(first)


# --- accounting ----------------------------------------------------------------------------------------------------------


def tau_beyond_output(rows: pd.DataFrame) -> Counts:
    """Rows whose tau counts at least two tokens more than were put out, or fewer: those after the end, cut from the output."""
    if "rounds" not in rows:
        return 0, 0
    drafted = rows[rows.tau > 1]
    return int(((drafted.tau * drafted.rounds - drafted.num_output).abs() > 1.5).sum()), len(drafted)


def prefill_counted(rows: pd.DataFrame) -> Counts:
    """AR rows that put out a token more than there were rounds: the one that prefill gave counts, its time does not."""
    if "rounds" not in rows:
        return 0, 0
    ar = rows[rows.method == "baseline"]
    return int((ar.num_output > ar.rounds).sum()), len(ar)


def same_tau(rows: pd.DataFrame) -> Counts:
    """CaDDTree's rows at temperature 0 with the tau of DDTree, whose budget is its cap."""
    tau = rows[rows.temperature == 0].pivot(index=PLACE, columns="method", values="tau")
    return int((tau.caddtree == tau.ddtree_tb16).sum()), len(tau)


# --- comparisons ---------------------------------------------------------------------------------------------------------


def reused_ar(rows: pd.DataFrame, method: str) -> Counts:
    """AR rows above temperature 0 with the very speed of temperature 0: measured once, counted again."""
    speeds = rows[rows.method == method].pivot(index=["dataset", "conversation", "turn"], columns="temperature", values="tps")
    warm = [temperature for temperature in TEMPERATURES if temperature > 0]
    return sum(int((speeds[temperature] == speeds[0.0]).sum()) for temperature in warm), len(warm) * len(speeds)


def faster_rounds(rows: pd.DataFrame, methods: Sequence[str]) -> Counts:
    """Of methods and datasets, those whose rounds are over DRIFT faster at temperature 0.5 than at 0."""
    rows = rows[rows.method.isin(methods)]
    rates = (rows.tps / rows.tau).groupby([rows.method, rows.dataset, rows.temperature]).mean().unstack()
    return int((rates[0.5] / rates[0.0] > 1 + DRIFT).sum()), len(rates)


def other_sessions(root: Path, model: Model, own: pd.DataFrame) -> Counts:
    """Datasets whose AR is over DRIFT off between the main collection and the ladder, which is 4B's: one arm, two sessions."""
    if model is not MODELS[""]:
        return 0, 0
    ladder = read_rows(root / "conditioning_ladder" / "matched_builder", temperatures=(0.0,))
    main, later = (rows[(rows.method == "ar") & (rows.temperature == 0)].groupby("dataset").tps.mean() for rows in (own, ladder))
    return int(((later / main - 1).abs() > DRIFT).sum()), len(main)


# --- files ---------------------------------------------------------------------------------------------------------------


def without_files(root: Path, model: Model, method: str) -> Counts:
    """Serving settings at batch size 1 for which there is no file of `method`."""
    folder = root / "serving" / "bs1" / model.size / method
    settings = list(product(DATASETS, TEMPERATURES))
    return sum(not (folder / f"{dataset}_T{temperature}.jsonl").is_file() for dataset, temperature in settings), len(settings)


def copied_tables(model: Model) -> Counts:
    """Files of `tables/`, which are of 4B, that are byte for byte those of `tables_gpunative/`."""
    if model is not MODELS[""]:
        return 0, 0
    manifest = read_manifest()
    names = [name.removeprefix("tables/") for name in manifest if name.startswith("tables/")]
    return sum(manifest[f"tables/{name}"] == manifest.get(f"tables_gpunative/{name}") for name in names), len(names)


# --- all -----------------------------------------------------------------------------------------------------------------


def anomalies(root: Path) -> pd.DataFrame:
    """All of both models: columns theme, what, model, count, of."""
    return pd.DataFrame(anomaly for model in MODELS.values() for anomaly in _of_model(root, model))


def _of_model(root: Path, model: Model) -> Iterator[Anomaly]:
    rows = read_collections(root, model)
    themes = {
        "Outputs": _outputs(rows),
        "Accounting": _accounting(rows),
        "Comparisons": _comparisons(root, model, rows),
        "Files": _files(root, model),
    }
    for theme, counts in themes.items():
        for what, (count, of) in counts.items():
            yield Anomaly(theme, what, model.name, count, of)


def _outputs(rows: Collections) -> dict[str, Counts]:
    return {
        "own harness, drafted: tokens after EOS, of rows with EOS in their first 128 tokens": tokens_after_eos(rows.own),
        "own harness, T = 0, tree: first 128 tokens up to EOS differ from AR's": divergent(rows.own, "dominotree@16"),
        "own harness, T = 0, chain: the same": divergent(rows.own, "chain"),
        "MT-Bench, T = 0, tree: second turns that continue another answer than AR's": other_second_prompts(rows.own),
    }


def _accounting(rows: Collections) -> dict[str, Counts]:
    return {
        "CaDDTree's harness, drafted: τ times rounds is two tokens or more off the output": tau_beyond_output(rows.reference),
        "Domino's decoder: the same": tau_beyond_output(rows.decoder),
        "CaDDTree's harness, AR: the token of prefill counts as output": prefill_counted(rows.reference),
        "CaDDTree, T = 0: τ is DDTree's, whose budget is its cap": same_tau(rows.reference),
    }


def _comparisons(root: Path, model: Model, rows: Collections) -> dict[str, Counts]:
    drafted = [name for name in rows.reference.method.unique() if name != "baseline"]
    faster = faster_rounds(rows.reference, drafted)
    return {
        "own harness: AR rows above T = 0 that are those of T = 0": reused_ar(rows.own, "ar"),
        "CaDDTree's harness: the same": reused_ar(rows.reference, "baseline"),
        "CaDDTree's harness: methods and datasets with rounds over 5 % faster at T = 0.5 than at 0": faster,
        "own harness, tree: datasets of which that holds": faster_rounds(rows.own, ["dominotree@16"]),
        "datasets whose AR is over 5 % off between main collection and ladder": other_sessions(root, model, rows.own),
    }


def _files(root: Path, model: Model) -> dict[str, Counts]:
    return {
        "serving, batch size 1: settings without AR": without_files(root, model, "ar"),
        "serving, batch size 1: settings without DominoTree": without_files(root, model, "dominotree"),
        "files of tables/ that are copies of tables_gpunative/": copied_tables(model),
    }


def anomaly_table(data: pd.DataFrame) -> Table:
    models = list(data.model.unique())

    def row(what: str, part: pd.DataFrame) -> tuple[Cell, ...]:
        by_model = part.set_index("model")
        counts = [by_model.loc[model, column] if by_model.of[model] else "" for model in models for column in ("count", "of")]
        return Cell(what), *(Cell(str(count)) for count in counts)

    sections = [
        Section(theme, tuple(row(what, rows) for what, rows in part.groupby("what", sort=False)))
        for theme, part in data.groupby("theme", sort=False)
    ]
    return Table(
        name="published_anomalies",
        caption="What is odd in the authors' data: so many of so many rows, or of what is named. Empty: the data do not show it.",
        stub="What",
        groups=tuple(models),
        columns=("Count", "Of"),
        sections=tuple(sections),
        notes=("Rounds that are faster above T = 0, over an AR of T = 0, make the speedups there too high.",),
        data=data,
    )
