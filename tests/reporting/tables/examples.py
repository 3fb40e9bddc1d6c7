"""Synthetic records for every table, by the table's name."""

from __future__ import annotations

import pandas as pd

from dominotree.reporting.notes import Setting
from dominotree.reporting.source import Source
from tests.synthetic import study

SETTING = Setting("float32", "Some CPU")
BUILDERS = {"domino": 1.0, "dominotree@8": 1.5, "dominotree@8+heap": 1.2, "dominotree@16": 1.6, "dominotree@16+heap": 1.1}
WIDTHS = {"domino": 1.0} | {f"dominotree@{b}+{w}": 1.5 for b in (8, 16) for w in ("m128", "m16", "full")}
ARMS = {
    "table1": {"ar": 1.0, "dflash": 1.5, "domino": 2.0, "dominotree@8": 2.5},
    "table2": {"ar": 1.0, "domino": 2.0, "ddtree@8": 2.2, "caddtree": 2.1, "dominotree@8": 2.5},
    "table3": BUILDERS,
    "table4": BUILDERS,
    "table5": {"ar": 1.0, "eagle3": 1.3, "domino": 2.0, "dominotree@32": 2.5},
    "table6": {"ar": 1.0, "domino": 2.0, "dominotree@32": 2.5},
    "table7": {"ar": 1.0, "ddtree@8": 1.8, "domino": 2.0, "dominotree@8": 2.5, "loadaware": 2.4},
    "table8": {"ar": 1.0, "domino": 1.3, "dominotree@16": 1.6},
    "table9": {"domino": 1.3, "dominotree@16": 1.6, "dominotree@32": 1.7},
    "table10": {"domino": 1.0, "dominotree@4": 1.2, "dominotree@8": 1.5, "dominotree@16": 1.4},
    "table11": WIDTHS,
    "table12": WIDTHS,
    "table13": {"domino": 2.0, "domino+sampled": 1.8, "dominotree@8": 2.5, "dominotree@8+sampled": 2.4},
    "table15": {"marginal@8": 1.0, "static@8": 1.2, "dominotree@8": 1.3},
    "tableA3": {
        "dominotree@8": 2.0,
        "adaptive": 2.1,
        "adaptive+calibrated": 2.2,
        "adaptive+measured": 2.3,
        "caddtree": 1.8,
    },
    "latency": {"ar": 1.0, "domino": 2.0, "dominotree@32": 2.5},
    "calibration": {"dominotree@8": 2.0, "dominotree@8+tail": 2.1, "dominotree@16": 2.2, "dominotree@16+tail": 2.3},
}
LONG = {"math": "infbench-sum-8k", "code": "multi-lexsum-8k", "chat": "infbench-sum-16k"}
"""What stands for sets of long prompts."""

BINS = {
    "nodes_by_bin": [10, 0, 0, 0, 0, 4, 0, 0, 0, 2],
    "forecast_by_bin": [0.5, 0.0, 0.0, 0.0, 0.0, 2.2, 0.0, 0.0, 0.0, 1.9],
    "accepted_by_bin": [1, 0, 0, 0, 0, 1, 0, 0, 0, 2],
}
"""Of every row: 4.6 tokens forecast, 4 accepted."""


def records(table: str) -> pd.DataFrame:
    """Records at two temperatures; each arm accepts as many tokens a round as it is fast, and forecasts half a token more."""
    frame = study(ARMS[table], temperatures=(0.0, 1.0), size=3)
    if table == "table7":  # the more requests, the less is each one's part of the time
        frame = pd.concat([frame.assign(concurrency=c, share_s=frame.share_s / c) for c in (1, 4)], ignore_index=True)
    if table in ("table8", "table9"):
        frame = frame.assign(dataset=frame.dataset.map(LONG), family="summary")
    speed = frame.arm.map(ARMS[table])
    for name, counts in BINS.items():
        frame[name] = [counts] * len(frame)
    return frame.assign(tau=2.0 * speed, forecast=2.0 * speed + 0.5, tree_nodes=frame.turn + 4.0)


def source(table: str, beside_paper: bool = False) -> Source:
    return Source(records(table), SETTING, beside_paper)
