"""The figures of a study, drawn from its records.

    python -m dominotree.reporting.figures speedup --records results/demo/records/main --output results/demo/figures/speedup

writes speedup.pdf, speedup.png, speedup.csv (the numbers drawn) and speedup.tex (a LaTeX figure with its caption).
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from dominotree.config import TrackingConfig, parse
from dominotree.errors import UserError, exit_on_user_error
from dominotree.files import atomic_write
from dominotree.provenance import FIGURE_SOURCES, source_digests
from dominotree.records import read_metadata
from dominotree.reporting.figures.panels import Plot
from dominotree.reporting.figures.plots import FIGURES
from dominotree.reporting.figures.style import COLUMN_WIDTH, paper_style, save_figure
from dominotree.reporting.latex import escape
from dominotree.reporting.source import Source, read_source, record_files
from dominotree.tracking import track_run
from dominotree.tracking.derived import made_artifact, record_artifacts


def make_figure(name: str, places: Sequence[Path], output: Path, chosen: Sequence[str] = ()) -> Plot:
    """Draw figure `name` from record files, or those below folders, write it, and log it where those records were logged."""
    source = read_source(places, chosen)
    where = os.path.commonpath(places)
    study, model = source.records.study.iloc[0], source.records.model.iloc[0]
    config = {"records": where, "arms": list(chosen), "setting": asdict(source.setting)}
    config["sources"] = source_digests((*FIGURE_SOURCES, f"reporting/figures/{name}.py"))
    paths = [path for place in places for path in record_files(place)]
    tracking = parse(TrackingConfig, read_metadata(paths[0])["config"].get("tracking", {}), "tracking")
    with paper_style():
        try:
            plot = draw(name, source)
        except UserError as error:
            raise UserError(f"{name} from {where}: {error}") from None
        with track_run(tracking, study, "figure", f"{name} {study}", [model, source.setting.hardware], config) as run:
            files = write_figure(name, plot, source, output)
            run.use("records", record_artifacts(paths))
            run.image(name, output.with_name(output.name + ".png"))
            run.table(name, plot.data)
            run.artifact(made_artifact(name, study), "figure", files)
    return plot


def draw(name: str, source: Source) -> Plot:
    """Raises `UserError` if the records are of several models, whose times no figure compares."""
    models = source.records.model.unique()
    if len(models) > 1:
        raise UserError(f"records of several models, {' and '.join(models)}; draw the records of one")
    return FIGURES[name](source.records)


def write_figure(name: str, plot: Plot, source: Source, output: Path) -> list[Path]:
    """Write `output`.pdf, .png, .csv and .tex."""
    texts = {".csv": plot.data.to_csv(index=False), ".tex": to_latex(name, plot, source, output)}
    files = {output.with_name(output.name + suffix): text for suffix, text in texts.items()}
    with ExitStack() as stack:
        for path, text in files.items():
            stack.enter_context(atomic_write(path)).write_text(text, encoding="utf-8")
        return [*save_figure(plot.figure, output), *files]


def to_latex(name: str, plot: Plot, source: Source, output: Path) -> str:
    """A `figure` environment, across the page if the figure is that wide; the document's \\graphicspath leads to the file."""
    environment = "figure*" if plot.figure.get_figwidth() > COLUMN_WIDTH else "figure"
    lines = [
        rf"\begin{{{environment}}}",
        r"\centering",
        rf"\includegraphics{{{output.name}.pdf}}",
        rf"\caption{{{escape(plot.caption)}}}",
        rf"\label{{fig:{name}}}",
        *(rf"\par\smallskip\footnotesize {escape(note)}" for note in source.notes(plot.data)),
        rf"\end{{{environment}}}",
    ]
    return "\n".join(lines) + "\n"


@exit_on_user_error
def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m dominotree.reporting.figures", description=__doc__.splitlines()[0])
    parser.add_argument("figure", choices=FIGURES)
    parser.add_argument(
        "--records", nargs="+", type=Path, required=True, metavar="PATH", help="record files, or folders, searched in depth"
    )
    parser.add_argument("--output", type=Path, required=True, metavar="PATH", help="written with .pdf, .png, .csv, .tex added")
    parser.add_argument("--arms", nargs="+", default=(), metavar="ARM", help="of methods with several, the one to take")
    options = parser.parse_args(arguments)
    plot = make_figure(options.figure, options.records, options.output, options.arms)
    print(f"{options.output}.pdf\n{plot.caption}")


if __name__ == "__main__":
    main()
