"""The bootstrap, held against a loop that copies rows."""

from __future__ import annotations

import time

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dominotree.errors import UserError
from dominotree.stats import BOOTSTRAP_SEED, bootstrap, multiplicities, pair, speedup, throughput_change
from tests.synthetic import record, study

RECORDS = study({"ar": 1.0, "domino": 2.0, "dominotree@32": 2.5}, size=6)
ARMS = ("dominotree@32", "domino")
SPEEDS = st.floats(1.0, 1000.0)


@st.composite
def comparisons(draw: st.DrawFn) -> pd.DataFrame:
    """Rows of two arms in one to three datasets with one to five conversations of one to three turns."""
    return pd.DataFrame(
        {"dataset": dataset, "conversation": f"{conversation}", "turn": turn, "arm": arm, "tps": draw(SPEEDS), "run": "1"}
        for dataset in "abc"[: draw(st.integers(1, 3))]
        for conversation in range(draw(st.integers(1, 5)))
        for turn in range(draw(st.integers(1, 3)))
        for arm in ARMS
    )


def change_by_loop(records: pd.DataFrame, draws: int, seed: int) -> tuple[float, float, float]:
    """Point, low and high of the throughput change, drawing conversations one by one and copying their rows."""
    random = np.random.default_rng(seed)
    samples: list[list[pd.DataFrame]] = [[] for _ in range(draws)]
    for _, stratum in records.groupby("dataset"):
        conversations = [rows for _, rows in stratum.groupby("conversation")]
        for sample, taken in zip(samples, random.integers(len(conversations), size=(draws, len(conversations))), strict=True):
            sample += [conversations[index] for index in taken]

    def change(rows: pd.DataFrame) -> float:
        ours, baseline = (rows.tps[rows.arm == arm].mean() for arm in ARMS)
        return 100 * (ours / baseline - 1)

    low, high = np.percentile([change(pd.concat(sample)) for sample in samples], [2.5, 97.5])
    return change(records), low, high


def test_equals_a_loop_over_500_draws() -> None:
    change = throughput_change(RECORDS, *ARMS, draws=500)
    assert (change.point, change.low, change.high) == pytest.approx(change_by_loop(RECORDS, 500, BOOTSTRAP_SEED), rel=1e-12)
    assert change.rows == 24


@settings(max_examples=15, deadline=None)
@given(comparisons(), st.integers(0, 2**32))
def test_equals_a_loop_on_any_layout(records: pd.DataFrame, seed: int) -> None:
    change = throughput_change(records, *ARMS, draws=20, seed=seed)
    assert (change.point, change.low, change.high) == pytest.approx(change_by_loop(records, 20, seed), rel=1e-9, abs=1e-9)


@settings(max_examples=25, deadline=None)
@given(comparisons(), st.randoms(use_true_random=False))
def test_does_not_depend_on_the_order_of_rows(records: pd.DataFrame, random: np.random.Generator) -> None:
    order = list(range(len(records)))
    random.shuffle(order)
    assert throughput_change(records, *ARMS, draws=50) == throughput_change(records.iloc[order], *ARMS, draws=50)


@settings(max_examples=25, deadline=None)
@given(comparisons(), SPEEDS, SPEEDS)
def test_constant_data_have_no_width(records: pd.DataFrame, ours: float, baseline: float) -> None:
    records = records.assign(tps=np.where(records.arm == ARMS[0], ours, baseline))
    change = throughput_change(records, *ARMS, draws=50)
    expected = pytest.approx(100 * (ours / baseline - 1), rel=1e-9, abs=1e-9)
    assert (change.point, change.low, change.high) == (expected, expected, expected)


@settings(max_examples=25, deadline=None)
@given(comparisons(), st.floats(0.1, 10.0))
def test_a_common_drift_of_a_conversation_pairs_away(records: pd.DataFrame, ratio: float) -> None:
    baseline = records.groupby(["dataset", "conversation", "turn"]).tps.transform("first")
    records = records.assign(tps=baseline * np.where(records.arm == ARMS[0], ratio, 1.0))
    change = throughput_change(records, *ARMS, draws=50)
    assert (change.low, change.high) == (pytest.approx(100 * (ratio - 1), abs=1e-9),) * 2


@given(st.integers(1, 30), st.integers(1, 40), st.integers(0, 2**32))
def test_every_draw_takes_as_many_conversations_as_there_are(count: int, draws: int, seed: int) -> None:
    taken = multiplicities(count, draws, np.random.default_rng(seed))
    assert taken.shape == (draws, count)
    assert (taken.sum(axis=1) == count).all()


def test_every_conversation_is_taken_alike() -> None:
    taken = multiplicities(5, 20_000, np.random.default_rng(0))
    assert taken.mean(axis=0) == pytest.approx(np.ones(5), abs=0.03)
    assert taken.var(axis=0) == pytest.approx(np.full(5, 0.8), abs=0.05)  # of a binomial: 5 * 1/5 * 4/5


def test_a_stratum_is_never_drawn_in_another_s_place() -> None:
    _, samples = bootstrap(np.array([[1.0], [1.0], [100.0]]), np.array(["a", "a", "b"]), lambda sums: sums[..., 0], 200, seed=0)
    assert (samples == 102.0).all()


def test_the_turns_of_a_conversation_stay_together() -> None:
    speeds = {("x", 0): 1.0, ("x", 1): 3.0, ("y", 0): 2.0, ("y", 1): 2.0}
    rows = [
        record(arm=arm, conversation=conversation, turn=turn, decode_s=12 / (speed if arm == ARMS[0] else 1.0))
        for (conversation, turn), speed in speeds.items()
        for arm in ARMS
    ]
    change = throughput_change(pd.DataFrame(rows), *ARMS, draws=200)
    assert (change.low, change.high) == (pytest.approx(100.0), pytest.approx(100.0))


def test_10000_draws_on_430_rows_take_well_under_a_second() -> None:
    sizes = {
        "gsm8k": 50,
        "math500": 50,
        "aime25": 30,
        "humaneval": 50,
        "mbpp": 50,
        "livecodebench": 50,
        "alpaca": 50,
        "mt-bench": 50,
    }
    places = [
        (dataset, f"{number}", turn)
        for dataset, size in sizes.items()
        for number in range(size)
        for turn in range(2 if dataset == "mt-bench" else 1)
    ]
    table = pd.DataFrame(places, columns=["dataset", "conversation", "turn"]).assign(run="1")
    records = pd.concat(
        [table.assign(arm=arm, tps=np.arange(1.0, 431.0) + shift) for arm, shift in zip(ARMS, (9, 0), strict=True)]
    )
    assert len(table) == 430
    start = time.process_time()
    change = throughput_change(records, *ARMS, draws=10_000)
    assert time.process_time() - start < 1.0
    assert change.rows == 430


def test_speedup_is_a_ratio_of_mean_throughputs() -> None:
    rows = [record(arm=arm, conversation=name, decode_s=s) for arm, name, s in [("ar", "x", 12), ("ar", "y", 6)]]
    rows += [record(arm="domino", conversation=name, decode_s=s) for name, s in [("x", 4), ("y", 2)]]
    assert speedup(pd.DataFrame(rows), "domino") == pytest.approx(3.0)
    assert speedup(pd.DataFrame(rows), "ar") == 1.0


def test_rows_without_output_are_left_out() -> None:
    empty = (RECORDS.conversation == "math-00") & (RECORDS.arm == "domino")
    change = throughput_change(RECORDS.assign(tps=RECORDS.tps.where(~empty)), *ARMS)
    assert change == throughput_change(RECORDS[RECORDS.conversation != "math-00"], *ARMS)


@pytest.mark.parametrize(
    ("records", "fault"),
    [
        (RECORDS[RECORDS.arm != "domino"], "no records of arm domino; the arms are ar, dominotree@32"),
        (
            RECORDS.drop(index=RECORDS.index[RECORDS.arm == "domino"][0]),
            "math, conversation math-00, turn 0: a record of only one",
        ),
        (RECORDS.assign(run=RECORDS.arm), "at temperature 0: domino and dominotree@32 come from different runs"),
        (RECORDS.assign(tps=np.nan), "no prompt with output in both"),
    ],
)
def test_arms_that_cannot_be_compared_are_refused(records: pd.DataFrame, fault: str) -> None:
    with pytest.raises(UserError, match=fault):
        throughput_change(records, *ARMS)


def test_several_temperatures_cannot_be_paired() -> None:
    with pytest.raises(ValueError, match="several temperatures"):
        pair(pd.concat([RECORDS, RECORDS.assign(temperature=1.0)]), *ARMS)
