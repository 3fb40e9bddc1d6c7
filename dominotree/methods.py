"""The registry of methods: which drafter each uses and how it builds its trees. A new method is one entry and one conf file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from dominotree.arms import MethodSettings
from dominotree.decoding.draft import Draft
from dominotree.decoding.engine import Build
from dominotree.drafting import frontier, heap
from dominotree.drafting.budget import CostModel, best_size
from dominotree.drafting.scorers import ConditionalScorer, GruInputs, Scorer, marginal_scorer, static_scorer
from dominotree.drafting.tree import DraftTree
from dominotree.errors import UserError
from dominotree.graphs import Graphed
from dominotree.method_names import METHOD_NAMES
from dominotree.models.drafter import DFlashDrafter, DominoDrafter, DrafterKind

TreeBuild = Callable[[Tensor, Tensor, Tensor], DraftTree]
"""(z [R, D, H], base_logits [R, D, V], root [R]) -> trees."""


@dataclass(frozen=True)
class Parts:
    """What a method's builder is made from.

    gru_inputs: a Domino drafter's; cost: the machine's, for a budget that follows it; cuda_graphs: whether a build becomes
    one graph, on a GPU.
    """

    drafter: DFlashDrafter
    settings: MethodSettings
    gru_inputs: GruInputs | None = None
    cost: CostModel | None = None
    cuda_graphs: bool = False


@dataclass(frozen=True)
class Method:
    """drafter: the kind it needs, None for plain decoding. make_build: its tree builder from `Parts`."""

    drafter: DrafterKind | None = None
    make_build: Callable[[Parts], Build] | None = None


def _depths(parts: Parts) -> int:
    return parts.drafter.config.num_proposals


def _of_draft(parts: Parts, build: TreeBuild) -> Build:
    """`build` on a draft. The heap reads from the device, so it can't be a graph."""
    if parts.cuda_graphs and parts.settings.builder != "heap":
        build = Graphed(build, "the tree's build")
    return lambda draft: build(draft.z, draft.base_logits, draft.root)


def _conditional(parts: Parts, children: int, width: int | None) -> Callable[[Tensor, Tensor, Tensor], ConditionalScorer]:
    drafter, inputs, normaliser = parts.drafter, parts.gru_inputs, parts.settings.normaliser
    assert isinstance(drafter, DominoDrafter) and inputs is not None
    return lambda *draft: ConditionalScorer(drafter, inputs, *draft, children, width, normaliser)


def _tree(scorer: Scorer, settings: MethodSettings) -> DraftTree:
    """A tree of the settings' budget by the settings' builder."""
    if settings.builder == "heap":
        return heap.build_tree(scorer, settings.budget, settings.depth_penalty)
    return frontier.build_trees(scorer, settings.budget, settings.width, settings.depth_penalty)


def marginal_chain(parts: Parts) -> Build:
    """DFlash: the base argmax of each depth."""
    return _of_draft(parts, lambda z, base_logits, root: frontier.build_trees(marginal_scorer(base_logits, 1), _depths(parts)))


def corrected_chain(parts: Parts) -> Build:
    """Domino: the greedy path under the correction over the full vocabulary."""
    scorer = _conditional(parts, children=1, width=None)
    return _of_draft(parts, lambda *draft: frontier.build_trees(scorer(*draft), _depths(parts)))


def marginal_tree(parts: Parts) -> Build:
    """Best-first on marginals with at most k children a node; k is the budget for DDTree, which has no such limit."""
    children = parts.settings.children or parts.settings.budget
    return _of_draft(parts, lambda z, base_logits, root: _tree(marginal_scorer(base_logits, children), parts.settings))


def cost_aware_tree(parts: Parts) -> Build:
    """CaDDTree: DDTree's order, as long as the forecast throughput rises (Section 2.5)."""
    cap, cost = parts.settings.cap, parts.cost
    assert cost is not None
    largest = _of_draft(parts, lambda z, base_logits, root: frontier.build_trees(marginal_scorer(base_logits, cap), cap))

    def build(draft: Draft) -> DraftTree:
        tree = largest(draft)
        probabilities = tree.log_probs[0].exp().cpu().numpy()
        return tree.first(best_size(probabilities, cost.round_cost(cap, draft.position)))

    return build


def static_tree(parts: Parts) -> Build:
    """Best-first on the correction taken once a depth along the greedy path (Appendix D)."""
    scorer = _conditional(parts, parts.settings.children, parts.settings.candidate_width)
    return _of_draft(parts, lambda *draft: _tree(static_scorer(scorer(*draft)), parts.settings))


def conditional_tree(parts: Parts) -> Build:
    """DominoTree: best-first on the correction along each node's own path (Section 3)."""
    scorer = _conditional(parts, parts.settings.children, parts.settings.candidate_width)
    return _of_draft(parts, lambda *draft: _tree(scorer(*draft), parts.settings))


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
