"""Measure what drafting and verifying cost on this machine, for the cost-aware budget (Section 2.5).

Two errors of the original are avoided: a tree of n nodes is
timed as the n + 1 tokens that verification runs, and a draft is timed with its context already in its cache, as in
every round but the first.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial

import torch
from torch import Tensor

from dominotree.decoding.cache import TargetCache
from dominotree.decoding.draft import Draft, Drafting
from dominotree.decoding.engine import Speculation, ask_once, serve
from dominotree.decoding.requests import Generation, Limits, Request
from dominotree.decoding.sampling import Sampler
from dominotree.decoding.verify import VerifyInput, next_input, verify_input
from dominotree.drafting.budget import CostModel, fit_convex
from dominotree.drafting.tree import DraftTree
from dominotree.models.drafter import DFlashDrafter
from dominotree.models.target import Target
from dominotree.progress import track

DRAFT_CONTEXT = 512
ACCEPTED = 2  # tokens whose features a typical round hands to the drafter


@dataclass(frozen=True)
class ProfilePlan:
    """What is timed: tree sizes in nodes, contexts in tokens, and how often (medians of `repeats` after `warmups`)."""

    sizes: tuple[int, ...]
    contexts: tuple[int, ...]
    repeats: int
    warmups: int


def _median_ms(action: Callable[[], object], plan: ProfilePlan, device: torch.device) -> float:
    times = []
    for _ in range(plan.warmups + plan.repeats):
        start = time.perf_counter()
        action()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times[plan.warmups :])


def star(nodes: int, device: torch.device, requests: int = 1) -> DraftTree:
    """Trees of n children of the root: what a verification costs depends on its size alone."""
    zeros = torch.zeros(requests, nodes, dtype=torch.int64, device=device)
    return DraftTree(tokens=zeros, parents=zeros - 1, depths=zeros, log_probs=zeros.float(), valid=zeros == 0)


def _cache_with(target: Target, context: int, capacity: int, requests: int) -> TargetCache:
    cache = TargetCache(target, capacity, requests)
    cache.data.zero_()
    for request in range(requests):
        cache.start(request, context)
    return cache


def _time_pass(target: Target, cache: TargetCache, inputs: VerifyInput, plan: ProfilePlan) -> float:
    def verify() -> None:
        passed = target.forward(inputs.tokens, inputs.positions, inputs.layout, cache)
        target.logits(passed.hidden.flatten(0, 1)).argmax(-1)

    return _median_ms(verify, plan, target.device)


def _roots(target: Target, requests: int) -> Tensor:
    return torch.zeros(requests, dtype=torch.int64, device=target.device)


def _time_verify(target: Target, nodes: int, cache: TargetCache, plan: ProfilePlan) -> float:
    requests = len(cache.ends)
    tree, roots = star(nodes, target.device, requests), _roots(target, requests)
    inputs = verify_input(tree, roots, cache.lengths, cache.length, 1, target.dtype)
    return _time_pass(target, cache, inputs, plan)


def _time_next(target: Target, cache: TargetCache, plan: ProfilePlan) -> float:
    roots = _roots(target, len(cache.ends))
    return _time_pass(target, cache, next_input(roots, cache.lengths, cache.length, target.dtype), plan)


def _typical_draft(target: Target, drafter: DFlashDrafter, requests: int) -> Callable[[], Draft]:
    """Drafts a block a request, again and again as in a round of its own."""
    drafting, roots = Drafting(drafter, target, DRAFT_CONTEXT + ACCEPTED, requests), _roots(target, requests)
    width = len(drafter.config.target_layer_ids) * drafter.config.hidden_size
    for request in range(requests):
        drafting.start(request, torch.zeros(1, DRAFT_CONTEXT, width, dtype=target.dtype, device=target.device))
    drafting.draft(roots)
    fresh = torch.zeros(requests, ACCEPTED, width, dtype=target.dtype, device=target.device)

    def draft() -> Draft:
        drafting.ends = [DRAFT_CONTEXT] * requests
        drafting.lengths.fill_(DRAFT_CONTEXT)
        drafting.extend(fresh, [ACCEPTED] * requests)
        return drafting.draft(roots)

    return draft


@torch.inference_mode()
def profile_costs(target: Target, drafter: DFlashDrafter, plan: ProfilePlan, requests: int = 1) -> CostModel:
    """Time one draft, and verification at every size and context, for so many requests in flight.

    Each context is fitted by a monotone convex curve.
    """
    rows, plain = [], []
    for context in track("profile verification", plan.contexts, len(plan.contexts)):
        cache = _cache_with(target, context, context + max(plan.sizes) + 1, requests)
        times = torch.tensor([_time_verify(target, nodes, cache, plan) for nodes in plan.sizes])
        rows.append(tuple(float(x) for x in fit_convex(plan.sizes, times.numpy())))
        plain.append(_time_next(target, cache, plan))
    draft_ms = _median_ms(_typical_draft(target, drafter, requests), plan, target.device)
    return CostModel(draft_ms, plan.sizes, plan.contexts, tuple(rows), tuple(plain), requests)


def profile_rests(
    target: Target, speculation: Speculation, costs: CostModel, plan: ProfilePlan, sampler: Callable[[], Sampler]
) -> CostModel:
    """`costs` with what else there is to the engine's rounds, with trees of `speculation` and without a draft.

    Whole rounds are timed in the engine; what `costs` says of their draft and verification is taken off.
    """
    context, nodes = plan.contexts[0], speculation.max_nodes
    most = speculation.drafter.config.num_proposals + 1  # tokens of a round
    never = replace(speculation, worth=lambda contexts, histories: False)
    drafted = _round_ms(target, speculation, plan, costs.requests, sampler, most)
    plain = _round_ms(target, never, plan, costs.requests, sampler, 1)
    known = float(costs.round_cost(nodes, context)[nodes])
    return replace(costs, rest_ms=max(0.0, drafted - known), next_rest_ms=max(0.0, plain - costs.next_cost(context)))


def _round_ms(
    target: Target, speculation: Speculation, plan: ProfilePlan, requests: int, sampler: Callable[[], Sampler], most: int
) -> float:
    """The mean of at least `repeats` rounds in the engine, of which each brings `most` tokens at the most."""

    def ask(rounds: int) -> Generation:
        prompt, limits = [0] * max(1, plan.contexts[0]), Limits(1 + rounds * most)
        clients = [partial(ask_once, Request(prompt, sampler(), limits)) for _ in range(requests)]
        return serve(target, speculation, clients, requests, len(prompt) + limits.max_new_tokens)[0]

    ask(max(1, plan.warmups))
    generation = ask(plan.repeats)
    return 1000 * sum(asdict(generation.stages).values()) / len(generation.rounds)
