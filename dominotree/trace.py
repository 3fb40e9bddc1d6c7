"""One round, watched: the draft tree that an arm made of a prompt, and what the target accepted of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from dominotree.config import RunConfig
from dominotree.decoding.draft import Draft
from dominotree.decoding.engine import Histories
from dominotree.decoding.requests import Generation, Request
from dominotree.drafting.tree import DraftTree
from dominotree.errors import UserError
from dominotree.loading import check_lengths, check_models, decoding_limits, load_decoders, resolve_device, run_sampler
from dominotree.methods import METHODS
from dominotree.models.target import load_tokenizer
from dominotree.prompts import Conversation
from dominotree.prompts.rendering import prompt_sha, render


@dataclass(frozen=True)
class DraftedRound:
    """Round `number`, from 1, of `rounds`. Of N nodes: tokens, parents (-1: child of the root), path probabilities, all [N].

    so_far is the answer before the round, the root token its end; accepted are nodes from the root on. bonus is the target's own
    token after them, None where the answer ended before it.
    """

    prompt: str
    arm: str
    temperature: float
    number: int
    rounds: int
    so_far: str
    root: str
    tokens: tuple[str, ...]
    parents: tuple[int, ...]
    probabilities: tuple[float, ...]
    accepted: tuple[int, ...]
    bonus: str | None


def trace_round(config: RunConfig, prompt: str, number: int) -> DraftedRound:
    """Answer `prompt` with the one arm of `config`, whose dataset is not used, and return round `number`.

    Raises `UserError` before any compute if arm, models or lengths do not fit, and after it if there are fewer rounds.
    """
    arm = _only_arm(config)
    device = resolve_device(config.engine.device)
    torch.set_num_threads(config.engine.num_threads)
    max_context = check_models(config)
    tokenizer = load_tokenizer(config.model.target, config.model.revision)
    (longest,) = check_lengths([Conversation("prompt", "chat", (prompt,))], tokenizer, config.max_new_tokens, max_context)
    text, ids = render(tokenizer, [{"role": "user", "content": prompt}])

    (decoder,) = load_decoders(config, device, longest)
    trees: list[DraftTree] = []

    def watched(draft: Draft, histories: Histories) -> DraftTree:
        trees.append(decoder.speculation.build(draft, histories))
        return trees[-1]

    limits = decoding_limits(decoder.target, config.max_new_tokens)
    request = Request(ids, run_sampler(config, prompt_sha(text), device), limits)
    generation = replace(decoder, speculation=replace(decoder.speculation, build=watched)).generate(request)
    if number > len(trees):
        raise UserError(f"round {number}: the answer took {len(trees)} rounds; ask for one of them, or raise max_new_tokens")
    return _drafted_round(prompt, arm, config.temperature, generation, trees[number - 1], number, tokenizer)


def _only_arm(config: RunConfig) -> str:
    labels = [arm.label for arm in config.arms]
    if len(labels) > 1:
        raise UserError(f"arms: one tree is drawn, of one arm, not of {', '.join(labels)}")
    if METHODS[config.arms[0].method].drafter is None:
        raise UserError(f"arms: {labels[0]} drafts nothing; name an arm that does, as in dominotree@16")
    return labels[0]


def _drafted_round(
    prompt: str, arm: str, temperature: float, generation: Generation, tree: DraftTree, number: int, tokenizer: Any
) -> DraftedRound:
    round_ = generation.rounds[number - 1]
    start = 1 + sum(before.committed for before in generation.rounds[: number - 1])  # prefill gave the first token
    end = start + round_.committed
    whole = round_.committed == len(round_.accepted) + 1

    def text(tokens: Sequence[int]) -> str:
        return tokenizer.decode(tokens)

    return DraftedRound(
        prompt=prompt,
        arm=arm,
        temperature=temperature,
        number=number,
        rounds=len(generation.rounds),
        so_far=text(generation.tokens[:start]),
        root=text(generation.tokens[start - 1 : start]),
        tokens=tuple(text([token]) for token in tree.tokens[0].tolist()[: round_.nodes]),
        parents=tuple(tree.parents[0].tolist()[: round_.nodes]),
        probabilities=round_.probabilities,
        accepted=round_.accepted,
        bonus=text(generation.tokens[end - 1 : end]) if whole else None,
    )
