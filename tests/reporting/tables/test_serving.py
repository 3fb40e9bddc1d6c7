"""Tables 5, 6, 8, 9 and the latencies, against sums by hand."""

from __future__ import annotations

import json
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dominotree.errors import UserError
from dominotree.reporting.layout import to_markdown
from dominotree.reporting.tables.__main__ import TABLES
from dominotree.stats import BOOTSTRAP_SEED, throughput_change
from tests.reporting.tables import examples
from tests.synthetic import record


def waited(records: pd.DataFrame) -> pd.Series:
    """Mean tokens a second of whole answers, by temperature, dataset and arm."""
    speeds = (records.num_output + 1) / records.share_s
    return speeds.groupby([records.temperature, records.dataset, records.arm]).mean()


def test_table5_has_the_clients_speedups_and_their_mean():
    source = examples.source("table5")
    data = TABLES["table5"](source).data.set_index(["temperature", "dataset", "arm"])
    speeds = waited(source.records)
    for dataset in ("math", "code", "chat"):
        expected = speeds[0.0, dataset, "domino"] / speeds[0.0, dataset, "ar"]
        assert data.speedup[0.0, dataset, "domino"] == pytest.approx(expected)
    each = [data.speedup[1.0, dataset, "dominotree@32"] for dataset in ("math", "code", "chat")]
    assert data.speedup[1.0, "Overall", "dominotree@32"] == pytest.approx(np.mean(each))
    assert data.tau_per_prompt[0.0, "Overall", "dominotree@32"] == 5.0 and np.isnan(data.tau_per_prompt[0.0, "math", "ar"])


def test_table5_needs_no_acceptance_and_no_stream():
    source = examples.source("table5")
    silent = replace(source, records=source.records.assign(tau=np.nan, decode_s=np.nan, prefill_s=np.nan, tps=np.nan))
    whole, told = TABLES["table5"](silent), TABLES["table5"](source)
    assert whole.data.speedup.tolist() == told.data.speedup.tolist() and whole.data.tau_per_prompt.isna().all()
    assert "\N{EN DASH}" in to_markdown(whole)


def test_table6_has_each_datasets_interval_and_the_mean_of_all():
    source = examples.source("table6")
    data = TABLES["table6"](source).data.set_index(["temperature", "dataset"])
    rows = source.records[(source.records.temperature == 0) & (source.records.dataset == "math")]
    rows = rows.assign(tps=(rows.num_output + 1) / rows.share_s)
    found = throughput_change(rows, "dominotree@32", "domino", seed=BOOTSTRAP_SEED)
    assert data.loc[(0.0, "math"), ["delta_percent", "ci_low", "ci_high"]].tolist() == pytest.approx(
        [found.point, found.low, found.high]
    )
    each = data.delta_percent[0.0].drop("Overall")
    assert data.delta_percent[0.0, "Overall"] == pytest.approx(each.mean())
    low, high = data.ci_low[0.0], data.ci_high[0.0]
    assert low.min() < low["Overall"] < data.delta_percent[0.0, "Overall"] < high["Overall"] < high.max()
    assert high["Overall"] - low["Overall"] < (high - low).drop("Overall").mean()


def test_table8_takes_the_mean_of_the_tasks_at_each_length():
    source = examples.source("table8")
    data = TABLES["table8"](source).data.set_index(["temperature", "context", "arm"])
    speeds = waited(source.records)
    each = [speeds[0.0, task, "domino"] / speeds[0.0, task, "ar"] for task in ("infbench-sum-8k", "multi-lexsum-8k")]
    assert data.speedup[0.0, 8192, "domino"] == pytest.approx(np.mean(each))
    assert data.index.levels[1].tolist() == [8192, 16384]


def test_table9_marks_the_best_budget_at_each_length():
    source = examples.source("table9")
    table = TABLES["table9"](source)
    speeds = waited(source.records)
    data = table.data.set_index(["temperature", "context", "budget"])
    each = [speeds[0.0, task, "dominotree@16"] for task in ("infbench-sum-8k", "multi-lexsum-8k")]
    assert data.tps[0.0, 8192, 16] == pytest.approx(np.mean(each))
    for section in table.sections:
        for _, *cells in section.rows:
            assert [cell.bold for cell in cells].count(True) == 1


def test_latencies_are_percentiles_of_what_a_client_waits_for():
    source = examples.source("latency")
    records = source.records
    data = TABLES["latency"](source).data.set_index(["temperature", "arm"])
    rows = records[(records.temperature == 0) & (records.arm == "domino")]
    assert data.first_p50_ms[0.0, "domino"] == pytest.approx(100.0)
    assert data.next_p90_ms[0.0, "domino"] == pytest.approx((1000 * rows.decode_s / rows.num_output).quantile(0.9))
    assert data.whole_p99_ms[0.0, "domino"] == pytest.approx((1000 * (rows.decode_s + 0.1)).quantile(0.99))


def test_latencies_take_an_answer_in_one_piece_as_whole_then_and_none_without_text():
    source = examples.source("latency")
    records = source.records.assign(prefill_s=0.1, decode_s=1.0)
    rows = records.index[(records.temperature == 0) & (records.arm == "domino")]
    records.loc[rows[:-1], "decode_s"] = np.nan
    records.loc[rows[0], "prefill_s"] = np.nan
    data = TABLES["latency"](replace(source, records=records)).data.set_index(["temperature", "arm"])
    found = data.loc[(0.0, "domino")]
    assert len(rows) > 3 and found["rows"] == len(rows) - 1
    assert (found.first_p50_ms, found.whole_p50_ms) == (pytest.approx(100.0), pytest.approx(100.0))
    assert found.next_p50_ms == pytest.approx(1000 / records.num_output[rows[-1]])


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("table5", {"concurrency": 4}, "several requests in flight, where the table needs one"),
        ("table8", {"dataset": "math", "family": "math"}, "dataset math has no length in its name"),
        ("latency", {"prefill_s": np.nan, "decode_s": np.nan}, "answers that were not streamed"),
    ],
)
def test_records_that_cannot_tell_are_refused(name, changes, message):
    source = examples.source(name)
    records = source.records.drop_duplicates(["temperature", "arm"]) if "dataset" in changes else source.records
    with pytest.raises(UserError, match=message):
        TABLES[name](replace(source, records=records.assign(**changes)))


ARCHIVE = Path(__file__).parents[4] / "shared" / "published" / "domino-tree-4677af5-results.tar.xz"
THEIRS = {"ar": "ar", "eagle3": "eagle3", "dflash": "dflash", "domino_chain": "domino", "dominotree": "dominotree@16"}
TASKS = {"infbench_sum": "infbench-sum", "multi_lexsum": "multi-lexsum"}


@pytest.fixture(scope="module")
def helmet() -> tuple[pd.DataFrame, dict[str, list[float]]]:
    """The authors' rows of long prompts on their server, as records, and what they printed of them, [tau, speedup] a setting."""
    if not ARCHIVE.is_file():
        pytest.skip("needs ../shared/published")
    rows = []
    with tarfile.open(ARCHIVE) as archive:
        printed = json.load(archive.extractfile("results/serving/PUBLISHED.json"))["longctx"]
        for member in archive.getnames():
            if member.startswith("results/serving/longcontext/") and member.endswith(".prompts.jsonl"):
                lines = map(json.loads, archive.extractfile(member))
                rows += [line | {"arm": THEIRS[member.split("/")[4]], "size": member.split("/")[3]} for line in lines]
    made = [
        record(
            arm=row["arm"],
            dataset=f"{TASKS[row['task']]}-{row['length_bin'] // 1024}k",
            family="summary",
            model=row["size"],
            conversation=str(row["idx"]),
            num_output=row["output_tokens"] - 1,
            share_s=row["decode_time"],
            tau=row["accept"],
        )
        for row in rows
    ]
    return pd.DataFrame(made), {name: pair for name, pair in printed.items() if not name.startswith("_")}


def test_table8_of_the_authors_rows_is_what_they_printed(helmet):
    records, printed = helmet
    data = TABLES["table8"](replace(examples.source("table8"), records=records)).data.set_index(["model", "context", "arm"])
    assert len(printed) == len(data) == 25
    for name, (tau, speedup) in printed.items():
        size, context, theirs = name.split("/")
        row = data.loc[(size, int(context), THEIRS[theirs])]
        assert row.speedup == pytest.approx(speedup, abs=0.0051), name
        assert theirs == "ar" or row.tau_per_prompt == pytest.approx(tau, abs=0.0051), name
