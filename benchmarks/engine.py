"""The engine against plain transformers in one process: passes, autoregression, and what a tree gains on the demo prompts.

    python -m benchmarks.engine [--rows 1 9 17 33] [--context 256] [--repeats 30] [--budgets 4 8 16] [--prompts 2]
                                [--new-tokens 48] [--json FILE]

All on the demo target, in fp32, and in bf16 where the CPU multiplies it in hardware (AMX). What is compared takes turns, and the
lower quartile of its times is told, so that a busy machine disturbs both alike and little.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from dominotree.arms import MethodSettings
from dominotree.decoding.cache import TargetCache
from dominotree.decoding.engine import Speculation, generate
from dominotree.decoding.profile import star
from dominotree.decoding.requests import Limits, Request
from dominotree.decoding.sampling import GreedySampler
from dominotree.decoding.verify import VerifyInput, next_input, verify_input
from dominotree.drafting.scorers import InputTable
from dominotree.errors import exit_on_user_error
from dominotree.hardware import describe_hardware
from dominotree.methods import METHODS, Parts
from dominotree.models.checkpoint import load_drafter
from dominotree.models.foreign import ForeignTransformer
from dominotree.models.target import DEMO, Target, load_target, load_tokenizer
from dominotree.paths import ASSETS
from dominotree.prompts import FAMILIES, load_dataset
from dominotree.prompts.rendering import render

CPU = torch.device("cpu")
WARM_UPS = 3
QUARTILE = 0.25


@dataclass(frozen=True)
class Pass:
    """One pass of so many rows behind a context, in ms: ours and transformers', each without and with the LM head.

    steps: what ours costs in steps of one row; transformers_steps: in transformers' own.
    """

    dtype: str
    rows: int
    layers_ms: float
    pass_ms: float
    transformers_layers_ms: float
    transformers_pass_ms: float
    steps: float
    transformers_steps: float


@dataclass(frozen=True)
class Loop:
    """Tokens a second of one arm on the demo prompts, prefill left out; gain: over AR, prompt by prompt. Stages: ms a round."""

    dtype: str
    arm: str
    tokens_per_s: float
    gain: float
    tau: float
    draft_ms: float
    build_ms: float
    verify_ms: float
    commit_ms: float


def in_turns(actions: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """The lower quartile of each action's times, in ms; they take turns."""
    times: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(WARM_UPS + repeats):
        for name, action in actions.items():
            start = time.perf_counter()
            action()
            times[name].append(1000 * (time.perf_counter() - start))
    return {name: float(np.quantile(taken[WARM_UPS:], QUARTILE)) for name, taken in times.items()}


def one_pass(target: Target, rows: int, context: int) -> VerifyInput:
    """The step of AR for one row, else the verification of a tree of rows - 1 nodes."""
    root = torch.zeros(1, dtype=torch.int64)
    lengths = torch.full_like(root, context)
    if rows == 1:
        return next_input(root, lengths, context, target.dtype)
    return verify_input(star(rows - 1, CPU), root, lengths, context, 1, target.dtype)


def compare_passes(target: Target, rows: Sequence[int], context: int, repeats: int) -> Iterator[Pass]:
    """A row of the table for each number of rows, one row first."""
    networks = {"ours": target.network, "transformers": ForeignTransformer(target.model)}
    heads = {"ours": target.logits, "transformers": lambda hidden: F.linear(hidden, target.lm_head)}
    caches, actions = {}, {}
    for name, network in networks.items():
        caches[name] = TargetCache(target, context + max(rows))
        network(torch.zeros(1, context, dtype=torch.int64), torch.arange(context).unsqueeze(0), None, caches[name], ())
        caches[name].start(0, context)

    def layers(name: str, inputs: VerifyInput) -> Tensor:
        return networks[name](inputs.tokens, inputs.positions, inputs.layout, caches[name], ())[0]

    for count in rows:
        inputs = one_pass(target, count, context)
        for name in networks:
            actions[name, count, "layers"] = lambda name=name, inputs=inputs: layers(name, inputs)
            actions[name, count, "pass"] = lambda name=name, inputs=inputs: heads[name](layers(name, inputs))
    ms = in_turns(actions, repeats)
    for count in rows:
        of = {(name, part): ms[name, count, part] for name in networks for part in ("layers", "pass")}
        steps = {name: of[name, "pass"] / ms[name, rows[0], "pass"] for name in networks}
        yield Pass(str(target.dtype).removeprefix("torch."), count, *of.values(), steps["ours"], steps["transformers"])


def demo_prompts(count: int) -> list[list[int]]:
    """The first prompts of each family, as a run renders them."""
    tokenizer = load_tokenizer(DEMO)
    conversations = [one for family in FAMILIES for one in load_dataset(family, count)]
    return [render(tokenizer, [{"role": "user", "content": one.turns[0]}])[1] for one in conversations]


def generate_plainly(model: Any, prompt: list[int], new_tokens: int) -> float:
    """Seconds that transformers' own greedy `generate` takes for the tokens after the first."""

    def taken(tokens: int) -> float:
        start = time.perf_counter()
        model.generate(torch.tensor([prompt]), max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False)
        return time.perf_counter() - start

    return taken(new_tokens) - taken(1)


def compare_loops(target: Target, budgets: Sequence[int], prompts: list[list[int]], new_tokens: int) -> Iterator[Loop]:
    """AR, transformers' `generate` and DominoTree at each budget, on every prompt in turn."""
    drafter = load_drafter(ASSETS / "smollm2-135m-domino", "domino", target.dtype, CPU).freeze()
    reading, table = target.reading(drafter.config.target_layer_ids), InputTable(drafter, target.embedding)
    limits, speculations = Limits(new_tokens), {}
    for budget in budgets:
        settings = MethodSettings(budget=budget, children=8, candidate_width=64)
        build = METHODS["dominotree"].make_build(Parts(drafter, settings, table))
        speculations[budget] = Speculation(drafter, build, budget)
    plain, arms = [], {"ar": []} | {f"dominotree@{budget}": [] for budget in budgets}
    for prompt in prompts[:1] + prompts:  # the first once to warm up
        request = Request(prompt, GreedySampler(), limits)
        arms["ar"].append(generate(target, None, request))
        plain.append((new_tokens - 1) / generate_plainly(target.model, prompt, new_tokens))
        for budget in budgets:
            arms[f"dominotree@{budget}"].append(generate(reading, speculations[budget], request))
    dtype = str(target.dtype).removeprefix("torch.")
    speeds = {arm: np.array([(len(one.tokens) - 1) / one.decode_s for one in runs[1:]]) for arm, runs in arms.items()}
    gain = float(np.median(np.array(plain[1:]) / speeds["ar"]))
    yield Loop(dtype, "transformers", float(np.mean(plain[1:])), gain, 1.0, 0.0, 0.0, 0.0, 0.0)
    for arm, runs in arms.items():
        rounds = sum(len(one.rounds) for one in runs[1:])
        stages = [1000 * sum(asdict(one.stages)[stage] for one in runs[1:]) / rounds for stage in asdict(runs[0].stages)]
        tau = sum(len(one.tokens) - 1 for one in runs[1:]) / rounds
        yield Loop(dtype, arm, float(speeds[arm].mean()), float(np.median(speeds[arm] / speeds["ar"])), tau, *stages)


def dtypes() -> list[torch.dtype]:
    """fp32, and bf16 where this CPU has AMX."""
    return [torch.float32] + ([torch.bfloat16] if torch.cpu._is_amx_tile_supported() else [])


def table(rows: Sequence[Pass] | Sequence[Loop]) -> str:
    """The rows under their fields' names."""
    header = list(asdict(rows[0]))
    lines = [header] + [[f"{x:.2f}" if isinstance(x, float) else str(x) for x in asdict(row).values()] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


@exit_on_user_error
@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--rows", nargs="+", type=int, default=[1, 9, 17, 33], help="the first is the step that others are told in"
    )
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--budgets", nargs="+", type=int, default=[4, 8, 16])
    parser.add_argument("--prompts", type=int, default=2, help="of each family")
    parser.add_argument("--new-tokens", type=int, default=48)
    parser.add_argument("--json", type=Path, help="also write the rows there")
    options = parser.parse_args()
    hardware, passes, loops = describe_hardware(CPU), [], []
    print(hardware)
    if torch.bfloat16 not in dtypes():
        print("bf16 is not measured: this CPU has no AMX")
    for dtype in dtypes():
        target = load_target(DEMO, dtype, CPU)
        passes += compare_passes(target, options.rows, options.context, options.repeats)
        loops += compare_loops(target, options.budgets, demo_prompts(options.prompts), options.new_tokens)
    print(f"\n{table(passes)}\n\n{table(loops)}")
    if options.json:
        result = {"hardware": hardware, "torch": torch.__version__, "context": options.context}
        result |= {"passes": [asdict(row) for row in passes], "loops": [asdict(row) for row in loops]}
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
