"""From a run's configuration to arms that can decode: what may be wrong is checked first, then models are loaded, once each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from dominotree.arms import Arm
from dominotree.config import EngineConfig, RunConfig
from dominotree.decoding.calibrate import HeldOut, calibrate
from dominotree.decoding.engine import Build, Speculation, generate, serve
from dominotree.decoding.profile import ProfilePlan, profile_costs, profile_rests
from dominotree.decoding.requests import Client, Generation, Limits, Request
from dominotree.decoding.sampling import Sampler, make_sampler
from dominotree.drafting.budget import Calibration, CostModel
from dominotree.drafting.scorers import ComputedInputs, GruInputs, InputTable, table_bytes
from dominotree.errors import UserError
from dominotree.files import cached
from dominotree.hardware import describe_hardware, free_memory
from dominotree.methods import METHODS, Parts, check_width, max_nodes, speculation
from dominotree.models.checkpoint import load_drafter, read_config
from dominotree.models.drafter import DFlashDrafter, DominoDrafter
from dominotree.models.target import Target, check_pair, load_target, load_tokenizer, target_config
from dominotree.paths import cache_dir
from dominotree.progress import report
from dominotree.prompts import Conversation, held_out_prompts
from dominotree.prompts.rendering import prompt_sha, render
from dominotree.provenance import versions

CALIBRATION_TOKENS = 32
REREAD = 16


@dataclass(frozen=True)
class Loaded:
    """An arm with its models. `parts`, without what only running them tells, are None for plain decoding."""

    arm: Arm
    target: Target
    parts: Parts | None

    def bytes_in_flight(self, slots: int, longest: int) -> int:
        """What so many requests of at most `longest` tokens take: keys, values, states and features, noise, and logits."""
        layers, heads, width = self.target.cache_shape
        entries, rows, block = 2 * layers * heads * width, 1, 1
        if self.parts is not None:
            drafter, rows = self.parts.drafter.config, max_nodes(self.parts) + 1
            block = drafter.block_size + 1
            entries += 2 * drafter.num_hidden_layers * drafter.num_key_value_heads * drafter.head_dim
            entries += len(drafter.target_layer_ids) * drafter.hidden_size  # features that no draft has read yet
        logits = 4 * self.target.config.vocab_size * (rows + 2 * block)  # of the pass; of the draft, and noise for its depths
        size, shape = self.target.dtype.itemsize, self.target.recurrent_shape
        recurrent = shape.bytes(size) + 2 * rows * shape.row_bytes(size) if shape else 0  # twice: layer by layer, then together
        return slots * ((longest + rows + block) * entries * size + logits + recurrent)


@dataclass(frozen=True)
class Decoder:
    """An arm ready to decode; `speculation` is None for plain decoding."""

    arm: Arm
    target: Target
    speculation: Speculation | None

    def generate(self, request: Request) -> Generation:
        return generate(self.target, self.speculation, request)

    def serve(self, clients: Sequence[Callable[[], Client]], slots: int, longest: int) -> list[Any]:
        """See `engine.serve`."""
        return serve(self.target, self.speculation, clients, slots, longest)


def resolve_device(name: str) -> torch.device:
    """`auto` is the GPU if there is one."""
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("engine.device=cuda: torch sees no GPU here; use engine.device=auto or cpu")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def check_models(config: RunConfig) -> int:
    """Check what can be wrong with target and drafters and shows in their configs; returns the target's context."""
    target = target_config(config.model.target, config.model.revision)
    for arm in config.arms:
        check_width(arm.method, arm.settings, target.vocab_size)
        kind = METHODS[arm.method].drafter
        if kind is not None:
            folder = config.model.drafter_path(kind)
            drafter = read_config(folder)
            if drafter.kind != kind:
                raise UserError(f"{folder}: this is a {drafter.kind} drafter, where {arm.label} needs a {kind} drafter")
            check_pair(target, drafter, str(folder))
    return target.max_position_embeddings


def check_lengths(prompts: Sequence[Conversation], tokenizer: Any, max_new_tokens: int, max_context: int) -> list[int]:
    """The tokens that each conversation takes at most, with all its answers.

    Raises `UserError` if one could outgrow the target's context.
    """
    lengths = []
    for conversation in prompts:
        messages = [message for turn in conversation.turns for message in exchange(turn, "")]
        _, ids = render(tokenizer, messages[:-1])
        needed = len(ids) + max_new_tokens * len(conversation.turns)
        if needed > max_context:
            raise UserError(
                f"prompt {conversation.id}: {needed} tokens with its answers, the target's context is {max_context}; "
                "lower max_new_tokens or leave the prompt out"
            )
        # An answer, read again as text, can take some tokens more than it was written with.
        lengths.append(needed + REREAD * (len(conversation.turns) - 1))
    return lengths


def check_memory(arms: Sequence[Loaded], slots: int, longest: int) -> None:
    """Say what so many requests of at most `longest` tokens take beside the models, and raise `UserError` if that isn't free."""
    device = arms[0].target.device
    needed, free = max(loaded.bytes_in_flight(slots, longest) for loaded in arms), free_memory(device)
    if slots > 1:
        report(
            f"{slots} requests in flight, up to {longest} tokens each: "
            f"{needed / 2**20:.0f} MiB of {free / 2**20:.0f} free on {device.type}"
        )
    if needed > free:
        raise UserError(
            f"concurrency={slots}: requests of {longest} tokens take {needed / 2**20:.0f} MiB, {free / 2**20:.0f} are free on "
            f"{device.type}; lower concurrency or max_new_tokens"
        )


def exchange(question: str, answer: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]


def load_decoders(config: RunConfig, device: torch.device, longest: int) -> list[Decoder]:
    """Load the target and the drafters that the arms need, once each, for requests of at most `longest` tokens."""
    dtype = getattr(torch, config.model.dtype)
    kinds = {METHODS[arm.method].drafter for arm in config.arms} - {None}
    # Drafters first: what is wrong with one shows before the large target is read.
    drafters = {kind: load_drafter(config.model.drafter_path(kind), kind, dtype, device).freeze() for kind in sorted(kinds)}
    target = load_target(config.model.target, dtype, device, config.model.revision)
    inputs = _gru_inputs(drafters["domino"], target.embedding, config.engine) if "domino" in kinds else None
    arms = [_loaded(arm, target, drafters, inputs, config) for arm in config.arms]
    timed = _up_to(config.cost_model.contexts, longest)[-1] if any(arm.settings.cap for arm in config.arms) else 0
    check_memory(arms, config.concurrency, max(longest, timed))
    return [_decoder(loaded, config, longest) for loaded in arms]


def _gru_inputs(drafter: DFlashDrafter, embedding: Tensor, engine: EngineConfig) -> GruInputs:
    """The GRU's input products, for all arms alike: looked up in a table of the vocabulary, or computed anew."""
    assert isinstance(drafter, DominoDrafter)
    if not engine.gru_input_table:
        return ComputedInputs(drafter, embedding)
    needed, free = table_bytes(drafter, embedding), free_memory(embedding.device)
    report(f"GRU input table: {needed / 2**20:.0f} MiB of {free / 2**20:.0f} free on {embedding.device.type}")
    if needed > free:
        raise UserError(
            f"engine.gru_input_table: the table takes {needed / 2**20:.0f} MiB, {free / 2**20:.0f} are free; "
            "engine.gru_input_table=false computes its rows when they are needed"
        )
    return InputTable(drafter, embedding)


def _loaded(arm: Arm, target: Target, drafters: dict[str, DFlashDrafter], inputs: GruInputs | None, config: RunConfig) -> Loaded:
    method = METHODS[arm.method]
    if method.drafter is None:
        return Loaded(arm, target, None)
    drafter = drafters[method.drafter]
    graphs = config.engine.cuda_graphs and target.device.type == "cuda"
    parts = Parts(drafter, arm.settings, inputs, config.temperature, cuda_graphs=graphs)
    return Loaded(arm, target.reading(drafter.config.target_layer_ids), parts)


def _decoder(loaded: Loaded, config: RunConfig, longest: int) -> Decoder:
    """With what running the models tells: the costs that a budget follows, and how far forecasts can be trusted."""
    arm, target, parts = loaded.arm, loaded.target, loaded.parts
    if parts is None:
        return Decoder(arm, target, None)
    if arm.settings.cap:
        parts = replace(parts, cost=machine_costs(config, arm, target, parts, longest))
    if arm.settings.forecast == "calibrated" or METHODS[arm.method].make_worth:
        parts = replace(parts, calibration=_calibration(config, target, parts))
    return Decoder(arm, target, speculation(arm.method, parts))


def _models_key(config: RunConfig, target: Target, drafter: DFlashDrafter) -> dict[str, Any]:
    """What tells apart what was found out about models on a machine: also what code ran them, and with which weights."""
    models = asdict(config.model) | {"drafter": asdict(drafter.config)}
    code = {name: part for name, part in config.digests.items() if name != "configuration"}
    return {"hardware": describe_hardware(target.device), "models": models, "code": code, "versions": versions()}


def machine_costs(config: RunConfig, arm: Arm, target: Target, parts: Parts, longest: int) -> CostModel:
    """What rounds of the run's requests cost here, profiled once; cached by hardware, models, code, versions and what is timed.

    At tree sizes up to the arm's cap, and the next, and contexts up to `longest`, and the next; an arm that may leave drafting
    alone counts whole rounds.
    """
    drafter, requests = parts.drafter, config.concurrency
    plan = ProfilePlan(**asdict(config.cost_model))
    plan = replace(plan, sizes=_up_to(plan.sizes, arm.settings.cap), contexts=_up_to(plan.contexts, longest))
    whole = METHODS[arm.method].make_worth is not None
    key = _models_key(config, target, drafter) | {"plan": asdict(plan), "requests": requests}
    if whole:
        key |= {"rounds": asdict(arm.settings), "temperature": config.temperature, "sampling": config.engine.sampling}

    def profile() -> CostModel:
        costs = profile_costs(target, drafter, plan, requests)
        if not whole:
            return costs
        rounds = Speculation(drafter, _largest(parts), arm.settings.cap)
        return profile_rests(target, rounds, costs, plan, lambda: run_sampler(config, "profile", target.device))

    return cached(CostModel, cache_dir() / "cost_models", key, profile)


def _up_to(values: Sequence[int], limit: int) -> tuple[int, ...]:
    """The rising `values` below a limit, and the first that is not."""
    return tuple(value for value, before in zip(values, (0, *values), strict=False) if before < limit)


def _largest(parts: Parts) -> Build:
    """DominoTree's trees of as many nodes as a rule may choose from."""
    settings = replace(parts.settings, budget=parts.settings.cap, cap=None)
    return METHODS["dominotree"].make_build(replace(parts, settings=settings))


def _calibration(config: RunConfig, target: Target, parts: Parts) -> Calibration:
    """How often nodes of a forecast are accepted at the run's temperature, fitted once on the held-out prompts and cached."""
    drawn = {"temperature": config.temperature, "seed": config.seed, "sampling": config.engine.sampling}
    key = _models_key(config, target, parts.drafter) | {"settings": asdict(parts.settings)} | drawn

    def fit() -> Calibration:
        tokenizer = load_tokenizer(config.model.target, config.model.revision)
        rendered = [render(tokenizer, exchange(prompt.turns[0], "")[:1]) for prompt in held_out_prompts()]
        held_out = [HeldOut(ids, run_sampler(config, prompt_sha(text), target.device)) for text, ids in rendered]
        limits = decoding_limits(target, CALIBRATION_TOKENS)
        return calibrate(target, parts.drafter, _largest(parts), parts.settings.cap, held_out, limits)

    return cached(Calibration, cache_dir() / "calibrations", key, fit)


def run_sampler(config: RunConfig, prompt: str, device: torch.device) -> Sampler:
    """The sampler of one generation; `prompt` names the prompt."""
    return make_sampler(config.engine.sampling, config.seed, prompt, config.temperature, device)


def decoding_limits(target: Target, max_new_tokens: int) -> Limits:
    """Where an answer of `target` ends: at its own end-of-text tokens, or after so many."""
    eos = target.model.generation_config.eos_token_id
    ids = eos if isinstance(eos, list) else [] if eos is None else [eos]
    return Limits(max_new_tokens, frozenset(ids))
