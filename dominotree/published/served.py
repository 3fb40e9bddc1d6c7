"""What the authors measured as a client of SGLang, as records of the study `published`: at batch size 1, and with long prompts.

Their time is that of the whole answer, prefill included, and their tokens are all of it, the first one too; a tau is the
server's, tokens over verifications. Under load they published sums for each dataset, of which no record of a prompt can be made;
`cells` recomputes those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from dominotree.published.collections import (
    AR,
    CHAIN,
    DATASETS,
    FAMILY,
    MODELS,
    TEMPERATURES,
    TREE,
    Arm,
    Model,
    completed,
    read_lines,
    read_rows,
)

METHODS = {
    "ar": AR,
    "eagle3": Arm("eagle3", "eagle3", "eagle3"),
    "dflash": Arm("dflash", "dflash", "dflash"),
    "domino_chain": CHAIN,
    "dominotree": TREE,
}
"""The arms by the names of their folders."""

UNNAMED = METHODS | {"dominotree": Arm("dominotree", "dominotree", "domino")}
"""The same where no budget is told: Qwen3-8B, and long prompts."""

SETTINGS: Mapping[str, tuple[Sequence[str], Sequence[float], Mapping[str, Arm]]] = {
    "": (DATASETS, TEMPERATURES, METHODS),
    "_8b": (tuple(name for name in DATASETS if name != "livecodebench"), TEMPERATURES[:1], UNNAMED),
}
"""Datasets, temperatures and arms of each model that were measured with every method: of Qwen3-8B some are without AR or tree."""


def served_records(root: Path, suffix: str) -> pd.DataFrame:
    """The records of one of `MODELS` at batch size 1."""
    model, (datasets, temperatures, arms) = MODELS[suffix], SETTINGS[suffix]
    folder = root / "serving" / "bs1" / model.size
    rows = pd.concat(
        [read_rows(folder / method, datasets, temperatures).assign(method=method) for method in arms], ignore_index=True
    )
    rows = rows.rename(columns={"sampling_seed": "seed", "signature": "output_sha", "decode_s": "seconds"})
    return _answers(rows.assign(family=rows.dataset.map(FAMILY), limit=512), arms, model, "on SGLang")


def long_context_records(root: Path, model: Model) -> pd.DataFrame:
    """The records with HELMET's long prompts."""
    folder = root / "serving" / "longcontext" / model.size
    rows = pd.DataFrame(
        [row | {"method": name} for name in UNNAMED for row in read_lines(folder / name / f"helmet_{model.size}.prompts.jsonl")]
    )
    renamed = {"idx": "conversation", "input_tokens": "num_input", "output_tokens": "num_output", "accept": "tau"}
    rows = rows.rename(columns=renamed | {"decode_time": "seconds", "gen_cap": "limit"})
    names = rows.task.str.replace("_", "-") + "-" + (rows.length_bin // 1024).astype(str) + "k"
    rows = rows.assign(dataset=names, temperature=0.0, turn=0, family="summary", tau=rows.tau.fillna(1.0))
    return _answers(rows, UNNAMED, model, "on SGLang, HELMET")


def _answers(rows: pd.DataFrame, arms: Mapping[str, Arm], model: Model, run: str) -> pd.DataFrame:
    """Records of whole answers: `num_output` counts all their tokens, `seconds` all their time, `limit` is their longest."""
    kept = ("dataset", "temperature", "conversation", "turn", "family", "tau", "seed", "num_input", "output_sha")
    frame = rows[[name for name in kept if name in rows]].assign(
        num_output=rows.num_output - 1,
        share_s=rows.seconds,
        stop_reason=["length" if row.num_output >= row.limit else "eos" for row in rows.itertuples()],
    )
    return completed(frame, [arms[name] for name in rows.method], model, run)
