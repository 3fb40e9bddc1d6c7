"""The reference builder: best-first with a heap, one node at a time (Algorithm of Section 3.2)."""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass, field

import torch
from torch import Tensor

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

    def tree(self, like: Tensor) -> DraftTree:
        """As a tree of one request, its log-probabilities of `like`'s dtype."""
        integers = [torch.tensor([x], dtype=torch.int64, device=like.device) for x in (self.tokens, self.parents, self.depths)]
        log_probs = torch.tensor([self.log_probs], dtype=torch.promote_types(like.dtype, torch.float32), device=like.device)
        return DraftTree(*integers, log_probs, torch.ones_like(integers[0], dtype=torch.bool))


def _children(scorer: Scorer, state: Tensor, parent: int, depth: int, base: float) -> Siblings:
    tokens, log_probs = scorer.score(state, depth)
    return Siblings(parent, depth, base, state, tokens[0, 0].tolist(), log_probs[0, 0].tolist())


def build_tree(scorer: Scorer, budget: int, depth_penalty: float = 0.0) -> DraftTree:
    """Pop the best node, offer its next sibling and its first child, until there are `budget` nodes or no more.

    `scorer` is one request's. Nodes come in pop order: by log-probability, `depth_penalty` added once for each depth. Ties
    are broken by insertion. With one child a node this is the chain. Dead candidates, of log-probability -inf, are never
    offered.
    """
    nodes, state = Nodes(), scorer.root_state
    heap: list[tuple[float, int, Siblings]] = []
    order, lane = itertools.count(), torch.zeros(1, 1, dtype=torch.int64, device=state.device)

    def offer(siblings: Siblings) -> None:
        if siblings.best > -float("inf"):
            heapq.heappush(heap, (-siblings.best - depth_penalty * siblings.depth, next(order), siblings))

    offer(_children(scorer, state, -1, 0, 0.0))
    while heap and len(nodes.tokens) < budget:
        _, _, popped = heapq.heappop(heap)
        nodes.append(popped)
        if len(nodes.tokens) == budget:
            break
        if popped.depth + 1 < scorer.num_depths:
            token = torch.full_like(lane, popped.tokens[popped.rank])
            child_state = scorer.advance(popped.state, lane, token)
            offer(_children(scorer, child_state, len(nodes.tokens) - 1, popped.depth + 1, popped.best))
        popped.rank += 1
        if popped.rank < len(popped.tokens):
            offer(popped)
    return nodes.tree(scorer.root_state)
