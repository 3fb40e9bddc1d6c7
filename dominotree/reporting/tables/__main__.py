"""The tables of a study, made from its records.

    python -m dominotree.reporting.tables table2 --records results/demo/records/main --output results/demo/tables/table2

writes table2.tex, table2.csv, table2.md and table2.html, and prints the Markdown.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from dominotree.config import TrackingConfig, parse
from dominotree.errors import UserError, exit_on_user_error
from dominotree.files import write_together
from dominotree.provenance import TABLE_SOURCES, source_digests
from dominotree.records import read_metadata
from dominotree.reporting.html import to_html
from dominotree.reporting.latex import to_latex
from dominotree.reporting.layout import Table, to_markdown
from dominotree.reporting.source import Source, read_source, record_files
from dominotree.reporting.tables.ablations import table10, table11, table12, table13
from dominotree.reporting.tables.builders import table3, table4
from dominotree.reporting.tables.controls import table15, table_a3
from dominotree.reporting.tables.forecast import calibration
from dominotree.reporting.tables.load import table7
from dominotree.reporting.tables.main_results import table1, table2
from dominotree.reporting.tables.serving import latency, table5, table6, table8, table9
from dominotree.stats import BOOTSTRAP_SEED, DRAWS
from dominotree.tracking import track_run
from dominotree.tracking.derived import made_artifact, record_artifacts

TABLES: dict[str, Callable[[Source], Table]] = {
    "table1": table1,
    "table2": table2,
    "table3": table3,
    "table4": table4,
    "table5": table5,
    "table6": table6,
    "table7": table7,
    "table8": table8,
    "table9": table9,
    "table10": table10,
    "table11": table11,
    "table12": table12,
    "table13": table13,
    "table15": table15,
    "tableA3": table_a3,
    "latency": latency,
    "calibration": calibration,
}
"""Their grids stand in `dominotree.reporting.catalogue`, for the workflow."""


def make_table(name: str, places: Sequence[Path], output: Path, chosen: Sequence[str] = (), beside_paper: bool = False) -> Table:
    """Make table `name` from record files, or those below folders, write it, and log it where those records were logged."""
    source = read_source(places, chosen, beside_paper)
    where = os.path.commonpath(places)
    try:
        table = TABLES[name](source)
    except UserError as error:
        raise UserError(f"{name} from {where}: {error}") from None
    study, model = source.records.study.iloc[0], source.records.model.iloc[0]
    config = {"records": where, "arms": list(chosen), "draws": DRAWS, "seed": BOOTSTRAP_SEED, "setting": asdict(source.setting)}
    config["sources"] = source_digests(TABLE_SOURCES)
    paths = [path for place in places for path in record_files(place)]
    tracking = parse(TrackingConfig, read_metadata(paths[0])["config"].get("tracking", {}), "tracking")
    with track_run(tracking, study, "table", f"{name} {study}", [model, source.setting.hardware], config) as run:
        files = write_table(table, output)
        run.use("records", record_artifacts(paths))
        run.table(name, table.data)
        run.artifact(made_artifact(name, study), "table", files)
    return table


def write_table(table: Table, output: Path) -> list[Path]:
    """Write `output`.tex, .csv, .md and .html: all are complete before the first takes its place."""
    csv = table.data.to_csv(index=False)
    texts = {".tex": to_latex(table), ".csv": csv, ".md": to_markdown(table), ".html": to_html(table)}
    return write_together({output.with_name(output.name + suffix): text for suffix, text in texts.items()})


@exit_on_user_error
def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m dominotree.reporting.tables", description=__doc__.splitlines()[0])
    parser.add_argument("table", choices=TABLES)
    parser.add_argument(
        "--records", nargs="+", type=Path, required=True, metavar="PATH", help="record files, or folders, searched in depth"
    )
    parser.add_argument("--output", type=Path, required=True, metavar="PATH", help="written with .tex, .csv, .md and .html added")
    parser.add_argument("--arms", nargs="+", default=(), metavar="ARM", help="of methods with several, the one to take")
    parser.add_argument("--beside-paper", action="store_true", help="show what the paper printed beside what was measured")
    options = parser.parse_args(arguments)
    table = make_table(options.table, options.records, options.output, options.arms, options.beside_paper)
    print(to_markdown(table))


if __name__ == "__main__":
    main()
