"""The authors' conventions, one by one, and the records that come of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dominotree.published import collections as module
from dominotree.published.collections import (
    AR,
    CHAIN,
    HEAD,
    MODELS,
    PLACE,
    TREE,
    as_records,
    committed_rounds,
    faster_mode,
    first_difference,
    leave_out_first_prompt,
    leave_out_first_row,
    number_turns,
    read_decoder,
    read_rows,
)

SMALL, LARGE = MODELS.values()
PLACES = [("gsm8k", 0, 0), ("gsm8k", 1, 0), ("mt-bench", 0, 0), ("mt-bench", 0, 1), ("mt-bench", 1, 0)]


def rows(tps: float = 10.0, **changes: object) -> pd.DataFrame:
    """A row for each of PLACES, as `read_rows` gives them."""
    frame = pd.DataFrame(PLACES, columns=["dataset", "conversation", "turn"])
    return frame.assign(
        **{"temperature": 0.0, "method": "ar", "tps": tps, "decode_s": 20 / tps, "num_output": 20, "tau": 1.0} | changes
    )


# --- conventions ---------------------------------------------------------------------------------------------------------


def test_rows_are_prompt_turns_and_8b_numbers_them_throughout() -> None:
    frame = pd.DataFrame({"dataset": ["gsm8k"] * 2 + ["mt-bench"] * 4, "conversation": [0, 1, 0, 1, 2, 3]})
    numbered = number_turns(frame)
    assert numbered.conversation.tolist() == [0, 1, 0, 0, 1, 1]
    assert numbered.turn.tolist() == [0, 0, 0, 1, 0, 1]


def test_4b_s_own_harness_leaves_out_the_first_row_and_so_one_turn_of_two() -> None:
    frame = leave_out_first_row(rows())
    assert frame.tps.isna().tolist() == frame.decode_s.isna().tolist() == [True, False, True, False, False]
    assert frame.num_output.eq(20).all()


def test_8b_s_decoder_leaves_out_the_first_prompt_with_both_turns() -> None:
    assert leave_out_first_prompt(rows()).tps.isna().tolist() == [True, False, True, True, False]


def test_domino_is_the_faster_of_graph_and_eager_in_each_setting() -> None:
    graph, eager = (
        pd.concat([rows(**{name: fast}).query("dataset == 'gsm8k'"), rows(**{name: 9.0}).query("dataset != 'gsm8k'")])
        for name, fast in (("tps", 8.0), ("tps", 10.0))
    )
    chosen = faster_mode(graph.assign(mode="graph"), eager.assign(mode="eager", tps=eager.tps.where(eager.tps > 9, 7.0)))
    assert chosen.groupby("dataset")["mode"].unique().map(list).to_dict() == {"gsm8k": ["eager"], "mt-bench": ["graph"]}
    assert len(chosen) == len(PLACES)


@given(st.lists(st.integers(1, 17), min_size=1, max_size=60), st.integers(0, 16))
def test_rounds_follow_from_the_mean_that_counts_all_tokens(committed: list[int], cut: int) -> None:
    """The last round may go beyond the limit: as long as it is needed, the rounds are known."""
    output = sum(committed) - min(cut, committed[-1] - 1)
    rounds = committed_rounds(output, float(np.mean(committed)))
    assert rounds <= len(committed)
    assert rounds * np.mean(committed) == pytest.approx(round(rounds * np.mean(committed)))
    if cut == 0:
        assert rounds == len(committed)


@pytest.mark.parametrize(
    ("head", "other", "place"), [([1, 2], [1, 2], None), ([1, 3], [1, 2], 1), ([1], [1, 2], 1), ([1, 2, 3], [1, 2], 2)]
)
def test_a_missing_token_is_a_difference(head: list[int], other: list[int], place: int | None) -> None:
    assert first_difference(head, other) == place


# --- reading -------------------------------------------------------------------------------------------------------------


def test_rows_of_a_harness_are_read_under_our_names(tmp_path: Path) -> None:
    row = {"method": "ar", "sample_idx": 3, "turn_index": 1, "num_output": 4, "decode_time": 0.5, "tps": 8.0, "mean_accept": 1.0}
    (tmp_path / "gsm8k_T0.5.jsonl").write_text(json.dumps(row) + "\n")
    [read] = read_rows(tmp_path, ["gsm8k"], [0.5]).to_dict("records")
    expected = {"conversation": 3, "turn": 1, "num_output": 4, "decode_s": 0.5, "tps": 8.0, "tau": 1.0, "temperature": 0.5}
    assert {name: read[name] for name in expected} == expected


def test_the_decoder_s_rows_are_turns_and_prefill_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DATASETS", ["mt-bench"])
    monkeypatch.setattr(module, "TEMPERATURES", [0.0])
    times = {"wall_time": [1.5, 2.5], "prefill_times": [0.5, 0.5], "decode_times": [1.0, 2.0]}
    answer = {"turns": ["a", "b"], "new_tokens": [6, 8], "acceptance_lengths": [[3, 4], [4, 1, 4]], **times}
    empty = {name: [] for name in answer}
    (tmp_path / "T0.0").mkdir()
    (tmp_path / "T0.0" / "graph_mt-bench.jsonl").write_text(json.dumps({"question_id": 7, "choices": [empty, answer]}) + "\n")
    frame = read_decoder(tmp_path, "graph")
    assert frame[[*PLACE, "tps", "rounds"]].values.tolist() == [["mt-bench", 0.0, 7, 0, 6.0, 2], ["mt-bench", 0.0, 7, 1, 4.0, 3]]
    assert frame.accept_hist.tolist() == [[0, 0, 0, 1, 1], [0, 1, 0, 0, 2]]
    assert frame.tau.tolist() == [3.5, 3.0]


# --- records -------------------------------------------------------------------------------------------------------------


def test_what_was_not_published_is_missing() -> None:
    frame = as_records(rows().drop(columns=["num_output", "decode_s"]), {"ar": AR}, LARGE, "harness")
    for column in (
        "num_output",
        "decode_s",
        "rounds",
        "accept_hist",
        "output_ids",
        "prompt_sha",
        "seed",
        "divergence",
        "draft_ms",
    ):
        assert frame[column].isna().all(), column
    assert frame.model.eq("qwen3-8b").all()
    assert frame.conversation.tolist() == ["gsm8k-00", "gsm8k-01", "mt-bench-00", "mt-bench-00", "mt-bench-01"]
    assert frame.family.tolist() == ["math"] * 2 + ["chat"] * 3


def test_a_stage_that_was_not_timed_alone_is_missing() -> None:
    stages = {"ms_draft": 3.0, "ms_build": 0.0, "ms_verify": 0.0, "ms_commit": 0.0}
    frame = as_records(rows(method="chain", **stages), {"chain": CHAIN}, SMALL, "harness")
    assert frame.draft_ms.eq(3.0).all()
    assert frame[["build_ms", "verify_ms", "commit_ms"]].isna().all(axis=None)


def test_the_limit_tells_why_a_row_ended() -> None:
    frame = as_records(
        rows(num_output=[20, 2048, 20, 20, 20], decode_s=2.0, tps=np.array([10, 1024, 10, 10, 10])), {"ar": AR}, SMALL, "harness"
    )
    assert frame.stop_reason.tolist() == ["eos", "length", "eos", "eos", "eos"]


def test_divergence_is_known_as_far_as_outputs_were_published() -> None:
    """Equal, differing early, differing beyond what was published, one token more; at another temperature it says nothing."""
    long = list(range(HEAD))
    ar = [([1, 2], "a"), ([1, 2], "a"), (long, "b"), ([1, 2], "a"), ([1, 2], "a")]
    tree = [([1, 2], "a"), ([1, 3], "c"), (long, "d"), ([1, 2, 9], "e"), ([1, 3], "c")]
    temperatures = [0.0, 0.0, 0.0, 0.0, 0.5]
    both = [
        rows(method=method, temperature=temperatures, head=[head for head, _ in outputs], signature=[name for _, name in outputs])
        for method, outputs in (("ar", ar), ("dominotree@16", tree))
    ]
    frame = as_records(pd.concat(both), {"ar": AR, "dominotree@16": TREE}, SMALL, "harness")
    assert frame.divergence[5:].astype(object).where(frame.divergence[5:].notna(), None).tolist() == [-1, 1, HEAD, 2, None]
    assert frame.output_ids[2] is None
    assert frame.output_ids[8] == [1, 2, 9]


# --- the real ones -------------------------------------------------------------------------------------------------------


def test_each_collection_leaves_out_what_it_does(records: dict[str, pd.DataFrame]) -> None:
    untimed = {
        name: frame[frame.tps.isna()].groupby("arm").apply(lambda rows: rows.groupby("dataset").size().to_dict()).to_dict()
        for name, frame in records.items()
        if frame.share_s.isna().all() and frame.tps.isna().any()  # a served answer has a share_s instead
    }
    datasets = records["main"].dataset.unique()
    row = {dataset: 3 for dataset in sorted(datasets)}  # one at each temperature
    assert untimed == {"main": {"ar": row, "dominotree@16": row}, "main_8b": {"domino": row | {"mt-bench": 6}}}


def test_8b_s_ars_are_those_of_temperature_0_at_every_temperature(records: dict[str, pd.DataFrame]) -> None:
    for name, same in (("main", False), ("main_8b", True)):
        for arm in ("ar", "ar+caddtree"):
            rows = records[name][records[name].arm == arm]
            speeds = rows.pivot(index=["dataset", "conversation", "turn"], columns="temperature", values="tps").dropna()
            assert (speeds[0.0] == speeds[0.5]).all() == (speeds[0.0] == speeds[1.0]).all() == same


def test_domino_s_denominator_is_the_own_harness_ar(records: dict[str, pd.DataFrame]) -> None:
    runs = records["main"].groupby("arm").run.agg(lambda runs: tuple(sorted(set(runs))))
    assert runs["domino"] == runs["ar"] == runs["dominotree@16"]
    assert runs["dflash"] == runs["ar+caddtree"] != runs["ar"]
