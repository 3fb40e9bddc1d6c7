"""What the authors measured as a client of SGLang, as records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dominotree.published import served
from dominotree.published.collections import MODELS
from dominotree.published.served import UNNAMED, long_context_records, served_records
from dominotree.reporting.notes import Setting
from dominotree.reporting.source import Source
from dominotree.reporting.tables.serving import table5, table8

LONG_METHODS = dict(zip(UNNAMED, ("ar", "eagle3", "dflash", "domino", "dominotree"), strict=True))


def source(*frames: pd.DataFrame) -> Source:
    return Source(pd.concat(frames, ignore_index=True), Setting("bfloat16", "theirs"))


def write_lines(path: Path, *rows: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_an_answer_s_time_and_tokens_are_those_of_all_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record leaves out the first token, and the table counts it again."""
    monkeypatch.setitem(served.SETTINGS, "", (["mt-bench"], [0.5], served.METHODS))
    for method, seconds in zip(served.METHODS, (4.0, 2.0, 2.0, 1.0, 0.5), strict=True):
        row = {"sample_idx": 3, "num_output": 100, "decode_time": seconds, "tps": 100 / seconds, "mean_accept": 2.0}
        rows = [row | {"turn_index": 0, "sampling_seed": 5, "out_sig": "a"}]
        rows.append(rows[0] | {"turn_index": 1, "num_output": 512, "decode_time": 5.12 * seconds})
        write_lines(tmp_path / "serving" / "bs1" / "4b" / method / "mt-bench_T0.5.jsonl", *rows)
    records = served_records(tmp_path, "")
    tree = records[records.arm == "dominotree@16"]
    shown = tree[["conversation", "turn", "num_output", "share_s", "tau", "seed", "stop_reason", "family"]].values.tolist()
    assert shown == [["mt-bench-03", 0, 99, 0.5, 2.0, 5, "eos", "chat"], ["mt-bench-03", 1, 511, 2.56, 2.0, 5, "length", "chat"]]
    assert tree[["tps", "decode_s", "rounds", "num_input", "divergence"]].isna().all(axis=None)
    table = table5(source(records)).data.set_index(["dataset", "arm"])
    assert table.loc["mt-bench"].speedup.to_dict() == {"ar": 1, "eagle3": 2, "dflash": 2, "domino": 4, "dominotree@16": 8}
    assert table.loc["mt-bench"].tps["ar"] == pytest.approx(25)


def test_a_long_prompt_is_of_the_task_with_its_length(tmp_path: Path) -> None:
    row = {"task": "multi_lexsum", "idx": 2, "length_bin": 16384, "input_tokens": 15000, "output_tokens": 400, "gen_cap": 400}
    for method in LONG_METHODS:
        accept = None if method == "ar" else 2.5
        write_lines(
            tmp_path / "serving" / "longcontext" / "8b" / method / "helmet_8b.prompts.jsonl",
            row | {"decode_time": 8.0, "accept": accept},
        )
    records = long_context_records(tmp_path, MODELS["_8b"])
    assert records.dataset.eq("multi-lexsum-16k").all()
    assert records.family.eq("summary").all()
    shown = records.set_index("arm")[["conversation", "num_input", "num_output", "share_s", "stop_reason", "tau"]]
    assert shown.loc["domino"].tolist() == ["multi-lexsum-16k-02", 15000, 399, 8.0, "length", 2.5]
    assert shown.tau["ar"] == 1


def test_our_table_of_long_contexts_has_the_values_that_they_printed(results: Path, records: dict[str, pd.DataFrame]) -> None:
    """Both quantities of every model, length and method, to the last digit printed."""
    published = json.loads((results / "serving" / "PUBLISHED.json").read_text())["longctx"]
    data = table8(source(records["longcontext"], records["longcontext_8b"])).data.set_index(["model", "context", "arm"])
    places = {place: values for place, values in published.items() if not place.startswith("_")}
    assert len(places) == len(data) == 25
    for place, (tau, speedup) in places.items():
        size, context, method = place.split("/")
        ours = data.loc[f"qwen3-{size}", int(context), LONG_METHODS[method]]
        assert ours.speedup == pytest.approx(speedup, abs=0.005 + 1e-9), place
        if method != "ar":
            assert ours.tau_per_prompt == pytest.approx(tau, abs=0.005 + 1e-9), place
