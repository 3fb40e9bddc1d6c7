"""One run: every arm on every prompt, interleaved prompt by prompt and journalled (docs/protocol.md)."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import torch

from dominotree.arms import Arm
from dominotree.config import RunConfig
from dominotree.decoding.requests import Client, Generation, Limits, Request, Round
from dominotree.decoding.sampling import Places, Sampler
from dominotree.hardware import describe_hardware
from dominotree.journal import Journal
from dominotree.loading import (
    Decoder,
    check_lengths,
    check_models,
    decoding_limits,
    exchange,
    load_decoders,
    resolve_device,
    run_sampler,
)
from dominotree.methods import METHODS
from dominotree.models.target import Target, load_tokenizer
from dominotree.progress import Progress
from dominotree.prompts import Conversation, load_dataset
from dominotree.prompts.rendering import prompt_sha, render
from dominotree.provenance import git_commit, versions
from dominotree.records import validate

T = TypeVar("T")
PROBABILITY_BINS = 10
WAVE = 2
NO_BINS: dict[str, list[int] | list[float]] = {"nodes_by_bin": [], "forecast_by_bin": [], "accepted_by_bin": []}
WARM_UP_TOKENS = 12
WARM_UP_TEXT = "Explain in two or three sentences why the sky is blue, and why it is red in the evening."


@dataclass(frozen=True)
class Turn:
    """One arm's answer to one prompt-turn."""

    prompt: list[int]
    prompt_sha: str
    generation: Generation


def measure(config: RunConfig, journal_path: Path) -> pd.DataFrame:
    """Measure a run, or what its journal lacks of it, and return all its records.

    Raises `UserError` before any compute if models, drafters, widths, prompts or the journal do not fit.
    """
    device = resolve_device(config.engine.device)
    torch.set_num_threads(config.engine.num_threads)
    max_context = check_models(config)
    tokenizer = load_tokenizer(config.model.target, config.model.revision)
    dataset = config.dataset
    prompts = load_dataset(dataset.name, dataset.num_prompts, _path(dataset.path), hub=dataset.hub)
    lengths = check_lengths(prompts, tokenizer, config.max_new_tokens, max_context)
    origin = {"git_commit": git_commit(), "hardware": describe_hardware(device), "versions": versions()}
    with Journal.open(journal_path, config.digest, [arm.label for arm in config.arms], origin) as journal:
        left = [prompt for prompt in prompts if prompt.id not in journal.done]
        if left:
            journal.expect(origin)
            longest = max(lengths)
            decoders = load_decoders(config, device, longest)
            _warm_up(decoders, tokenizer, config)
            progress = Progress(config.label, len(prompts), len(prompts) - len(left))
            for number, wave in enumerate(waves(left, config.concurrency), start=len(prompts) - len(left)):
                answers = _answers(decoders, wave, tokenizer, config, rotation=number, longest=longest)
                for place, conversation in enumerate(wave):
                    turns = {arm: answer[place] for arm, answer in answers.items()}
                    journal.append(conversation.id, _records(config, decoders, conversation, turns))
                    progress.advance()
            progress.close()
        return validate(pd.DataFrame(journal.records()), str(journal_path))


def _path(path: str | None) -> Path | None:
    return None if path is None else Path(path).expanduser()


def waves(left: Sequence[T], concurrency: int) -> list[Sequence[T]]:
    """What is measured with every arm before the next is begun: one by one, or where requests share the machine, in waves.

    A wave is up to `WAVE` times as many as are in flight, all waves nearly alike.
    """
    size = 1 if concurrency == 1 else WAVE * concurrency
    count = -(-len(left) // size)
    bounds = [len(left) * wave // count for wave in range(count + 1)]
    return [left[start:end] for start, end in pairwise(bounds)]


def _warm_up(decoders: Sequence[Decoder], tokenizer: Any, config: RunConfig) -> None:
    """Every arm decodes a fixed prompt, so that no measured prompt pays for a first pass of any shape."""
    text, ids = render(tokenizer, exchange(WARM_UP_TEXT, "")[:1])
    limits = Limits(min(WARM_UP_TOKENS, config.max_new_tokens))
    for decoder in decoders:
        client = partial(_ask, ids, text, decoder, config, limits)
        decoder.serve([client] * config.concurrency, config.concurrency, len(ids) + limits.max_new_tokens)


def _ask(ids: list[int], name: str, decoder: Decoder, config: RunConfig, limits: Limits) -> Client:
    return (yield Request(ids, run_sampler(config, name, decoder.target.device), limits))


def _answers(
    decoders: Sequence[Decoder], wave: Sequence[Conversation], tokenizer: Any, config: RunConfig, rotation: int, longest: int
) -> dict[str, list[list[Turn]]]:
    """Every arm's turns on each conversation, the order of arms rotated, so that drift is common to all."""
    start = rotation % len(decoders)
    return {
        decoder.arm.label: decoder.serve(
            [partial(_converse, decoder, conversation, tokenizer, config) for conversation in wave], config.concurrency, longest
        )
        for decoder in [*decoders[start:], *decoders[:start]]
    }


def _converse(decoder: Decoder, conversation: Conversation, tokenizer: Any, config: RunConfig) -> Client:
    """One arm through a conversation; a later turn continues the arm's own earlier answers. Returns the turns."""
    messages, turns = [], []
    limits = decoding_limits(decoder.target, config.max_new_tokens)
    for question in conversation.turns:
        text, ids = render(tokenizer, [*messages, *exchange(question, "")[:1]])
        sha = prompt_sha(text)
        generation = yield Request(ids, run_sampler(config, sha, decoder.target.device), limits)
        turns.append(Turn(ids, sha, generation))
        messages += exchange(question, tokenizer.decode(generation.tokens, skip_special_tokens=True))
    return turns


def first_divergence(tokens: Sequence[int], reference: Sequence[int]) -> int:
    """The first place where two outputs differ, a missing token being a difference; -1 if there is none."""
    for place, (token, other) in enumerate(zip(tokens, reference, strict=False)):
        if token != other:
            return place
    return -1 if len(tokens) == len(reference) else min(len(tokens), len(reference))


@torch.inference_mode()
def divergence_margin(target: Target, turn: Turn, place: int, sampler: Sampler) -> float:
    """How far apart the target's two best choices are for token `place` of its own output `turn`."""
    tokens = torch.tensor([turn.prompt + turn.generation.tokens[:place]], device=target.device)
    positions = torch.arange(tokens.shape[1], device=target.device).unsqueeze(0)
    logits = target.logits(target.forward(tokens, positions).hidden[0, -1:])
    best, second = sampler.scores(logits, Places.at(tokens.shape[1], target.device))[0].float().topk(2).values.tolist()
    return best - second


def _records(
    config: RunConfig, decoders: Sequence[Decoder], conversation: Conversation, answers: dict[str, list[Turn]]
) -> list[dict[str, Any]]:
    """The records of one conversation, all arms and turns, with their divergence from AR where the run has it."""
    # Plain sampling draws other tokens for every arm, which says nothing about losslessness.
    comparable = config.engine.sampling == "keyed" or config.temperature == 0
    reference = answers.get("ar") if comparable else None
    return [
        _record(config, decoder.arm, conversation, index, turn)
        | (_compared(config, decoder.target, turn, reference[index]) if reference else {"divergence": None, "margin": None})
        for decoder in decoders
        for index, turn in enumerate(answers[decoder.arm.label])
    ]


def _compared(config: RunConfig, target: Target, turn: Turn, reference: Turn) -> dict[str, int | float | None]:
    """Where a turn differs from AR's, and the target's margin there; none if AR had read another prompt by then."""
    place = first_divergence(turn.generation.tokens, reference.generation.tokens)
    margin = None
    if place >= 0 and turn.prompt == reference.prompt:
        sampler = run_sampler(config, turn.prompt_sha, target.device)
        margin = divergence_margin(target, reference, place, sampler)
    return {"divergence": place, "margin": margin}


def _by_bin(rounds: Sequence[Round]) -> dict[str, list[int] | list[float]]:
    """The nodes of all rounds in equal bins of path probability: how many, their summed probability, how many were accepted."""
    probabilities = np.array([p for round_ in rounds for p in round_.probabilities])
    accepted = np.array([node in set(round_.accepted) for round_ in rounds for node in range(round_.nodes)], dtype=float)
    bins = np.minimum((probabilities * PROBABILITY_BINS).astype(int), PROBABILITY_BINS - 1)
    forecast, taken = (np.bincount(bins, weights, PROBABILITY_BINS).astype(float) for weights in (probabilities, accepted))
    counts = {"nodes_by_bin": np.bincount(bins, minlength=PROBABILITY_BINS), "accepted_by_bin": taken.astype(int)}
    return {name: count.tolist() for name, count in counts.items()} | {"forecast_by_bin": forecast.tolist()}


def _record(config: RunConfig, arm: Arm, conversation: Conversation, index: int, turn: Turn) -> dict[str, Any]:
    generation, kind = turn.generation, METHODS[arm.method].drafter
    rounds, output = generation.rounds, len(generation.tokens) - 1
    committed = Counter(round_.committed for round_ in rounds)

    def mean(total: float) -> float | None:
        return total / len(rounds) if rounds else None

    return {
        "study": config.study_name,
        "run": config.digest,
        "model": config.model.name,
        "drafter": "" if kind is None else str(config.model.drafters[kind]),
        "arm": arm.label,
        "method": arm.method,
        "budget": arm.settings.budget,
        "dataset": config.dataset.name,
        "family": conversation.family,
        "temperature": config.temperature,
        "conversation": conversation.id,
        "turn": index,
        "prompt_sha": turn.prompt_sha,
        "concurrency": config.concurrency,
        "seed": config.seed,
        "num_input": len(turn.prompt),
        "num_output": output,
        "stop_reason": "eos" if generation.stopped_by_eos else "length",
        "prefill_s": generation.prefill_s,
        "decode_s": generation.decode_s,
        "share_s": generation.share_s,
        "tps": output / generation.decode_s if output else None,
        "rounds": len(rounds),
        "tau": mean(output),
        "accept_hist": [committed[tokens] for tokens in range(max(committed, default=0) + 1)],
        **{f"{stage}_ms": mean(1000 * seconds) for stage, seconds in asdict(generation.stages).items()},
        "tree_nodes": mean(sum(round_.nodes for round_ in rounds)),
        "forecast": None if kind is None else mean(sum(round_.forecast for round_ in rounds)),
        **(NO_BINS if kind is None else _by_bin(rounds)),
        "output_sha": hashlib.sha256(repr(generation.tokens).encode()).hexdigest(),
        "output_ids": generation.tokens,
    }
