"""Published records and the audit's tables, without anything published behind them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from dominotree.published.anomalies import Anomaly
from dominotree.published.cells import exact, printed
from dominotree.published.collections import DATASETS, FAMILY, MODELS, REFERENCE, TEMPERATURES, TREE, Model
from dominotree.published.report import intervals
from dominotree.records import validate
from tests.synthetic import record

SPEEDS = {"ar": 1.0, "ar+caddtree": 1.0, "dflash": 3.0, "ddtree@16": 3.5, "caddtree": 3.6, "domino": 3.7, TREE.label: 4.0}


def main_records(model: Model, conversations: int = 3) -> pd.DataFrame:
    """Records in the shape of a main grid, so many conversations a dataset, one of MT-Bench with two turns."""
    random = np.random.default_rng(0)
    references, rows = {arm.label for arm in REFERENCE.values()}, []
    for dataset, temperature, conversation in product(DATASETS, TEMPERATURES, range(conversations)):
        for turn, (arm, speed) in product(range(2 if dataset == "mt-bench" else 1), SPEEDS.items()):
            harness = "CaDDTree's harness" if arm in references else "own harness"
            place = {
                "dataset": dataset,
                "temperature": temperature,
                "conversation": f"{dataset}-{conversation:02d}",
                "turn": turn,
            }
            names = {"study": "published", "run": f"{harness} {dataset} t{temperature:g}", "model": model.name}
            method = arm.partition("@")[0].partition("+")[0]
            seconds = float(random.uniform(0.8, 1.2)) / speed
            rows.append(record(arm=arm, method=method, family=FAMILY[dataset], decode_s=seconds, **place, **names))
    return validate(pd.DataFrame(rows), "example")


def audit_frames() -> Mapping[str, pd.DataFrame]:
    """What the audit writes, by file name."""
    cells = [
        exact("table1_cells.csv", "gsm8k, T=0, AR", "tps", 2.0, 2.0),
        printed("paper, Table 13", "alpaca", "tau", 1.2, 1.21, 1),
    ]
    oddities = [Anomaly("Outputs", "tokens after EOS", model.name, 3, 10) for model in MODELS.values()]
    return {
        "audit_cells.csv": pd.DataFrame([asdict(cell) | {"reproduced": cell.reproduced} for cell in cells]),
        "audit_intervals.csv": intervals({f"main{suffix}": main_records(model) for suffix, model in MODELS.items()}),
        "published_anomalies.csv": pd.DataFrame(oddities),
    }


def write_audit(folder: Path) -> None:
    """Write the audit's CSV files as the workflow would."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, frame in audit_frames().items():
        frame.to_csv(folder / name, index=False)
