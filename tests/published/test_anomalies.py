"""What is odd in the authors' data, counted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from dominotree.published.anomalies import (
    EOS,
    anomaly_table,
    divergent,
    faster_rounds,
    other_second_prompts,
    prefill_counted,
    reused_ar,
    same_tau,
    tau_beyond_output,
    tokens_after_eos,
    until_eos,
    without_files,
)
from dominotree.published.collections import MODELS
from dominotree.reporting.layout import to_markdown

END = EOS[1]


def outputs(*heads: list[int], method: str = "dominotree@16", **changes: object) -> pd.DataFrame:
    """A row for each output, on prompts of its own."""
    frame = pd.DataFrame({"head": heads, "conversation": range(len(heads)), "num_output": [len(head) for head in heads]})
    return frame.assign(**{"dataset": "gsm8k", "temperature": 0.0, "turn": 0, "method": method} | changes)


def test_tokens_after_eos_are_counted_among_rows_that_show_an_eos() -> None:
    assert until_eos([5, END, 6]) == [5, END]
    assert until_eos([5, 6]) == [5, 6]
    drafted = outputs([5, END], [5, END, 6], [5, 6], [EOS[0], 7, 7])
    plain = outputs([5, END, 6], method="ar")
    assert tokens_after_eos(pd.concat([drafted, plain])) == (2, 3)
    assert tokens_after_eos(outputs([5, END], num_output=130)) == (1, 1)  # it goes on beyond what was published


def test_tokens_after_eos_are_no_divergence() -> None:
    plain = outputs([1, END], [1, 2], [1, 2], method="ar")
    rows = pd.concat([plain, outputs([1, END, 9], [1, 3], [1, 2]), outputs([9], [9], [9], temperature=0.5)])
    assert divergent(rows, "dominotree@16") == (1, 3)
    assert divergent(rows, "chain") == (0, 0)


def test_a_second_turn_reads_the_first_answer() -> None:
    rows = [outputs([1, 2], [1, 2], method="ar"), outputs([1, 2], [1, 3])]
    rows = pd.concat([part.assign(turn=turn, dataset="mt-bench") for part in rows for turn in (0, 1)])
    assert other_second_prompts(rows) == (1, 2)


def test_tau_is_held_against_output_and_rounds() -> None:
    rows = pd.DataFrame({"tau": [4.0, 4.0, 4.0, 1.0], "rounds": [5, 5, 5, 5], "num_output": [20, 19, 18, 6]})
    assert tau_beyond_output(rows) == (1, 3)
    assert tau_beyond_output(rows.drop(columns="rounds")) == (0, 0)


def test_ar_that_counts_prefill_s_token_has_one_more_than_rounds() -> None:
    rows = pd.DataFrame({"method": ["baseline"] * 3 + ["dflash"], "num_output": [6, 5, 6, 9], "rounds": [5, 5, 5, 1]})
    assert prefill_counted(rows) == (2, 3)


def test_caddtree_with_ddtree_s_tau_is_counted() -> None:
    rows = [outputs([1], [1], method=method, tau=tau) for method, tau in (("caddtree", [3.0, 4.0]), ("ddtree_tb16", [3.0, 4.5]))]
    assert same_tau(pd.concat(rows)) == (1, 2)


def test_an_ar_that_is_reused_has_the_very_speed() -> None:
    rows = pd.concat([outputs([1], [1], method="ar", temperature=t, tps=[10.0, 20.0 + t]) for t in (0.0, 0.5, 1.0)])
    assert reused_ar(rows, "ar") == (2, 4)


def test_rounds_are_faster_by_the_mean_of_a_dataset() -> None:
    rows = pd.concat(
        [outputs([1], [1], method="dflash", temperature=t, tps=tps, tau=4.0) for t, tps in ((0.0, 40.0), (0.5, 44.0))]
    )
    assert faster_rounds(rows, ["dflash"]) == (1, 1)
    assert faster_rounds(rows.assign(tps=np.where(rows.temperature > 0, 41.0, 40.0)), ["dflash"]) == (0, 1)


def test_settings_without_files_are_counted(tmp_path: Path) -> None:
    folder = tmp_path / "serving" / "bs1" / "8b" / "ar"
    folder.mkdir(parents=True)
    (folder / "gsm8k_T0.5.jsonl").touch()
    assert without_files(tmp_path, MODELS["_8b"], "ar") == (23, 24)


def test_the_counts_of_the_real_data(found: pd.DataFrame) -> None:
    counts = {key: tuple(map(int, value)) for key, value in found.set_index(["model", "what"])[["count", "of"]].T.items()}
    small, large = "qwen3-4b", "qwen3-8b"
    tree = "own harness, T = 0, tree: first 128 tokens up to EOS differ from AR's"
    assert counts[small, tree] == (430 - 255, 430)
    assert counts[large, "own harness: AR rows above T = 0 that are those of T = 0"] == (860, 860)
    assert counts[large, "serving, batch size 1: settings without AR"] == (16, 24)
    assert counts[small, "CaDDTree, T = 0: τ is DDTree's, whose budget is its cap"] == (430, 430)
    faster = "CaDDTree's harness: methods and datasets with rounds over 5 % faster at T = 0.5 than at 0"
    assert counts[large, faster] == (24, 24)
    assert found.of.ge(found["count"]).all()


def test_the_table_shows_how_many_of_how_many(found: pd.DataFrame) -> None:
    text = to_markdown(anomaly_table(found))
    [line] = [line for line in text.splitlines() if "tree: first 128 tokens" in line]
    assert [cell.strip() for cell in line.split("|")[2:6]] == ["175", "430", "187", "430"]
    [line] = [line for line in text.splitlines() if "files of tables/" in line]
    assert [cell.strip() for cell in line.split("|")[4:6]] == ["", ""]
