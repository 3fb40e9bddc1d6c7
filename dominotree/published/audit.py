"""The authors' numbers, recomputed from their records and compared cell by cell.

    python -m dominotree.published.audit --output results/published/audit

writes audit_cells.csv (every cell with both values) and the tables audit, audit_intervals and published_anomalies (CSV, Markdown,
LaTeX), and ends with one line; exit status 1 if a cell is off.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from dominotree.errors import exit_on_user_error
from dominotree.files import atomic_write
from dominotree.published.anomalies import anomalies, anomaly_table
from dominotree.published.archive import add_archive_option, open_archive
from dominotree.published.cells import all_cells
from dominotree.published.grids import grids
from dominotree.published.report import interval_table, intervals, summary
from dominotree.reporting.layout import to_markdown
from dominotree.reporting.tables.__main__ import write_table


def audit(root: Path, output: Path) -> pd.DataFrame:
    """Write the audit of the authors' `results/` at `root` to the folder `output`; returns every cell."""
    records = grids(root)
    cells = all_cells(root, records)
    for table in (summary(cells), interval_table(intervals(records)), anomaly_table(anomalies(root))):
        write_table(table, output / table.name)
        print(to_markdown(table))
    with atomic_write(output / "audit_cells.csv") as partial:
        cells.to_csv(partial, index=False)
    return cells


@exit_on_user_error
def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m dominotree.published.audit", description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder of the tables")
    add_archive_option(parser)
    options = parser.parse_args(arguments)
    cells = audit(open_archive(options.archive), options.output)
    off = cells[~cells.reproduced]
    for cell in off.itertuples():
        print(f"off: {cell.source}: {cell.place}: {cell.quantity}: published {cell.published}, recomputed {cell.recomputed}")
    print(f"{len(cells) - len(off)} of {len(cells)} cells reproduced")
    raise SystemExit(int(len(off) > 0))


if __name__ == "__main__":
    main()
