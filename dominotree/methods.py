"""The registry of methods: which drafter each uses and how it builds its trees. A new method is one entry and one conf file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

import numpy as np
import torch
from torch import Tensor

from dominotree.arms import MethodSettings
from dominotree.decoding.draft import Draft
from dominotree.decoding.engine import Build, Histories, Speculation, Worth, always
from dominotree.decoding.requests import Round
from dominotree.drafting import frontier, heap
from dominotree.drafting.budget import Calibration, CostModel, allocate, best_size, realised, shared_rates
from dominotree.drafting.scorers import ConditionalScorer, GruInputs, SampledScorer, Scorer, marginal_scorer, static_scorer
from dominotree.drafting.tree import DraftTree
from dominotree.errors import UserError
from dominotree.graphs import Graphed
from dominotree.method_names import METHOD_NAMES
from dominotree.models.drafter import DFlashDrafter, DominoDrafter, DrafterKind

MEMORY = 32
"""Earlier rounds that a measured forecast looks back on."""

TRIES = 0.01
"""Share of the time that may go into drafts against expectation, since the text may have become easier."""

TRUST = 4.0
"""Tokens of the held-out prompts that weigh against what came of drafts: a few unlucky rounds do not end drafting."""

TreeBuild = Callable[[Tensor, Tensor, Tensor], DraftTree]
"""(z [R, D, H], base_logits [R, D, V], root [R]) -> trees."""


@dataclass(frozen=True)
class Parts:
    """What a method's builder is made from.

    gru_inputs: a Domino drafter's; temperature: the run's, for a sampled draft; cost: the machine's, for a budget that follows
    it, and calibration: of its forecast; cuda_graphs: whether a build becomes one graph, on a GPU.
    """

    drafter: DFlashDrafter
    settings: MethodSettings
    gru_inputs: GruInputs | None = None
    temperature: float = 0.0
    cost: CostModel | None = None
    calibration: Calibration | None = None
    cuda_graphs: bool = False


@dataclass(frozen=True)
class Method:
    """drafter: the kind it needs, None for plain decoding. make_build: its builder; make_worth: when it drafts, None: always."""

    drafter: DrafterKind | None = None
    make_build: Callable[[Parts], Build] | None = None
    make_worth: Callable[[Parts], Worth] | None = None


def _depths(parts: Parts) -> int:
    return parts.drafter.config.num_proposals


def _of_draft(parts: Parts, build: TreeBuild) -> Build:
    """`build` on a draft, whatever the rounds before. The heap reads from the device, so it can't be a graph."""
    if parts.cuda_graphs and parts.settings.builder != "heap":
        build = Graphed(build, "the tree's build")
    return lambda draft, histories: build(draft.z, draft.base_logits, draft.root)


def _conditional(parts: Parts, children: int, width: int | None) -> Callable[[Tensor, Tensor, Tensor], ConditionalScorer]:
    drafter, inputs, normaliser = parts.drafter, parts.gru_inputs, parts.settings.normaliser
    assert isinstance(drafter, DominoDrafter) and inputs is not None
    return lambda *draft: ConditionalScorer(drafter, inputs, *draft, children, width, normaliser)


def _tree(scorer: Scorer, settings: MethodSettings) -> DraftTree:
    """A tree of the settings' budget by the settings' builder."""
    if settings.builder == "heap":
        return heap.build_tree(scorer, settings.budget, settings.depth_penalty)
    return frontier.build_trees(scorer, settings.budget, settings.width, settings.depth_penalty)


def _corrected(parts: Parts, children: int, width: int | None, grow: Callable[[Scorer], DraftTree]) -> Build:
    """What `grow` makes of the correction along each path: of its best children, or of children drawn from it."""
    scorer = _conditional(parts, children, width)
    if parts.settings.draft == "greedy" or parts.temperature == 0:
        return _of_draft(parts, lambda *draft: grow(scorer(*draft)))

    def build(draft: Draft, histories: Histories) -> DraftTree:
        # Of positions and roots alone, so that a run repeats. The tokens that come out do not depend on it.
        random = torch.Generator(draft.z.device).manual_seed(_seed(draft))
        conditional = scorer(draft.z, draft.base_logits, draft.root)
        return grow(SampledScorer(conditional, parts.temperature, random))

    return build


def _seed(draft: Draft) -> int:
    seed = 0
    for position, root in zip(draft.positions, draft.root.tolist(), strict=True):
        seed = (seed * 1_000_003 ^ (position << 32 | root)) % 2**63
    return seed


def _while_it_pays(parts: Parts, largest: Build, forecast: Callable[[np.ndarray, Sequence[Round]], np.ndarray]) -> Build:
    """As many nodes of each `largest` tree as the cost-aware rule takes at the probabilities that `forecast` gives them."""
    cap, cost = parts.settings.cap, parts.cost
    assert cost is not None

    def build(draft: Draft, histories: Histories) -> DraftTree:
        tree = largest(draft, histories)
        drafted = zip(tree.log_probs.exp().cpu().numpy(), histories, draft.positions, strict=True)
        return tree.first([best_size(forecast(p, rounds), cost.round_cost(cap, position)) for p, rounds, position in drafted])

    return build


def marginal_chain(parts: Parts) -> Build:
    """DFlash: the base argmax of each depth."""
    return _of_draft(parts, lambda z, base_logits, root: frontier.build_trees(marginal_scorer(base_logits, 1), _depths(parts)))


def corrected_chain(parts: Parts) -> Build:
    """Domino: the greedy path, or a drawn one, under the correction over the full vocabulary."""
    return _corrected(parts, children=1, width=None, grow=lambda scorer: frontier.build_trees(scorer, _depths(parts)))


def marginal_tree(parts: Parts) -> Build:
    """Best-first on marginals with at most k children a node; k is the budget for DDTree, which has no such limit."""
    children = parts.settings.children or parts.settings.budget
    return _of_draft(parts, lambda z, base_logits, root: _tree(marginal_scorer(base_logits, children), parts.settings))


def cost_aware_tree(parts: Parts) -> Build:
    """CaDDTree: DDTree's order, as long as the forecast throughput rises (Section 2.5)."""
    cap = parts.settings.cap
    largest = _of_draft(parts, lambda z, base_logits, root: frontier.build_trees(marginal_scorer(base_logits, cap), cap))
    return _while_it_pays(parts, largest, lambda probabilities, rounds: probabilities)


def static_tree(parts: Parts) -> Build:
    """Best-first on the correction taken once a depth along the greedy path (Appendix D)."""
    scorer = _conditional(parts, parts.settings.children, parts.settings.candidate_width)
    return _of_draft(parts, lambda *draft: _tree(static_scorer(scorer(*draft)), parts.settings))


def conditional_tree(parts: Parts) -> Build:
    """DominoTree: best-first on the correction along each node's own path (Section 3)."""
    settings = parts.settings
    return _corrected(parts, settings.children, settings.candidate_width, lambda scorer: _tree(scorer, settings))


def adaptive_tree(parts: Parts) -> Build:
    """DominoTree's order, as long as the forecast throughput rises (Appendix A.3), the forecast as it is or mended."""
    largest = conditional_tree(replace(parts, settings=replace(parts.settings, budget=parts.settings.cap)))
    return _while_it_pays(parts, largest, _forecast(parts))


def _forecast(parts: Parts) -> Callable[[np.ndarray, Sequence[Round]], np.ndarray]:
    """How path probabilities [N] become forecasts, given the rounds before."""
    source, calibration = parts.settings.forecast, parts.calibration
    if source == "calibrated":
        assert calibration is not None
        return lambda probabilities, rounds: calibration(probabilities)
    if source == "measured":
        return lambda probabilities, rounds: np.minimum(1.0, _realised(rounds) * probabilities)
    return lambda probabilities, rounds: probabilities


def _realised(rounds: Sequence[Round]) -> float:
    recent = rounds[-MEMORY:]
    return realised(sum(round_.forecast - 1 for round_ in recent), sum(len(round_.accepted) for round_ in recent))


def load_aware_trees(parts: Parts) -> Build:
    """DominoTree's order; a round's nodes are shared among the requests in flight so that their tokens a second rise the most."""
    cap, cost, forecast = parts.settings.cap, parts.cost, _forecast(parts)
    largest = conditional_tree(replace(parts, settings=replace(parts.settings, budget=cap)))
    assert cost is not None

    def build(draft: Draft, histories: Histories) -> DraftTree:
        trees = largest(draft, histories)
        drafted = zip(trees.log_probs.exp().cpu().numpy(), histories, strict=True)
        probabilities = [forecast(one, rounds) for one, rounds in drafted]
        return trees.first(allocate(probabilities, cost.shared_cost(cap * len(histories), np.mean(draft.positions))))

    return build


def drafting_pays(parts: Parts) -> Worth:
    """Whether drafts promise more tokens a second than the target alone, by the held-out prompts and the last drafts."""
    cap, cost, by_rank = parts.settings.cap, parts.cost, np.array(parts.calibration.by_rank)
    assert cost is not None
    forecasts = [0.0, *np.cumsum(by_rank).tolist()]  # of trees of 0, 1, ... nodes

    def worth(contexts: Sequence[int], histories: Histories) -> bool:
        context, requests = float(np.mean(contexts)), len(histories)
        expected = [np.minimum(1.0, _came_true(histories, forecasts) * by_rank)] * requests
        drafted, plain = cost.shared_cost(cap * requests, context), cost.next_cost(context)
        rates, _ = shared_rates(expected, drafted)
        if rates.max() > requests / plain:
            return True
        waited = _since_a_draft(histories[0])  # as of all: a round drafts for every slot or for none
        return bool(TRIES * waited * plain >= drafted[int(rates.argmax())] - plain)

    return worth


def _since_a_draft(rounds: Sequence[Round]) -> int:
    return next((since for since, round_ in enumerate(reversed(rounds)) if round_.drafted), len(rounds))


def _came_true(histories: Histories, forecasts: Sequence[float]) -> float:
    """How the last drafts in all slots have done, against the held-out prompts' trees of the same sizes."""
    expected = accepted = 0.0
    for together in zip_longest(*(reversed(rounds[-MEMORY:]) for rounds in histories)):
        drafted = [round_ for round_ in together if round_ is not None and round_.drafted]
        # A draft of which nobody got a node has failed, too: as if the first of each had been rejected.
        least = 0 if any(round_.nodes for round_ in drafted) else 1
        expected += sum(forecasts[min(max(least, round_.nodes), len(forecasts) - 1)] for round_ in drafted)
        accepted += sum(len(round_.accepted) for round_ in drafted)
    return realised(expected, accepted, TRUST)


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
    "adaptive": Method("domino", adaptive_tree),
    "loadaware": Method("domino", load_aware_trees, drafting_pays),
}
assert tuple(METHODS) == METHOD_NAMES


def speculation(name: str, parts: Parts) -> Speculation:
    """How a method's rounds are drafted."""
    method = METHODS[name]
    worth = method.make_worth(parts) if method.make_worth else always
    return Speculation(parts.drafter, method.make_build(parts), max_nodes(parts), worth)


def max_nodes(parts: Parts) -> int:
    """The most nodes that a tree of these parts can have; memory is reserved for as many."""
    return parts.settings.cap or parts.settings.budget or _depths(parts)


def check_width(name: str, settings: MethodSettings, vocab_size: int) -> None:
    """Raise `UserError` if a candidate width exceeds the vocabulary."""
    width = settings.candidate_width
    if width and width > vocab_size:
        raise UserError(f"method.{name}.candidate_width={width} exceeds the target's vocabulary of {vocab_size}")
