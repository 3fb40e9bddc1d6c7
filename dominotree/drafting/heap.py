"""The reference builder: best-first with a heap, one node at a time (Algorithm of Section 3.2)."""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass, field
from math import exp

import torch
from torch import Tensor

from dominotree.drafting.budget import Budget
from dominotree.drafting.scorers import Scorer
from dominotree.drafting.tree import DraftTree


@dataclass
class Siblings:
    """The scored children of one node, of which `rank` is the next to be offered."""

    parent: int
    depth: int
    base: float
    state: Tensor
    tokens: list[int]
    log_probs: list[float]
    rank: int = 0

    @property
    def best(self) -> float:
        return self.base + self.log_probs[self.rank]


@dataclass
class Nodes:
    """The tree so far, as lists."""

    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)

    def append(self, siblings: Siblings) -> None:
        self.tokens.append(siblings.tokens[siblings.rank])
        self.parents.append(siblings.parent)
        self.depths.append(siblings.depth)
        self.log_probs.append(siblings.best)

    def tree(self, device: torch.device) -> DraftTree:
        integers = (torch.tensor(x, dtype=torch.int64, device=device) for x in (self.tokens, self.parents, self.depths))
        return DraftTree(*integers, torch.tensor(self.log_probs, device=device))


def _children(scorer: Scorer, state: Tensor, parent: int, depth: int, base: float) -> Siblings:
    tokens, log_probs = scorer.score(state, depth)
    return Siblings(parent, depth, base, state, tokens[0].tolist(), log_probs[0].tolist())


def build_tree(scorer: Scorer, budget: Budget) -> DraftTree:
    """Pop the best node, offer its next sibling and its first child, until the budget admits no more.

    Nodes come in pop order. Ties are broken by insertion. With k = 1 this is the chain.
    """
    nodes, forecast = Nodes(), 1.0
    state = scorer.root_state
    heap: list[tuple[float, int, Siblings]] = []
    order = itertools.count()

    def offer(siblings: Siblings) -> None:
        heapq.heappush(heap, (-siblings.best, next(order), siblings))

    offer(_children(scorer, state, -1, 0, 0.0))
    while heap:
        _, _, popped = heapq.heappop(heap)
        forecast += exp(popped.best)
        if not budget.admits(len(nodes.tokens) + 1, forecast):
            break
        nodes.append(popped)
        if len(nodes.tokens) == budget.limit:
            break
        if popped.depth + 1 < scorer.num_depths:
            token = popped.tokens[popped.rank]
            child_state = scorer.advance(popped.state, torch.tensor([token], device=state.device))
            offer(_children(scorer, child_state, len(nodes.tokens) - 1, popped.depth + 1, popped.best))
        popped.rank += 1
        if popped.rank < len(popped.tokens):
            offer(popped)
    return nodes.tree(state.device)
