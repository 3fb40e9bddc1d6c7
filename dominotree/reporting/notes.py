"""The notes under a table: where its numbers come from, and whether the methods kept AR's output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from dominotree.errors import UserError
from dominotree.records import read_metadata
from dominotree.reporting.names import EMBEDDED_SETS, dataset_title, datasets


@dataclass(frozen=True)
class Setting:
    """What the records of a table share: the models' number format, as torch names it, and the machine in words."""

    dtype: str
    hardware: str


def read_setting(paths: Sequence[Path]) -> Setting:
    """The setting of the record files `paths`: one for each model. Raises `UserError` naming two files of a model that differ."""
    settings: dict[str, tuple[Path, Setting]] = {}
    for path in paths:
        model, setting = _setting(path)
        first, expected = settings.setdefault(model, (path, setting))
        if setting != expected:
            raise UserError(f"{first} and {path} differ in dtype or hardware; measure the whole study on one machine")
    found = [setting for _, setting in settings.values()]
    dtypes, machines = ([getattr(setting, name) for setting in found] for name in ("dtype", "hardware"))
    return Setting(*(" and ".join(dict.fromkeys(names)) for names in (dtypes, machines)))


def _setting(path: Path) -> tuple[str, Setting]:
    """The model of a record file and its setting."""
    metadata = read_metadata(path)
    try:
        model = metadata["config"]["model"]
        return model["name"], Setting(model["dtype"], _machine(metadata["hardware"]))
    except KeyError as error:
        raise UserError(f"{path}: its metadata lack {error}; delete the file and measure again") from None


def _machine(hardware: Mapping[str, Any]) -> str:
    if "machine" in hardware:  # in words already, where nothing else is known of it
        return hardware["machine"]
    machine = f"{hardware['cpu']} ({hardware['cores']} cores, {hardware['threads']} threads)"
    return f"{hardware['gpu']}, {machine}" if hardware.get("gpu") else machine


def notes(records: pd.DataFrame, setting: Setting) -> tuple[str, ...]:
    """Sentences on the records that a table uses."""
    sentences = [_source(records, setting), _prompts(records), _outputs(records, setting), _left_out(records), _untimed(records)]
    return tuple(sentence for sentence in sentences if sentence)


def _source(records: pd.DataFrame, setting: Setting) -> str:
    study, model = (" and ".join(sorted(records[column].unique())) for column in ("study", "model"))
    return f"Study {study}: {model}, {setting.dtype}, {setting.hardware}; {len(records)} rows."


def _prompts(records: pd.DataFrame) -> str:
    embedded = [dataset_title(dataset) for dataset in datasets(records) if dataset in EMBEDDED_SETS]
    return f"Prompt sets of this repository's own, none of the paper's: {', '.join(embedded)}." if embedded else ""


def _outputs(records: pd.DataFrame, setting: Setting) -> str:
    """In float32 any divergence from AR is a defect; below it near-ties make some, so that their share and size count."""
    rows = records[(records.method != "ar") & records.divergence.notna()]
    if rows.empty:
        return "Outputs were not compared with AR's."
    divergent = rows[rows.divergence >= 0]
    if divergent.empty:
        return f"All {len(rows)} speculative rows have AR's very tokens."
    if setting.dtype == "float32":
        return f"{len(divergent)} of {len(rows)} speculative rows differ from AR's tokens, which in float32 is a defect."
    same = f"{1 - len(divergent) / len(rows):.1%} of {len(rows)} speculative rows have AR's very tokens ({setting.dtype})"
    margin = divergent.margin.max()
    return f"{same}." if pd.isna(margin) else f"{same}; the largest top-2 margin of the target at a divergence is {margin:.3g}."


def _left_out(records: pd.DataFrame) -> str:
    empty = int((records.num_output == 0).sum())
    return f"{empty} rows without output, ended by their first token, are left out of every mean." if empty else ""


def _untimed(records: pd.DataFrame) -> str:
    """Published records have rows that their authors leave out as cold; a served one has a `share_s` where it has no `tps`."""
    untimed = int((records.tps.isna() & records.share_s.isna() & records.num_output.ne(0).fillna(True)).sum())
    return f"{untimed} rows without a time, the cold first ones, are left out of every mean." if untimed else ""
