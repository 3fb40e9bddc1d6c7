"""The bootstrap, held against a loop that copies rows."""

from __future__ import annotations

import time
from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dominotree.errors import UserError
from dominotree.stats import (
    BOOTSTRAP_SEED,
    Resampling,
    bootstrap,
    multiplicities,
    pair,
    speedup,
    throughput_change,
    throughput_changes,
)
from tests.synthetic import record, study

RECORDS = study({"ar": 1.0, "domino": 2.0, "dominotree@32": 2.5}, size=6)
ARMS = ("dominotree@32", "domino")
SPEEDS = st.floats(1.0, 1000.0)


@st.composite
def comparisons(draw: st.DrawFn) -> pd.DataFrame:
    """Rows of two arms in one to three datasets with one to five conversations of one to three turns."""
    return pd.DataFrame(
        {"temperature": 0.0, "dataset": dataset, "conversation": f"{conversation}", "turn": turn}
        | {"arm": arm, "method": arm.partition("@")[0], "tps": draw(SPEEDS), "run": "1"}
        for dataset in "abc"[: draw(st.integers(1, 3))]
        for conversation in range(draw(st.integers(1, 5)))
        for turn in range(draw(st.integers(1, 3)))
        for arm in ARMS
    )


UNITS = {"conversation": ["conversation"], "row": ["conversation", "turn"]}
RESAMPLINGS = [Resampling(unit, stratified) for unit in ("conversation", "row") for stratified in (True, False)]


def change_by_loop(records: pd.DataFrame, draws: int, seed: int, resampling: Resampling) -> tuple[float, float, float]:
    """Point, low and high of the throughput change, drawing units one by one and copying their rows."""
    samples: list[list[pd.DataFrame]] = [[] for _ in range(draws)]
    strata = records.dataset if resampling.stratified else pd.Series("all", records.index)
    for name, stratum in records.groupby(strata):
        random = np.random.default_rng([seed, *name.encode()])
        units = [rows for _, rows in stratum.groupby(["dataset", *UNITS[resampling.unit]])]
        for sample, taken in zip(samples, random.integers(len(units), size=(draws, len(units))), strict=True):
            sample += [units[index] for index in taken]

    def change(rows: pd.DataFrame) -> float:
        ours, baseline = (rows.tps[rows.arm == arm].mean() for arm in ARMS)
        return 100 * (ours / baseline - 1)

    low, high = np.percentile([change(pd.concat(sample)) for sample in samples], [2.5, 97.5])
    return change(records), low, high


@pytest.mark.parametrize("resampling", RESAMPLINGS, ids=str)
def test_equals_a_loop_over_500_draws(resampling: Resampling) -> None:
    change = throughput_change(RECORDS, *ARMS, draws=500, resampling=resampling)
    expected = change_by_loop(RECORDS, 500, BOOTSTRAP_SEED, resampling)
    assert (change.point, change.low, change.high) == pytest.approx(expected, rel=1e-12)
    assert change.rows == 24


@settings(max_examples=15, deadline=None)
@given(comparisons(), st.integers(0, 2**32), st.sampled_from(RESAMPLINGS))
def test_equals_a_loop_on_any_layout(records: pd.DataFrame, seed: int, resampling: Resampling) -> None:
    change = throughput_change(records, *ARMS, draws=20, seed=seed, resampling=resampling)
    expected = change_by_loop(records, 20, seed, resampling)
    assert (change.point, change.low, change.high) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("resampling", RESAMPLINGS, ids=str)
def test_many_comparisons_are_those_made_one_by_one(resampling: Resampling) -> None:
    records = study({"ar": 1.0, "domino": 2.0, "dominotree@32": 2.5, "ddtree@32": 2.2}, temperatures=(0.0, 1.0))
    records.loc[(records.arm == "ddtree@32") & (records.conversation == "code-01"), "tps"] = np.nan  # other draws than the rest
    pairs, groups = (
        [ARMS, ("dominotree@32", "ddtree@32"), ("ddtree@32", "ar")],
        {"all": ["chat", "code", "math"], "text": ["chat"]},
    )
    changes = throughput_changes(records, pairs, groups, draws=50, resampling=resampling)
    assert len(changes) == 2 * 2 * 3
    for change in changes[changes.group == "all"].itertuples():
        part = records[records.temperature == change.temperature]
        alone = throughput_change(part, change.arm, change.baseline, draws=50, resampling=resampling)
        row = (change.delta_percent, change.ci_low, change.ci_high, change.rows)
        assert row == pytest.approx((alone.point, alone.low, alone.high, alone.rows), rel=1e-12)
    assert changes[changes.group == "text"].rows.eq(8).all()


def test_strata_of_one_size_are_drawn_apart() -> None:
    sums = np.arange(12.0).reshape(12, 1)
    strata = np.repeat(["a", "b"], 6)
    _, first = bootstrap(sums[:6], strata[:6], lambda sums: sums[..., 0], 500, seed=0)
    _, second = bootstrap(sums[:6], strata[6:], lambda sums: sums[..., 0], 500, seed=0)
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.2


def test_clustering_widens_the_interval_where_turns_are_alike() -> None:
    random = np.random.default_rng(0)
    gains = {number: random.uniform(0.5, 2.0) for number in range(40)}
    rows = [
        record(arm=arm, dataset="chat", conversation=f"chat-{number}", turn=turn, decode_s=1 / (gain if arm == ARMS[0] else 1.0))
        for (number, gain), turn, arm in product(gains.items(), range(2), ARMS)
    ]
    clustered, alone = (throughput_change(pd.DataFrame(rows), *ARMS, resampling=Resampling(unit)) for unit in UNITS)
    assert clustered.point == pytest.approx(alone.point, rel=1e-12)
    assert (clustered.high - clustered.low) / (alone.high - alone.low) == pytest.approx(np.sqrt(2), rel=0.05)


TWO_RUNS = pd.DataFrame(
    record(arm=arm, run=run, method=arm.partition("+")[0], conversation=name, decode_s=seconds)
    for run, seconds_of in {
        "fast": {"ar": {"x": 4, "y": 3}, "domino": {"x": 1, "y": 1}},
        "slow": {"ar+slow": {"x": 8, "y": 6}, "dominotree@32": {"x": 1, "y": 2}},
    }.items()
    for arm, seconds_by in seconds_of.items()
    for name, seconds in seconds_by.items()
)


def test_arms_of_two_runs_are_compared_by_their_speedups_over_each_run_s_own_ar() -> None:
    change = throughput_change(TWO_RUNS, "dominotree@32", "domino")
    assert change.metric == "speedup"
    assert change.point == pytest.approx(100 * ((8 + 3) / (4 + 3) - 1))
    assert throughput_change(TWO_RUNS, "domino", "ar").metric == "throughput"
    assert speedup(TWO_RUNS, "dominotree@32") == pytest.approx((12 + 6) / (1.5 + 2))


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
    table = pd.DataFrame(places, columns=["dataset", "conversation", "turn"]).assign(run="1", temperature=0.0, method="any")
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
        throughput_change(pd.concat([RECORDS, RECORDS.assign(temperature=1.0)]), *ARMS)


def test_several_studies_cannot_be_paired() -> None:
    with pytest.raises(ValueError, match="several studies or models"):
        pair(pd.concat([RECORDS, RECORDS]), *ARMS)
