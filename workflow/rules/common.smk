# The study that was asked for, checked before any job, and the names of all files.

import shlex
import sys

from dominotree.compose import compose_drafters, study_from_snakemake
from dominotree.errors import UserError
from dominotree.models.gguf import DEMO, demo_target_dir
from dominotree.paths import ASSETS, cache_dir
from dominotree.provenance import TABLE_SOURCES, TRAINING_SOURCES, source_digest

ENVIRONMENT = "../../environment.yml"

try:
    STUDY = study_from_snakemake(config)
except UserError as error:
    sys.exit(f"error: {error}")

FOLDER = STUDY.folder
RUNS = {(run.dataset.name, f"{run.temperature:g}"): run for run in STUDY.runs}
DEMO_TARGET = demo_target_dir() / "model.safetensors"
CORPUS = cache_dir() / "corpus.jsonl"
TRAINED = cache_dir() / "drafters"


wildcard_constraints:
    dataset="[^/]+",
    kind="domino|dflash",
    table="table[0-9]+",
    temperature="[0-9.e+-]+",


def run_of(wildcards):
    """The run of the study that a job measures."""
    return RUNS[wildcards.dataset, wildcards.temperature]


def target_files(wildcards):
    """What must be on disk before a run: the demo's target; any other is the user's own or comes from the Hub."""
    return ancient(DEMO_TARGET) if run_of(wildcards).model.target == DEMO else []


def record_files(dataset, temperature):
    """The records of a run, a file an arm; a test holds this and `dominotree.records.record_file` together."""
    return [FOLDER / f"records/{dataset}/t{temperature}/{arm}.parquet" for arm in STUDY.arms]


def table_files(name):
    """A table as LaTeX, CSV and Markdown."""
    return multiext(str(FOLDER / "tables" / name), ".tex", ".csv", ".md")


def checkpoint(folder):
    """The files of a drafter's checkpoint."""
    return [folder / "config.json", folder / "model.safetensors"]


def shipped(kind):
    """The mark of a trained drafter of that kind having been copied to dominotree/assets/."""
    return TRAINED / f"{kind}.shipped"
