"""The notes under a table."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from dominotree.errors import UserError
from dominotree.records import write_records
from dominotree.reporting.notes import Setting, notes, read_setting
from tests.synthetic import CONFIG, HARDWARE, METADATA, study

RECORDS = study({"ar": 1.0, "domino": 2.0}, size=5)
FP32, BF16 = Setting("float32", "Some CPU"), Setting("bfloat16", "Some GPU")


def diverging(rows: int, margin: float) -> pd.DataFrame:
    """The records with the first `rows` of Domino made to differ, the last of them by the given margin."""
    records = RECORDS.copy()
    changed = records.index[records.arm == "domino"][:rows]
    records.loc[changed, "divergence"] = 3
    records.loc[changed, "margin"] = margin / 2
    records.loc[changed[-1:], "margin"] = margin
    return records


def test_the_source_is_stated() -> None:
    assert notes(RECORDS, FP32)[0] == "Study demo: tiny, float32, Some CPU; 40 rows."


def test_embedded_sets_are_never_called_benchmarks() -> None:
    embedded, other = (notes(RECORDS.assign(dataset=RECORDS.dataset + suffix), FP32) for suffix in ("", "500"))
    assert embedded[1].endswith("none of the paper's: math (embedded), code (embedded), chat (embedded).")
    assert "embedded" not in " ".join(other)


@pytest.mark.parametrize(
    ("records", "setting", "note"),
    [
        (RECORDS, FP32, "All 20 speculative rows have AR's very tokens."),
        (RECORDS, BF16, "All 20 speculative rows have AR's very tokens."),
        (diverging(3, 0.5), FP32, "3 of 20 speculative rows differ from AR's tokens, which in float32 is a defect."),
        (
            diverging(3, 0.5),
            BF16,
            "85.0% of 20 speculative rows have AR's very tokens (bfloat16); "
            "the largest top-2 margin of the target at a divergence is 0.5.",
        ),
        (diverging(3, float("nan")), BF16, "85.0% of 20 speculative rows have AR's very tokens (bfloat16)."),
        (RECORDS.assign(divergence=pd.array([pd.NA] * 40, "Int64")), FP32, "Outputs were not compared with AR's."),
    ],
)
def test_outputs_are_compared_with_ar(records: pd.DataFrame, setting: Setting, note: str) -> None:
    assert notes(records, setting)[2] == note


def test_rows_without_output_are_counted() -> None:
    assert len(notes(RECORDS, FP32)) == 3
    records = RECORDS.assign(num_output=RECORDS.num_output.where(RECORDS.index >= 2, 0))
    assert notes(records, FP32)[3] == "2 rows without output, ended by their first token, are left out of every mean."


def test_rows_without_a_time_are_counted() -> None:
    """Of published records: also where their tokens are not known."""
    records = RECORDS.assign(num_output=RECORDS.num_output.astype("Int64").mask(RECORDS.index == 1))
    records = records.assign(tps=records.tps.where(records.index >= 3), num_output=records.num_output.mask(records.index == 2, 0))
    records["share_s"] = float("nan")
    assert notes(records, FP32)[3:] == (
        "1 rows without output, ended by their first token, are left out of every mean.",
        "2 rows without a time, the cold first ones, are left out of every mean.",
    )


def test_a_served_answer_that_was_not_streamed_has_its_time() -> None:
    assert len(notes(RECORDS.assign(tps=float("nan"), decode_s=float("nan"), prefill_s=float("nan")), FP32)) == 3


def test_the_setting_is_what_all_files_share(tmp_path: Path) -> None:
    gpu = METADATA | {"hardware": HARDWARE | {"gpu": "Some GPU"}}
    words = METADATA | {"hardware": {"machine": "somebody's machine"}}
    for name, metadata in [("a", METADATA), ("b", METADATA), ("gpu", gpu), ("bare", {"config": CONFIG}), ("words", words)]:
        write_records(RECORDS, tmp_path / name, metadata)
    assert read_setting([tmp_path / "a", tmp_path / "b"]) == Setting("float32", "Some CPU (2 cores, 2 threads)")
    assert read_setting([tmp_path / "gpu"]).hardware == "Some GPU, Some CPU (2 cores, 2 threads)"
    assert read_setting([tmp_path / "words"]).hardware == "somebody's machine"
    with pytest.raises(UserError, match=r"/a and .*gpu differ in dtype or hardware"):
        read_setting([tmp_path / name for name in ("a", "b", "gpu")])
    with pytest.raises(UserError, match="bare: its metadata lack 'hardware'"):
        read_setting([tmp_path / "bare"])
