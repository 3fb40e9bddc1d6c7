"""Whether a GPU does what the project expects of one, in minutes and with nothing downloaded: one command, run before a study.

    python -m benchmarks.gpu_smoke [--sizes paper] [--json FILE]

With random weights, at the sizes of Qwen3-4B and its released drafters, it checks the fused kernels and the frontier builder
against the references, CUDA graphs against what they were recorded from, every arm of the study paper-qwen3-4b against AR in fp32
on a small model, some also with other requests in flight, the kernels of recurrent layers at the sizes of Qwen3.6-27B, some arms
on a small hybrid, and times the stages of a round of every arm. A check that fails is reported and the others go on; the exit
status is 1 if any failed. On a CPU, `--sizes tiny` goes through the same in a minute, without what only a GPU has.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig, Qwen3Config, Qwen3ForCausalLM

from benchmarks.builders import nodes, random_drafter, random_drafts, waits_of
from dominotree.arms import Arm
from dominotree.compose import load_study
from dominotree.decoding.engine import Build, Speculation, generate, serve
from dominotree.decoding.profile import ProfilePlan, profile_costs
from dominotree.decoding.requests import Client, Generation, Limits, Request
from dominotree.decoding.sampling import make_sampler
from dominotree.drafting import frontier, heap
from dominotree.drafting.budget import Calibration, CostModel
from dominotree.drafting.scorers import ConditionalScorer, GruInputs, InputTable
from dominotree.drafting.tree import DraftTree
from dominotree.graphs import Graphed
from dominotree.hardware import describe_hardware, gpu_clocks
from dominotree.kernels import absorb_paths, ancestry, compact_cache, convolve_trees, plain_torch, recur_trees, tree_mask
from dominotree.methods import METHODS, Parts, max_nodes
from dominotree.models.drafter import DRAFTERS, DFlashDrafter, DrafterConfig, DrafterKind
from dominotree.models.target import Target
from dominotree.provenance import git_commit, versions

STUDY = "paper-qwen3-4b"
BUDGET, CHILDREN, CANDIDATES = 32, 8, 64
SEED = 0
WARM_UP_TOKENS = 4
IN_FLIGHT = ("ar", "dflash", "dominotree@32", "adaptive", "loadaware")
LIKELY = 8
HYBRID_ARMS = ("ar", "domino", "dominotree@16", "dominotree@32")
RECURRENT = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"],
}
"""What makes a hybrid of the small model."""
"""Tokens with large embeddings, so that target and drafters mostly choose among these few and rounds accept something."""

HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
SMALL = {"vocab_size": 1500, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, **HEADS}
QWEN3_4B = {
    "vocab_size": 151_936, "hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
}  # fmt: skip


@dataclass(frozen=True)
class Sizes:
    """What is built and timed. shape: of the timed target. builder: of `benchmarks.builders`. contexts, tokens: of the timing.

    recurrence: heads of a recurrent layer, their width, those of its keys, and rows of a pass.
    """

    shape: dict[str, int]
    drafter_layers: int
    block_size: int
    gru_hidden_dim: int
    emb_dim: int
    builder: str
    recurrence: tuple[int, int, int, int]
    context: int
    tokens: int
    exact_tokens: int


SIZES = {
    "paper": Sizes(QWEN3_4B, 5, 16, 1024, 256, "paper", (48, 128, 16, 16), context=512, tokens=24, exact_tokens=32),
    "tiny": Sizes(SMALL, 1, 6, 24, 8, "demo", (4, 8, 2, 16), context=24, tokens=3, exact_tokens=5),
}


class Skipped(Exception):
    """What a check needs is not here."""


class PartlyFailed(Exception):
    """A check that failed, with the numbers that it found all the same."""

    def __init__(self, fault: str, details: dict[str, Any]) -> None:
        super().__init__(fault)
        self.details = details


@dataclass(frozen=True)
class Result:
    """What came of one check. details: its numbers; fault: why it failed or was left out."""

    check: str
    status: str
    seconds: float
    details: dict[str, Any]
    fault: str


@dataclass(frozen=True)
class Models:
    """A random target with its drafters, and the GRU's input table."""

    target: Target
    drafters: dict[DrafterKind, DFlashDrafter]
    inputs: GruInputs


def require(holds: bool, fault: str) -> None:
    if not holds:
        raise AssertionError(fault)


def random_models(
    shape: dict[str, int], sizes: Sizes, device: torch.device, dtype: torch.dtype, recurrent: dict[str, Any] | None = None
) -> Models:
    """A target and drafters of these shapes, of weights that keep the size of what passes through them.

    recurrent: what makes the target a hybrid, None for a Qwen3.
    """
    family = (Qwen3ForCausalLM, Qwen3Config) if recurrent is None else (Qwen3_5ForCausalLM, Qwen3_5TextConfig)
    common = {"tie_word_embeddings": True, "max_position_embeddings": 8192, "initializer_range": shape["hidden_size"] ** -0.5}
    config = family[1](**shape, **common, **(recurrent or {}))
    config.dtype = dtype
    default = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            model = family[0](config)
            model.get_input_embeddings().weight[:LIKELY] *= 5
            target = Target(model)
            drafters = {kind: random_drafter_of(kind, shape, sizes) for kind in DRAFTERS}
    finally:
        torch.set_default_dtype(default)
    return Models(target, drafters, InputTable(drafters["domino"], target.embedding))


def random_drafter_of(kind: DrafterKind, shape: dict[str, int], sizes: Sizes) -> DFlashDrafter:
    """A drafter in the released layout, for a target of `shape`, on the default device and in the default dtype."""
    head = {"pure_draft_prefix_len": 1, "gru_hidden_dim": sizes.gru_hidden_dim, "emb_dim": sizes.emb_dim}
    layers = shape["num_hidden_layers"]
    config = DrafterConfig(
        kind=kind, rms_norm_eps=1e-6, rope_theta=1e6, block_size=sizes.block_size, mask_token_id=shape["vocab_size"] - 1,
        target_layer_ids=tuple(torch.linspace(1, layers - 3, sizes.drafter_layers, device="cpu").round().int().tolist()),
        num_target_layers=layers, shift_label=kind == "domino", max_position_embeddings=8192,
        **shape | {"num_hidden_layers": sizes.drafter_layers}, **(head if kind == "domino" else {}),
    )  # fmt: skip
    drafter = DRAFTERS[kind](config).requires_grad_(False).eval()
    for weight in drafter.parameters():
        if weight.dim() > 1:
            weight.normal_(0, weight.shape[1] ** -0.5)
    return drafter.freeze()


def study_arms(vocab_size: int) -> list[Arm]:
    """Every arm of the paper's study, once."""
    arms = {arm.label: arm for run in load_study(STUDY).runs for arm in run.arms}
    return [arm for arm in arms.values() if (arm.settings.candidate_width or 0) <= vocab_size]


def build_of(arm: Arm, models: Models, cost: CostModel, temperature: float, graphs: bool) -> tuple[Parts, Build]:
    kind = METHODS[arm.method].drafter
    inputs = models.inputs if kind == "domino" else None
    certain = Calibration((0.0, 1.0), (0.0, 1.0))  # believes the drafter
    parts = Parts(models.drafters[kind], arm.settings, inputs, temperature, cost, certain, cuda_graphs=graphs)
    return parts, METHODS[arm.method].make_build(parts)


def target_and_speculation(arm: Arm, models: Models, cost: CostModel, temperature: float) -> tuple[Target, Speculation | None]:
    """What an arm decodes with; it drafts in every round."""
    if METHODS[arm.method].drafter is None:
        return models.target, None
    parts, build = build_of(arm, models, cost, temperature, models.target.device.type == "cuda")
    target = models.target.reading(parts.drafter.config.target_layer_ids)
    return target, Speculation(parts.drafter, build, max_nodes(parts))


def decoder(arm: Arm, models: Models, cost: CostModel, temperature: float, prompt: list[int]) -> Callable[[int], Generation]:
    """Decodes so many tokens with an arm; the first time may compile kernels and record graphs."""
    device = models.target.device

    def request(tokens: int) -> Request:
        return Request(prompt, make_sampler("keyed", SEED, "smoke", temperature, device), Limits(tokens))

    target, speculation = target_and_speculation(arm, models, cost, temperature)
    return lambda tokens: generate(target, speculation, request(tokens))


def costs(models: Models, context: int) -> CostModel:
    """What the cost-aware arms go by; quickly."""
    drafter = models.drafters["dflash"]
    plan = ProfilePlan(sizes=(1, 16, 64), contexts=(context,), repeats=3, warmups=2)
    return profile_costs(models.target.reading(drafter.config.target_layer_ids), drafter, plan)


def prompt_of(length: int, vocab_size: int) -> list[int]:
    return torch.randint(vocab_size, (length,), generator=torch.Generator().manual_seed(SEED)).tolist()


class Builder:
    """Builds of one drafter's drafts: by the frontier, by the frontier on the references, by the heap."""

    def __init__(self, sizes: Sizes, device: torch.device, dtype: torch.dtype) -> None:
        self.drafter = random_drafter(sizes.builder, device, dtype)
        config = self.drafter.config
        embedding = torch.randn(config.vocab_size, config.hidden_size, device=device, dtype=dtype)
        self.inputs = InputTable(self.drafter, embedding)
        self.drafts = random_drafts(self.drafter, 3)

    def scorer(self, *draft: torch.Tensor) -> ConditionalScorer:
        return ConditionalScorer(self.drafter, self.inputs, *draft, CHILDREN, CANDIDATES)

    def frontier(self, *draft: torch.Tensor) -> DraftTree:
        return frontier.build_trees(self.scorer(*draft), BUDGET)

    def heap(self, *draft: torch.Tensor) -> DraftTree:
        return heap.build_tree(self.scorer(*draft), BUDGET)


def shares_of_equal_trees(builder: Builder) -> dict[str, float]:
    """Of the drafts, the share whose tree is that of the references, and that of the heap."""
    with_references, with_heap = [], []
    for draft in builder.drafts:
        parts = (draft.z, draft.base_logits, draft.root)
        tree = nodes(builder.frontier(*parts))
        with plain_torch():
            with_references.append(tree == nodes(builder.frontier(*parts)))
        with_heap.append(tree == nodes(builder.heap(*parts)))
    return {"as_references": sum(with_references) / len(with_references), "as_heap": sum(with_heap) / len(with_heap)}


def check_builder(sizes: Sizes, device: torch.device) -> dict[str, Any]:
    """Trees are those of the references and of the heap: all of them in fp32; in bf16, where ties are many, it says how many."""
    exact = shares_of_equal_trees(Builder(sizes, device, torch.float32))
    rounded = shares_of_equal_trees(Builder(sizes, device, torch.bfloat16))
    require(set(exact.values()) == {1.0}, f"in fp32 not all trees are equal: {exact}")
    return {"fp32": exact, "bf16": rounded}


def check_mask_and_compaction(sizes: Sizes, device: torch.device) -> dict[str, Any]:
    """The mask of a tree and the compaction of a cache are those of the references, bit by bit."""
    builder = Builder(sizes, device, torch.float32)
    tree = builder.frontier(*(getattr(builder.drafts[0], part) for part in ("z", "base_logits", "root")))
    lengths = torch.tensor([37], device=device)
    width, depths = 37 + BUDGET + 1, builder.drafter.config.num_proposals
    cache = torch.randn(4, 1, 8, width, 128, device=device, dtype=torch.bfloat16)
    rows, counts = torch.tensor([[0, 3, 7, 20]], device=device), torch.tensor([3], device=device)
    kept, expected = cache.clone(), cache.clone()
    mask = tree_mask(tree.parents, tree.valid, lengths, width, depths, torch.bfloat16)
    compact_cache(kept, lengths, rows, counts)
    with plain_torch():
        require(torch.equal(mask, tree_mask(tree.parents, tree.valid, lengths, width, depths, torch.bfloat16)), "masks differ")
        compact_cache(expected, lengths, rows, counts)
    require(torch.equal(kept, expected), "compacted caches differ")
    return {"mask": list(mask.shape), "cache": list(cache.shape)}


def check_graph(sizes: Sizes, device: torch.device) -> dict[str, Any]:
    """A build can be captured, gives for every draft what it gives uncaptured, and waits for the device nowhere."""
    if device.type != "cuda":
        raise Skipped("only a GPU has graphs")
    builder = Builder(sizes, device, torch.bfloat16)
    graphed = Graphed(builder.frontier, "the tree's build")
    for draft in builder.drafts:
        parts = (draft.z, draft.base_logits, draft.root)
        require(nodes(graphed(*parts)) == nodes(builder.frontier(*parts)), "the graph builds another tree")
    waits = waits_of(builder.frontier, builder.drafts[0])
    require(waits == 0, f"a build waits for the GPU {waits} times")
    return {"recordings": len(graphed.recordings), "waits": waits}


def check_exactness(sizes: Sizes, device: torch.device) -> dict[str, Any]:
    """In fp32 every arm gives AR's tokens, greedy and sampled."""
    models = random_models(SMALL, replace(SIZES["tiny"], block_size=8), device, torch.float32)
    prompt, cost = prompt_of(24, SMALL["vocab_size"]), costs(models, 24)
    arms, differ, taus = study_arms(SMALL["vocab_size"]), [], {}
    plain = Arm("ar", "ar", arms[0].settings)
    for temperature in (0.0, 1.0):
        reference = decoder(plain, models, cost, temperature, prompt)(sizes.exact_tokens).tokens
        for arm in arms:
            name = f"{arm.label} at T={temperature:g}"
            generation = decoder(arm, models, cost, temperature, prompt)(sizes.exact_tokens)
            taus[name] = round((len(generation.tokens) - 1) / len(generation.rounds), 2)
            if generation.tokens != reference:
                differ.append(name)
    require(not differ, f"not AR's tokens: {', '.join(differ)}")
    require(max(taus.values()) > 1, "no draft was ever accepted, so that nothing is shown")
    return {"tokens": sizes.exact_tokens, "tau": taus}


def check_hybrid(sizes: Sizes, device: torch.device) -> dict[str, Any]:
    """The kernels of recurrent layers give what the references give, and in fp32 trees on a small hybrid AR's tokens."""
    faults = recurrence_faults(*sizes.recurrence, device)
    models = random_models(SMALL, replace(SIZES["tiny"], block_size=8), device, torch.float32, RECURRENT)
    prompt, cost = prompt_of(24, SMALL["vocab_size"]), costs(models, 24)
    arms = {arm.label: arm for arm in study_arms(SMALL["vocab_size"]) if arm.label in HYBRID_ARMS}
    tokens = {label: decoder(arm, models, cost, 0.0, prompt)(sizes.exact_tokens).tokens for label, arm in arms.items()}
    faults += [f"{label} does not give AR's tokens" for label in HYBRID_ARMS if tokens[label] != tokens["ar"]]
    require(not faults, "; ".join(faults))
    return {"recurrence": list(sizes.recurrence), "arms": list(HYBRID_ARMS), "tokens": sizes.exact_tokens}


def recurrence_faults(heads: int, width: int, key_heads: int, rows: int, device: torch.device) -> list[str]:
    """What differs between kernels and references on a binary tree of two requests in fp32."""
    random = torch.Generator(device).manual_seed(SEED)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=random, device=device)

    family = ancestry(((torch.arange(rows, device=device) - 1) // 2).expand(2, -1), 4)
    channels = (2 * key_heads + heads) * width
    inputs, window, weight = normal(2, rows, channels), normal(2, 3, channels), normal(channels, 4)
    gates, betas, states = -normal(2, rows, heads).abs(), normal(2, rows, heads).sigmoid(), normal(2, heads, width, width)
    path, counts = torch.tensor([[0, 1, 3], [0, 2, 0]], device=device), torch.tensor([3, 2], device=device)

    def run() -> tuple[Tensor, ...]:
        convolved = convolve_trees(inputs, window, weight, family.sources).unflatten(-1, (-1, width))
        queries, keys, values = convolved.split((key_heads, key_heads, heads), dim=2)
        outputs, updates, decays = recur_trees(queries, keys, values, gates, betas, states, family.above)
        after = states[None].clone()
        absorb_paths(after, keys[None], updates[None], decays[None], path, counts)
        return convolved, outputs, after

    fused = run()
    with plain_torch():
        compared = zip(("convolutions", "outputs", "states"), fused, run(), strict=True)
    return [
        f"{what} differ by {float((ours - theirs).abs().max()):.1e}"
        for what, ours, theirs in compared
        if not torch.allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    ]


def check_stages(sizes: Sizes, device: torch.device) -> dict[str, Any]:
    """Milliseconds of each stage of a round, by arm, at the paper's sizes. Random drafters: rounds are real, tau says nothing.

    Fails if an arm breaks, naming all that do, after the others are timed.
    """
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    models = random_models(sizes.shape, sizes, device, dtype)
    prompt, cost = prompt_of(sizes.context, sizes.shape["vocab_size"]), costs(models, sizes.context)
    arms, faults = {}, []
    for arm in study_arms(sizes.shape["vocab_size"]):
        try:
            decode = decoder(arm, models, cost, 0.0, prompt)
            decode(WARM_UP_TOKENS)
            generation = decode(sizes.tokens)
        except Exception as error:
            faults.append(f"{arm.label}: {type(error).__name__}: {error}")
            continue
        rounds = len(generation.rounds)
        arms[arm.label] = {stage: round(1000 * spent / rounds, 3) for stage, spent in asdict(generation.stages).items()}
        arms[arm.label]["nodes"] = round(sum(round_.nodes for round_ in generation.rounds) / rounds, 1)
    details: dict[str, Any] = {"dtype": str(dtype), "context": sizes.context, "ms_a_round": arms, "cost_model": asdict(cost)}
    if device.type == "cuda":
        details["peak_memory_gb"] = round(torch.cuda.max_memory_allocated(device) / 1e9, 2)
    if faults:
        raise PartlyFailed("; ".join(faults), details)
    return details


def check_requests_in_flight(sizes: Sizes, device: torch.device) -> dict[str, Any]:
    """In fp32 four requests of other lengths, three at a time, get the tokens that each gets alone."""
    models = random_models(SMALL, replace(SIZES["tiny"], block_size=8), device, torch.float32)
    prompts, cost = [prompt_of(length, SMALL["vocab_size"]) for length in (24, 9, 40, 17)], costs(models, 24)
    limits = [Limits(max(2, sizes.exact_tokens - 3 * place)) for place in range(len(prompts))]
    differ, arms = [], [arm for arm in study_arms(SMALL["vocab_size"]) if arm.label in IN_FLIGHT]
    for temperature, arm in product((0.0, 1.0), arms):

        def asked(place: int, temperature: float = temperature) -> Request:
            sampler = make_sampler("keyed", SEED, f"smoke {place}", temperature, device)
            return Request(prompts[place], sampler, limits[place])

        def ask(place: int, asked: Callable[[int], Request] = asked) -> Client:
            return (yield asked(place))

        alone = [generate(models.target, None, asked(place)).tokens for place in range(len(prompts))]
        target, speculation = target_and_speculation(arm, models, cost, temperature)
        clients = [partial(ask, place) for place in range(len(prompts))]
        longest = max(map(len, prompts)) + sizes.exact_tokens
        if [one.tokens for one in serve(target, speculation, clients, 3, longest)] != alone:
            differ.append(f"{arm.label} at T={temperature:g}")
    require(not differ, f"not the tokens of each request alone: {', '.join(differ)}")
    return {"requests": len(prompts), "arms": [arm.label for arm in arms]}


CHECKS: dict[str, Callable[[Sizes, torch.device], dict[str, Any]]] = {
    "builder": check_builder,
    "mask_and_compaction": check_mask_and_compaction,
    "graph": check_graph,
    "exactness": check_exactness,
    "requests_in_flight": check_requests_in_flight,
    "hybrid": check_hybrid,
    "stages": check_stages,
}


@torch.inference_mode()
def run_check(name: str, sizes: Sizes, device: torch.device) -> Result:
    """One check, whatever comes of it."""
    torch.manual_seed(SEED)
    start, status, details, fault = time.monotonic(), "passed", {}, ""
    try:
        details = CHECKS[name](sizes, device)
        if device.type == "cuda":
            torch.cuda.synchronize(device)  # a fault of a kernel shows here, and not in the next check
    except Skipped as reason:
        status, fault = "skipped", str(reason)
    except Exception as error:  # whatever it is, it must not hide the other checks
        status, fault = "failed", f"{type(error).__name__}: {error}"
        details = getattr(error, "details", {})
        traceback.print_exc()
    finally:
        if device.type == "cuda":
            torch.cuda.empty_cache()
    return Result(name, status, round(time.monotonic() - start, 1), details, fault)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", choices=SIZES, default="paper")
    parser.add_argument("--checks", nargs="+", choices=CHECKS, default=list(CHECKS))
    parser.add_argument("--json", type=Path, help="also write the results there")
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu" and options.sizes == "paper":
        parser.error("torch sees no GPU here; --sizes tiny goes through the checks on a CPU")
    about = {"hardware": describe_hardware(device), "versions": versions(), "git_commit": git_commit(), "sizes": options.sizes}
    print(json.dumps(about), flush=True)
    results = []
    for name in options.checks:
        result = run_check(name, SIZES[options.sizes], device)
        results.append(result)
        print(f"{result.status:>7}  {result.check} ({result.seconds} s) {result.fault}", flush=True)
        for arm, stages in result.details.get("ms_a_round", {}).items():
            print(f"         {arm:>22} " + " ".join(f"{stage} {value:.2f}" for stage, value in stages.items()), flush=True)
    found = about | {"clocks": gpu_clocks(device), "results": [asdict(result) for result in results]}
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    sys.exit(int(any(result.status == "failed" for result in results)))


if __name__ == "__main__":
    main()
