"""What a study will need: GPU memory: downloads, disk and hours, said before it begins. Needs neither torch nor a network.

Bytes follow from the shapes of the released models. Hours are an estimate: first from the speed and the answers' lengths in the
authors' records, on their machines; then, as soon as runs of the study are measured, from how long those took here.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass

from dominotree.config import RunConfig, Study
from dominotree.errors import UserError
from dominotree.hub import cache_folder, cached_bytes
from dominotree.paths import record_file
from dominotree.records import read_metadata

GB = 1e9
BYTES = {"float32": 4, "bfloat16": 2}
WORKING_SPACE = 1.5 * GB
"""Of a GPU: the context of CUDA, libraries, graphs, the tensors of a pass."""

RESULTS = 0.5 * GB
LONGEST_PROMPT = 2048
"""Tokens, generously: the longest of the eight sets stay below it."""


@dataclass(frozen=True)
class Known:
    """A target with its released drafters. Numbers of parameters; elements of one token in all layers' key/value cache, and of
    the GRU's input table; tokens a second of AR and, roughly, of every other arm in the authors' records, or else in the paper;
    bytes of a request's recurrent states and of what one row of a tree brings to them."""

    target: int
    drafters: Mapping[str, int]
    cache_token: int
    gru_table: int
    ar_tps: float
    tps: float
    state_bytes: int = 0
    row_bytes: int = 0


KNOWN = {
    "Qwen/Qwen3-4B": Known(
        target=4_022_468_096,
        drafters={"dflash": 537_427_200, "domino": 588_250_368},
        cache_token=(36 + 5) * 2 * 8 * 128,
        gru_table=151_936 * 3 * 1024,
        ar_tps=66,
        tps=280,
    ),
    "Qwen/Qwen3-8B": Known(
        target=8_190_735_360,
        drafters={"dflash": 1_048_626_432, "domino": 1_104_561_408},
        cache_token=(36 + 5) * 2 * 8 * 128,
        gru_table=151_936 * 3 * 1024,
        ar_tps=17,
        tps=80,
    ),
    "Qwen/Qwen3.6-27B": Known(
        target=26_895_998_464,
        drafters={"dflash": 1_730_213_120, "domino": 1_814_230_272},
        cache_token=16 * 2 * 4 * 256 + 5 * 2 * 8 * 128,
        gru_table=248_320 * 3 * 1024,
        ar_tps=66,
        tps=300,
        state_bytes=48 * (4 * 48 * 128 * 128 + 2 * 3 * 10_240),
        row_bytes=48 * (2 * (10_240 + 2048) + 4 * (48 * 128 + 48)),
    ),
}

ANSWER_TOKENS = {
    "aime25": 1830,
    "alpaca": 335,
    "gsm8k": 290,
    "humaneval": 430,
    "livecodebench": 420,
    "math500": 780,
    "mbpp": 280,
    "mt-bench": 490,
}
"""Mean tokens of an answer in the authors' records of Qwen3-4B's AR at temperature 0."""

TURNS = {"mt-bench": 2}
WHOLE_SET = 12
"""Conversations of an embedded set, the only ones that a study takes whole."""

GAIN_UNDER_LOAD = 0.55
"""Goodput rises about as this power of the requests in flight: the chain's, from 2 to 32, in Table 7."""

DATASET_BYTES = {"livecodebench/code_generation_lite": 4.5 * GB, "tatsu-lab/alpaca": 0.03 * GB}
"""About; the other sets are a few megabytes."""


@dataclass(frozen=True)
class Hours:
    """Of a grid: all its runs, and those that are not measured yet."""

    whole: float
    left: float


def gpu_bytes(run: RunConfig) -> dict[str, float] | None:
    """Memory that a run takes on a GPU, by what takes it; None of a model whose shape is not known here."""
    known = KNOWN.get(run.model.target)
    if known is None:
        return None
    size = BYTES[run.model.dtype]
    most = max(arm.settings.cap or arm.settings.budget or 0 for arm in run.arms)
    parts = {
        "weights": size * (known.target + sum(known.drafters.values())),
        "GRU input table": size * known.gru_table * run.engine.gru_input_table,
        "key/value cache": size * known.cache_token * run.concurrency * (LONGEST_PROMPT + run.max_new_tokens + most),
        "working space": WORKING_SPACE,
    }
    if known.state_bytes:
        parts["recurrent states"] = run.concurrency * (known.state_bytes + 2 * (most + 1) * known.row_bytes)
    return parts


def downloads(study: Study) -> dict[tuple[str, str], float]:
    """Bytes of what a study reads from the Hub, by kind and repository; of what is not known here, nothing."""
    found: dict[tuple[str, str], float] = {}
    for run in study.runs:
        if known := KNOWN.get(run.model.target):
            found["model", run.model.target] = BYTES["bfloat16"] * known.target
            for kind, parameters in known.drafters.items():
                if name := run.model.drafter_on_hub(kind):
                    found["model", name] = BYTES["bfloat16"] * parameters
        if run.dataset.hub and not run.dataset.path:
            found["dataset", run.dataset.hub.repo] = DATASET_BYTES.get(run.dataset.hub.repo, 0.005 * GB)
    return found


def work(run: RunConfig) -> float:
    """How long a run takes: in seconds on the authors' machine for a known model, for another in some unit of its own."""
    known, name = KNOWN.get(run.model.target), run.dataset.name
    tokens = TURNS.get(name, 1) * min(run.max_new_tokens, ANSWER_TOKENS.get(name, run.max_new_tokens))
    conversations = run.dataset.num_prompts or WHOLE_SET
    ar, other = (known.ar_tps, known.tps) if known else (1.0, 1.0)
    alone = conversations * tokens * sum(1 / (ar if arm.method == "ar" else other) for arm in run.arms)
    return alone / run.concurrency**GAIN_UNDER_LOAD


def seconds_of(run: RunConfig) -> float | None:
    """How long a measured run took; None if it is not measured, or its file can't say."""
    path = run.records / record_file(run.dataset.name, run.temperature, run.arms[0].label)
    try:
        return read_metadata(path).get("seconds") if path.is_file() else None
    except UserError:  # whoever reads the records says so
        return None


def hours(study: Study) -> tuple[dict[str, Hours], int]:
    """By grid, as far as anything is known of how fast this machine is; and the number of runs measured."""
    runs = [(run, work(run), seconds_of(run)) for run in study.runs]
    measured = [(expected, seconds) for _, expected, seconds in runs if seconds is not None]
    if measured:
        rate = sum(seconds for _, seconds in measured) / sum(expected for expected, _ in measured)
    elif runs and all(run.model.target in KNOWN for run in study.runs):
        rate = 1.0
    else:
        return {}, 0
    grids = {name: Hours(0.0, 0.0) for name in study.grids}
    for run, expected, seconds in runs:
        grid, share = grids[run.grid], rate * expected / 3600
        grids[run.grid] = Hours(grid.whole + share, grid.left + (share if seconds is None else 0.0))
    return grids, len(measured)


def header(study: Study) -> list[str]:
    """What a study will need, a line each; nothing of what isn't known."""
    return [f"study {study.name}: {line}" for line in (_gpu_line(study), _disk_line(study), _hours_line(study)) if line]


def _gpu_line(study: Study) -> str:
    needed = [parts for run in study.runs if run.engine.device != "cpu" and (parts := gpu_bytes(run))]
    if not needed:
        return ""
    most = max(needed, key=lambda parts: sum(parts.values()))
    parts = ", ".join(f"{what} {size / GB:.1f}" for what, size in most.items())
    return f"GPU memory: about {sum(most.values()) / GB:.0f} GB ({parts})"


def _disk_line(study: Study) -> str:
    needed = downloads(study)
    if not needed:
        return ""
    missing = sum(max(0.0, size - cached_bytes(repo, kind)) for (kind, repo), size in needed.items())
    folder, total = cache_folder(), sum(needed.values())
    free = shutil.disk_usage(next(place for place in (folder, *folder.parents) if place.is_dir())).free
    text = f"downloads: {missing / GB:.1f} GB of {total / GB:.1f} are not in {folder}, where {free / GB:.0f} GB are free"
    return f"{text}; results: {RESULTS / GB:.1f} GB" + ("; there is not enough room" if free < missing + RESULTS else "")


def _hours_line(study: Study) -> str:
    grids, measured = hours(study)
    if not grids:
        return ""
    each = ", ".join(f"{name} {grid.left:.1f} of {grid.whole:.1f}" for name, grid in grids.items() if grid.left)
    basis = f"as long as the {measured} runs measured here took" if measured else "at the speed in the authors' records"
    left = sum(grid.left for grid in grids.values())
    return f"hours: about {left:.1f} left for all tables and figures ({each}), {basis}" if each else "hours: all is measured"
