"""Records without a measurement behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from dominotree.records import validate

HARDWARE = {"cpu": "Some CPU", "cores": 2, "threads": 2}
CONFIG = {"model": {"name": "tiny", "dtype": "float32"}, "tracking": {"mode": "disabled"}}
METADATA = {"config": CONFIG, "hardware": HARDWARE}
TOKENS_A_ROUND = {"ar": 1}
"""Of all other methods: 3."""


def record(
    *, arm: str = "ar", dataset: str = "math", num_output: int = 12, decode_s: float = 0.5, **changes: Any
) -> dict[str, Any]:
    """One record, as plain Python values that agree with each other; `changes` then replace columns."""
    head, *_ = arm.split("+")
    method, _, budget = head.partition("@")
    tau = TOKENS_A_ROUND.get(method, 3)
    rounds = num_output // tau
    per_round = 4.0 if num_output else np.nan
    values = {
        "study": "demo",
        "run": "run-1",
        "model": "tiny",
        "drafter": "" if method == "ar" else "drafter",
        "arm": arm,
        "method": method,
        "budget": int(budget) if budget else None,
        "dataset": dataset,
        "family": dataset,
        "temperature": 0.0,
        "conversation": f"{dataset}-01",
        "turn": 0,
        "prompt_sha": "a1",
        "concurrency": 1,
        "seed": 0,
        "num_input": 20,
        "num_output": num_output,
        "stop_reason": "length" if num_output else "eos",
        "prefill_s": 0.1,
        "decode_s": decode_s,
        "share_s": 0.1 + decode_s,
        "tps": num_output / decode_s if num_output else np.nan,
        "rounds": rounds,
        "tau": float(tau) if num_output else np.nan,
        "accept_hist": [0] * tau + [rounds],
        "draft_ms": per_round,
        "build_ms": per_round,
        "verify_ms": per_round,
        "commit_ms": per_round,
        "tree_nodes": per_round,
        "forecast": np.nan,
        "nodes_by_bin": [],
        "forecast_by_bin": [],
        "accepted_by_bin": [],
        "output_sha": "b2",
        "output_ids": [5] * num_output,
        "divergence": -1,
        "margin": np.nan,
    }
    return values | changes


def study(
    arms: Mapping[str, float],
    datasets: Sequence[str] = ("math", "code", "chat"),
    temperatures: Sequence[float] = (0.0,),
    size: int = 4,
) -> pd.DataFrame:
    """`size` conversations a dataset, those of chat with two turns; `arms` gives the speed of each, relative to the others."""
    random = np.random.default_rng(0)
    rows = []
    for temperature, dataset, number in product(temperatures, datasets, range(size)):
        for turn, (arm, speed) in product(range(2 if dataset == "chat" else 1), arms.items()):
            place = {"temperature": temperature, "conversation": f"{dataset}-{number:02d}", "turn": turn}
            seconds = float(random.uniform(0.9, 1.1)) / speed
            rows.append(record(arm=arm, dataset=dataset, decode_s=seconds, run=f"{dataset}-t{temperature:g}", **place))
    return validate(pd.DataFrame(rows), "synthetic")
