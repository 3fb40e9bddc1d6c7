"""Measure what drafting and verifying cost on this machine, for the cost-aware budget (Section 2.5).

Two errors of the original are avoided: a tree of n nodes is
timed as the n + 1 tokens that verification runs, and a draft is timed with its context already in its cache, as in
every round but the first.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from dominotree.decoding.cache import TargetCache
from dominotree.decoding.draft import Drafting
from dominotree.decoding.verify import verify_input
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


def star(nodes: int, device: torch.device) -> DraftTree:
    """A tree of n children of the root: what a verification costs depends on its size alone."""
    zeros = torch.zeros(1, nodes, dtype=torch.int64, device=device)
    return DraftTree(tokens=zeros, parents=zeros - 1, depths=zeros, log_probs=zeros.float(), valid=zeros == 0)


def _cache_with(target: Target, context: int, capacity: int) -> TargetCache:
    cache = TargetCache(target, capacity)
    if context:
        tokens = torch.zeros(1, context, dtype=torch.int64, device=target.device)
        target.forward(tokens, torch.arange(context, device=target.device).unsqueeze(0), cache=cache)
        cache.commit(context)
    return cache


def _root(target: Target) -> Tensor:
    return torch.zeros(1, dtype=torch.int64, device=target.device)


def _time_verify(target: Target, nodes: int, cache: TargetCache, plan: ProfilePlan) -> float:
    tree, root = star(nodes, target.device), _root(target)

    def verify() -> None:
        inputs = verify_input(tree, root, cache.length, 1, target.dtype)
        target.logits(target.forward(inputs.tokens, inputs.positions, inputs.mask, cache).hidden[0]).argmax(-1)

    return _median_ms(verify, plan, target.device)


def _time_draft(target: Target, drafter: DFlashDrafter, plan: ProfilePlan) -> float:
    drafting, root = Drafting(drafter, target, DRAFT_CONTEXT + ACCEPTED), _root(target)
    width = len(drafter.config.target_layer_ids) * drafter.config.hidden_size
    drafting.extend(torch.zeros(1, DRAFT_CONTEXT, width, dtype=target.dtype, device=target.device))
    fresh = torch.zeros(1, ACCEPTED, width, dtype=target.dtype, device=target.device)

    def draft() -> None:
        drafting.length = DRAFT_CONTEXT
        drafting.extend(fresh)
        drafting.draft(root)

    return _median_ms(draft, plan, target.device)


@torch.inference_mode()
def profile_costs(target: Target, drafter: DFlashDrafter, plan: ProfilePlan) -> CostModel:
    """Time one draft, and verification at every size and context; fit each context by a monotone convex curve."""
    rows = []
    for context in track("profile verification", plan.contexts, len(plan.contexts)):
        cache = _cache_with(target, context, context + max(plan.sizes) + 1)
        times = torch.tensor([_time_verify(target, nodes, cache, plan) for nodes in plan.sizes])
        rows.append(tuple(float(x) for x in fit_convex(plan.sizes, times.numpy())))
    return CostModel(_time_draft(target, drafter, plan), plan.sizes, plan.contexts, tuple(rows))
