"""The registry of methods: which drafter each uses and how it builds its trees. A new method is one entry and one conf file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from dominotree.arms import MethodSettings
from dominotree.decoding.draft import Draft
from dominotree.decoding.engine import Build
from dominotree.drafting.budget import CostAwareBudget, CostModel, FixedBudget
from dominotree.drafting.heap import build_tree
from dominotree.drafting.scorers import ConditionalScorer, marginal_scorer, static_scorer
from dominotree.drafting.tree import DraftTree
from dominotree.errors import UserError
from dominotree.method_names import METHOD_NAMES
from dominotree.models.drafter import DFlashDrafter, DominoDrafter, DrafterKind


@dataclass(frozen=True)
class Parts:
    """What a method's builder is made from: its drafter, the target's embedding, its settings, the machine's costs."""

    drafter: DFlashDrafter
    embedding: Tensor
    settings: MethodSettings
    cost: CostModel | None = None


@dataclass(frozen=True)
class Method:
    """drafter: the kind it needs, None for plain decoding. make_build: its tree builder from `Parts`."""

    drafter: DrafterKind | None = None
    make_build: Callable[[Parts], Build] | None = None


def _depths(parts: Parts) -> int:
    return parts.drafter.config.num_proposals


def _conditional(parts: Parts, draft: Draft, children: int, width: int | None) -> ConditionalScorer:
    assert isinstance(parts.drafter, DominoDrafter)
    return ConditionalScorer(parts.drafter, parts.embedding, draft.z, draft.base_logits, draft.root, children, width)


def marginal_chain(parts: Parts) -> Build:
    """DFlash: the base argmax of each depth."""
    budget = FixedBudget(_depths(parts))
    return lambda draft: build_tree(marginal_scorer(draft.base_logits, children=1), budget)


def corrected_chain(parts: Parts) -> Build:
    """Domino: the greedy path under the correction over the full vocabulary."""
    budget = FixedBudget(_depths(parts))
    return lambda draft: build_tree(_conditional(parts, draft, children=1, width=None), budget)


def marginal_tree(parts: Parts) -> Build:
    """Best-first on marginals with at most k children a node; k is the budget for DDTree, which has no such limit."""
    settings = parts.settings
    children = settings.children or settings.budget
    budget = FixedBudget(settings.budget)
    return lambda draft: build_tree(marginal_scorer(draft.base_logits, children), budget)


def cost_aware_tree(parts: Parts) -> Build:
    """CaDDTree: DDTree's order, as long as the forecast throughput rises (Section 2.5)."""
    cap, cost = parts.settings.cap, parts.cost
    assert cost is not None
    return lambda draft: build_tree(marginal_scorer(draft.base_logits, cap), CostAwareBudget(cost, draft.position, cap))


def static_tree(parts: Parts) -> Build:
    """Best-first on the correction taken once a depth along the greedy path (Appendix D)."""
    settings = parts.settings
    budget = FixedBudget(settings.budget)

    def build(draft: Draft) -> DraftTree:
        conditional = _conditional(parts, draft, settings.children, settings.candidate_width)
        return build_tree(static_scorer(conditional), budget)

    return build


def conditional_tree(parts: Parts) -> Build:
    """DominoTree: best-first on the correction along each node's own path (Section 3)."""
    settings = parts.settings
    budget = FixedBudget(settings.budget)
    return lambda draft: build_tree(_conditional(parts, draft, settings.children, settings.candidate_width), budget)


METHODS: dict[str, Method] = {
    "ar": Method(),
    "dflash": Method("dflash", marginal_chain),
    "ddtree": Method("dflash", marginal_tree),
    "caddtree": Method("dflash", cost_aware_tree),
    "domino": Method("domino", corrected_chain),
    "dominotree": Method("domino", conditional_tree),
    "marginal": Method("domino", marginal_tree),
    "static": Method("domino", static_tree),
    "dartree": Method("domino", conditional_tree),
}
assert tuple(METHODS) == METHOD_NAMES


def max_nodes(parts: Parts) -> int:
    """The most nodes that a tree of these parts can have; memory is reserved for as many."""
    return parts.settings.cap or parts.settings.budget or _depths(parts)


def check_width(name: str, settings: MethodSettings, vocab_size: int) -> None:
    """Raise `UserError` if a candidate width exceeds the vocabulary."""
    width = settings.candidate_width
    if width and width > vocab_size:
        raise UserError(f"method.{name}.candidate_width={width} exceeds the target's vocabulary of {vocab_size}")
