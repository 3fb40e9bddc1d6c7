"""The builders' benchmark, run as a person would, at a size of seconds."""

from __future__ import annotations

import json
import subprocess
import sys


def test_prints_a_row_a_budget_and_writes_json(tmp_path):
    written = tmp_path / "builders.json"
    command = [
        sys.executable,
        "-m",
        "benchmarks.builders",
        "--sizes",
        "demo",
        "--budgets",
        "4",
        "9",
        "--repeats",
        "2",
        "--json",
        written,
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert len(result.stdout.splitlines()) == 4
    rows = json.loads(written.read_text())["rows"]
    assert [(row["budget"], row["share"]) for row in rows] == [(4, 1.0), (9, 1.0)], "both builders build the same trees"
    for row in rows:
        assert row["ratio"] == row["heap_ms"] / row["frontier_ms"] > 0
