"""The record of one arm on one prompt-turn: its schema and its Parquet file."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pandera.pandas as pa
import pyarrow
import pyarrow.parquet

from dominotree.errors import UserError
from dominotree.files import atomic_write
from dominotree.prompts import FAMILIES

KEY = ("model", "arm", "dataset", "temperature", "concurrency", "conversation", "turn")
"""What names one record among those of a study."""

METADATA_KEY = b"dominotree"
REMEASURE = "delete the file and measure again"
PUBLISHED = "published"
"""The study whose records are the authors' own, made from what they published."""

SERVED_RUN = "serve-"
"""What the run of a record begins with that was measured on a server."""


def _text(*allowed: str, nullable: bool = False) -> pa.Column:
    return pa.Column(str, pa.Check.isin(allowed) if allowed else None, nullable=nullable, coerce=True)


def _count(least: int = 0) -> pa.Column:
    return pa.Column(int, pa.Check.ge(least))  # not coerced: 1.5 would become 1


def _count_or_none(least: int = 0) -> pa.Column:
    return pa.Column("Int64", pa.Check.ge(least), nullable=True, coerce=True)


def _number(least: float = 0.0, nullable: bool = False) -> pa.Column:
    return pa.Column(float, pa.Check.in_range(least, np.inf, include_max=False), nullable=nullable, coerce=True)


def _number_or_nan(least: float = 0.0) -> pa.Column:
    return _number(least, nullable=True)


def _list_of(kind: type, name: str, nullable: bool = False) -> pa.Column:
    as_list = pa.Parser(lambda column: column.map(lambda item: item.tolist() if isinstance(item, np.ndarray) else item))
    holds = pa.Check(
        lambda item: isinstance(item, list) and all(type(value) is kind and 0 <= value < np.inf for value in item),
        element_wise=True,
        error=f"list of {name}",
    )
    return pa.Column(object, holds, parsers=as_list, nullable=nullable)


def _counts(nullable: bool = False) -> pa.Column:
    return _list_of(int, "whole numbers", nullable)


def _committed(histogram: list[int]) -> int:
    return sum(tokens * rounds for tokens, rounds in enumerate(histogram))


RECORDS = pa.DataFrameSchema(
    {
        "study": _text(),
        "run": _text(),
        "model": _text(),
        "drafter": _text(),
        "arm": _text(),
        "method": _text(),
        "budget": _count_or_none(1),
        "dataset": _text(),
        "family": _text(*FAMILIES),
        "temperature": _number(),
        "conversation": _text(),
        "turn": _count(),
        "prompt_sha": _text(),
        "concurrency": _count(1),
        "seed": _count(),
        "num_input": _count(1),
        "num_output": _count(),
        "stop_reason": _text("eos", "length"),
        "prefill_s": _number(),
        "decode_s": _number(),
        "share_s": _number(),
        "tps": _number_or_nan(),
        "rounds": _count(),
        "tau": _number_or_nan(1.0),
        "accept_hist": _counts(),
        "draft_ms": _number_or_nan(),
        "build_ms": _number_or_nan(),
        "verify_ms": _number_or_nan(),
        "commit_ms": _number_or_nan(),
        "tree_nodes": _number_or_nan(),
        "forecast": _number_or_nan(),
        "nodes_by_bin": _counts(),
        "forecast_by_bin": _list_of(float, "numbers"),
        "accepted_by_bin": _counts(),
        "output_sha": _text(),
        "output_ids": _counts(),
        "divergence": _count_or_none(-1),
        "margin": _number_or_nan(),
    },
    strict=True,
)
"""One row is one arm on one prompt-turn.

`concurrency` requests were in flight. `prefill_s` led to the first token, `decode_s` from there to the last, whatever other
requests took of it, and `share_s` is the request's part of the wall time, each moment of which is divided equally among the
requests in flight. `num_output` leaves out the token that prefill gave; where it is 0 (the first token ended the text) there
was no round, and `tps` (tokens a second), `tau` (tokens a round) and the means per round are NaN. `accept_hist[i]` is the
number of rounds that committed i tokens. The `_ms` columns, `tree_nodes` and `forecast` are means per round; `forecast` is NaN
where the method has none. The `_by_bin` columns hold the drafted nodes of all rounds in ten equal bins of path probability: how
many, the sum of their probabilities, how many were accepted; they are empty where nothing is forecast. `divergence` is the
first output token that differs from AR's: -1 if none, NA in a run without AR; `margin` is the distance of the target's two
highest logits there.
"""

_NOT_PUBLISHED = {
    "prompt_sha": _text(nullable=True),
    "seed": _count_or_none(),
    "num_input": _count_or_none(1),
    "num_output": _count_or_none(),
    "stop_reason": _text("eos", "length", nullable=True),
    "prefill_s": _number_or_nan(),
    "decode_s": _number_or_nan(),
    "share_s": _number_or_nan(),
    "rounds": _count_or_none(),
    "accept_hist": _counts(nullable=True),
    "output_sha": _text(nullable=True),
    "output_ids": _counts(nullable=True),
}
PUBLISHED_RECORDS = RECORDS.remove_columns(list(_NOT_PUBLISHED)).add_columns(_NOT_PUBLISHED)
"""The authors' records: what they did not publish is missing, in these columns too, and `tau` need not agree with `rounds`.

Of an output they published the first 128 tokens and a signature: a `divergence` of 128 is one at that place or beyond.
"""


_NOT_SERVED = {
    "prompt_sha": _text(nullable=True),
    "num_input": _count_or_none(1),
    "prefill_s": _number_or_nan(),
    "decode_s": _number_or_nan(),
    "rounds": _count_or_none(),
    "accept_hist": _counts(nullable=True),
    "output_ids": _counts(nullable=True),
}
SERVED_RECORDS = RECORDS.remove_columns(list(_NOT_SERVED)).add_columns(_NOT_SERVED)
"""What a client measured on a server: what that did not say is missing, in these columns too, and `output_sha` is of the text.

Answers that were not streamed have neither `prefill_s` nor `decode_s`, and so no `tps`: of theirs, as of all, `share_s` tells.
"""


def validate(frame: pd.DataFrame, where: str, remedy: str = REMEASURE) -> pd.DataFrame:
    """Return `frame` in the schema's types; raise `UserError` naming `where`, column and row of the first fault, and `remedy`."""
    schema, checks = _schema(frame)
    try:
        frame = schema.validate(frame.reset_index(drop=True), lazy=True)
    except pa.errors.SchemaErrors as error:
        raise UserError(f"{where}: {_fault(error.failure_cases.iloc[0])}; {remedy}") from None
    for fault, passes in checks.items():
        passed = passes(frame)
        if not np.all(passed):
            raise UserError(f"{where}: row {np.argmin(passed)}: {fault}; {remedy}")
    return frame


def _schema(frame: pd.DataFrame) -> tuple[pa.DataFrameSchema, dict[str, Callable[[pd.DataFrame], Any]]]:
    """What records must be: those of others, and of a server, may lack what nobody told."""
    if "study" in frame and frame.study.eq(PUBLISHED).all():
        return PUBLISHED_RECORDS, _PUBLISHED_CHECKS
    if "run" in frame and len(frame) and frame.run.astype(str).str.startswith(SERVED_RUN).all():
        return SERVED_RECORDS, _SERVED_CHECKS
    return RECORDS, _CHECKS


def _is_ratio(frame: pd.DataFrame, column: str, divisor: str) -> np.ndarray:
    """Whether `column` is num_output over `divisor`, NaN where nothing was put out."""
    output = frame.num_output.where(frame.num_output > 0)
    return np.isclose(frame[column], output / frame[divisor], rtol=1e-6, equal_nan=True)


_ONCE = {f"a second record of one {', '.join(KEY)}": lambda frame: ~frame.duplicated(list(KEY))}
_CHECKS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "tps is not num_output / decode_s": lambda frame: _is_ratio(frame, "tps", "decode_s"),
    "tau is not num_output / rounds": lambda frame: _is_ratio(frame, "tau", "rounds"),
    "accept_hist does not add up to rounds": lambda frame: frame.accept_hist.map(sum) == frame.rounds,
    "accept_hist does not add up to num_output": lambda frame: frame.accept_hist.map(_committed) == frame.num_output,
    **_ONCE,
}
_PUBLISHED_CHECKS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "tps is not num_output / decode_s": lambda frame: (
        frame.decode_s.isna() | np.isclose(frame.tps, (frame.num_output / frame.decode_s).astype(float), rtol=1e-6)
    ),
    "accept_hist does not add up to rounds": lambda frame: (
        frame.accept_hist.isna() | (frame.accept_hist.map(sum, na_action="ignore") == frame.rounds).fillna(False)
    ),
    **_ONCE,
}
_SERVED_CHECKS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "tps is not num_output / decode_s": lambda frame: frame.decode_s.isna() | _is_ratio(frame, "tps", "decode_s"),
    "tau is not num_output / rounds": lambda frame: (
        frame.rounds.isna() | np.isclose(frame.tau, (frame.num_output / frame.rounds).astype(float), rtol=1e-6, equal_nan=True)
    ),
    "accept_hist does not add up to rounds": lambda frame: (
        frame.accept_hist.isna() | (frame.accept_hist.map(sum, na_action="ignore") == frame.rounds).fillna(False)
    ),
    **_ONCE,
}


def _fault(failure: pd.Series) -> str:
    """One failure of pandera in words."""
    if failure.check == "column_in_dataframe":
        return f"column {failure.failure_case} is missing"
    if failure.check == "column_in_schema":
        return f"column {failure.failure_case} is not one of a record's"
    row = "" if pd.isna(failure["index"]) else f", row {failure['index']}"
    return f"column {failure.column}{row}: {failure.failure_case} fails {failure.check}"


def write_records(frame: pd.DataFrame, path: Path, metadata: dict[str, Any]) -> None:
    """Validate and write `frame` to a Parquet file, `metadata` as JSON in its schema; the file is whole or not there."""
    table = pyarrow.Table.from_pandas(validate(frame, str(path)), preserve_index=False)
    table = table.replace_schema_metadata({**table.schema.metadata, METADATA_KEY: json.dumps(metadata)})
    with atomic_write(path) as partial:
        pyarrow.parquet.write_table(table, partial, compression="zstd")


def read_records(paths: Sequence[Path]) -> pd.DataFrame:
    """The records of all `paths`, at least one, validated.

    Raises `UserError` naming two files that hold the same record, or whose models or prompts are of different commits.
    """
    frames = []
    _check_commits({path: read_metadata(path) for path in paths})
    for path in paths:
        try:
            frames.append(pyarrow.parquet.read_table(path).to_pandas())
        except (OSError, pyarrow.ArrowException) as error:
            raise _unreadable(path) from error
    frame = pd.concat(frames, ignore_index=True)
    try:
        return validate(frame, "the records")
    except UserError:
        # All at once takes a tenth of the time; one by one says in which file the fault is.
        for path, part in zip(paths, frames, strict=True):
            validate(part, str(path))
        twice = frame.duplicated(list(KEY), keep=False).to_numpy()
        if twice.any():
            files = np.repeat([str(path) for path in paths], [len(part) for part in frames])
            raise UserError(f"{' and '.join(dict.fromkeys(files[twice]))} hold the same records; remove all but one") from None
        raise


def _check_commits(metadata: dict[Path, dict[str, Any]]) -> None:
    """Raise `UserError` naming two files that were measured at different commits of one model or dataset."""
    seen: dict[str, tuple[Path, str]] = {}
    for path, about in metadata.items():
        for place, commit in about.get("commits", {}).items():
            first, expected = seen.setdefault(place, (path, commit))
            if commit != expected:
                raise UserError(
                    f"{first} and {path} are of different commits of {place}, {expected[:8]} and {commit[:8]}; "
                    "give one of them as its revision, and measure the other file's run again"
                )


def read_metadata(path: Path) -> dict[str, Any]:
    """What `write_records` was told about the run."""
    try:
        schema = pyarrow.parquet.read_schema(path)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; measure the study first") from None
    except (OSError, pyarrow.ArrowException) as error:
        raise _unreadable(path) from error
    if METADATA_KEY not in (schema.metadata or {}):
        raise UserError(f"{path}: not a record file of dominotree; move it out of the records' folder")
    return json.loads(schema.metadata[METADATA_KEY])


def _unreadable(path: Path) -> UserError:
    return UserError(f"{path}: not a readable Parquet file, cut short or of another kind; {REMEASURE}")
