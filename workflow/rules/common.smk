# The study that was asked for, checked before any job, and the names of all files.

import json
import os
import shlex
import sys
from dataclasses import asdict

from dominotree.compose import compose_drafters, study_from_snakemake
from dominotree.errors import UserError
from dominotree.files import hold
from dominotree.models.gguf import DEMO, demo_target_dir
from dominotree.needs import header
from dominotree.paths import ASSETS, cache_dir, record_file
from dominotree.provenance import (
    DOCUMENT_SOURCES,
    FIGURE_SOURCES,
    NUMBER_SOURCES,
    TABLE_SOURCES,
    TRAINING_SOURCES,
    source_digests,
)
from dominotree.reporting.catalogue import TABLES, check_arms, tables_of
from dominotree.reporting.document import NO_LATEX, has_latex
from dominotree.reporting.figures import GRIDS, figures_of
from dominotree.tracking.derived import FIGURE_FILES, TABLE_FILES

ENVIRONMENT = "../../environment.yml"

try:
    STUDY = study_from_snakemake(config)
except UserError as error:
    sys.exit(f"error: {error}")

if workflow.is_main_process:  # not in the processes that it starts
    for line in header(STUDY):
        print(line, file=sys.stderr)

FOLDER = STUDY.folder
# How runs are logged changes no number, so it is not among the params, by which jobs are run again.
if "tracking" in config:
    os.environ.setdefault("WANDB_MODE", config["tracking"])
os.environ["DOMINOTREE_TRACKING"] = json.dumps(asdict(STUDY.tracking))
RUNS = {(run.grid, run.dataset.name, f"{run.temperature:g}"): run for run in STUDY.runs}
DEMO_TARGET = demo_target_dir() / "model.safetensors"
CORPUS = cache_dir() / "corpus.jsonl"
TRAINED = cache_dir() / "drafters"


envvars:
    "DOMINOTREE_TRACKING",


wildcard_constraints:
    dataset="[^/]+",
    figure="|".join(GRIDS),
    kind="domino|dflash",
    table="|".join(TABLES),
    temperature="[0-9.e+-]+",


def hold_study():
    """Keep any other Snakemake away from this study until this one ends, however it ends; one line if another is there."""
    try:
        globals()["HELD"] = hold(FOLDER / "study.lock", f"at work on study {STUDY.name}")
    except UserError as error:
        sys.exit(f"error: {error}")


def record_files(grid, dataset, temperature):
    """The records of a run, a file an arm; a test holds this and `dominotree.paths.record_file` together."""
    folder = FOLDER / "records" / grid / dataset / f"t{temperature}"
    return [folder / f"{arm}.parquet" for arm in STUDY.grids[grid].arms]


def job_files(grid):
    """The records that one job makes: of a run, which its wildcards name, or of a whole grid."""
    if STUDY.job == "run":
        return record_files(grid, "{dataset}", "{temperature}")
    return [path for _, dataset, temperature in points(grid) for path in record_files(grid, dataset, temperature)]


def points(grid):
    """Grid, dataset and temperature of all its runs."""
    return [point for point in RUNS if point[0] == grid]


def of_job(grid, what):
    """`what` of the runs that a job measures."""
    if STUDY.job == "run":
        return lambda wildcards: what([RUNS[grid, wildcards.dataset, wildcards.temperature]])
    return what([RUNS[point] for point in points(grid)])


def digests_of(runs, part):
    """What decides one part of the numbers of `runs`."""
    return ", ".join(dict.fromkeys(run.digests[part] for run in runs))


def records_for(table):
    """The records that a table reads; one line instead of any job if the study has not what the table needs."""
    try:
        check_arms(table, STUDY)
        return STUDY.record_files(TABLES[table].grid)
    except UserError as error:
        sys.exit(f"error: {error}")


def table_files(name):
    """A table as LaTeX, CSV, Markdown and a page."""
    return multiext(str(FOLDER / "tables" / name), *TABLE_FILES)


def figure_files(name):
    """A figure as PDF and PNG, its numbers, and a LaTeX figure with its caption."""
    return multiext(str(FOLDER / "figures" / name), *FIGURE_FILES)


def figure_digest(figure):
    """The digest of the module that draws a figure, after its name."""
    (digest,) = source_digests([f"reporting/figures/{figure}.py"]).values()
    return digest


def records_drawn(figure):
    """The records that a figure reads; one line instead of any job if the study has not what it needs."""
    if figure not in figures_of(STUDY):
        sys.exit(f"error: study {STUDY.name} cannot draw {figure}, only {', '.join(figures_of(STUDY)) or 'no figure'}")
    grid = GRIDS[figure]
    return [FOLDER / "records" / grid / record_file(*place) for place in STUDY.grids[grid].places]


def reported(files, suffix, **about):
    """Output files, the one with that suffix marked for the report."""
    return [report(file, **about) if str(file).endswith(suffix) else file for file in files]


def document_or_message():
    """The document of all tables and figures, or nothing, and why, where there is no LaTeX to make it with."""
    if has_latex():
        return FOLDER / "paper.pdf"
    print(f"paper.pdf skipped: {NO_LATEX}", file=sys.stderr)
    return []


def checkpoint(folder):
    """The files of a drafter's checkpoint."""
    return [folder / "config.json", folder / "model.safetensors"]


def shipped(kind):
    """The mark of a trained drafter of that kind having been copied to dominotree/assets/."""
    return TRAINED / f"{kind}.shipped"
