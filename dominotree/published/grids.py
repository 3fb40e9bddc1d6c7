"""The authors' records as record files of the study `published`.

python -m dominotree.published.grids --output results/published/records
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from dominotree.errors import exit_on_user_error
from dominotree.paths import record_file
from dominotree.progress import track
from dominotree.published.archive import ROOT, URL, add_archive_option, open_archive
from dominotree.published.collections import MODELS, ladder_records, main_records, sampled_records
from dominotree.published.served import long_context_records, served_records
from dominotree.records import write_records


def grids(root: Path) -> dict[str, pd.DataFrame]:
    """The records of every grid of the study, from the authors' `results/`."""
    return {
        **{f"main{suffix}": main_records(root, model) for suffix, model in MODELS.items()},
        "ladder": ladder_records(root, "matched"),
        "bestladder": ladder_records(root, "best"),
        "sampled": sampled_records(root),
        **{f"served{suffix}": served_records(root, suffix) for suffix in MODELS},
        **{f"longcontext{suffix}": long_context_records(root, model) for suffix, model in MODELS.items()},
    }


def metadata(model: str) -> dict[str, Any]:
    """What a record file says of where its records come from."""
    return {
        "config": {"model": {"name": model, "dtype": "bfloat16"}, "tracking": {"mode": "disabled"}},
        "hardware": {"machine": "the authors' machines, which their records do not name"},
        "source": f"{URL}, {ROOT}/",
    }


def write_grids(records: Mapping[str, pd.DataFrame], output: Path) -> int:
    """Write every grid's records, a file for each dataset, temperature and arm; returns how many files."""
    parts = [(grid, *part) for grid, frame in records.items() for part in frame.groupby(["dataset", "temperature", "arm"])]
    for grid, place, part in track("records", parts, len(parts)):
        write_records(part, output / grid / record_file(*place), metadata(part.model.iloc[0]))
    return len(parts)


@exit_on_user_error
def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m dominotree.published.grids", description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder of the record files")
    add_archive_option(parser)
    options = parser.parse_args(arguments)
    records = grids(open_archive(options.archive))
    files = write_grids(records, options.output)
    print(f"{sum(map(len, records.values()))} records in {files} files below {options.output}")


if __name__ == "__main__":
    main()
