"""The frontier builder: the heap's tree for many requests at once, without waiting for the device (Section 3.3, Appendix B).

Lanes are the nodes of one depth that are still grown, in lockstep over the depths. Every depth is one call of the scorer for
all lanes of all requests; what it finds goes into a ledger, from which the best nodes are taken at the end. On a GPU all shapes
follow from budget, width, children and depths, so nothing is read back and the whole build can be one CUDA graph.
"""

from __future__ import annotations

from functools import cache, lru_cache

import torch
from torch import Tensor

from dominotree.drafting.scorers import Scorer
from dominotree.drafting.tree import DraftTree
from dominotree.kernels import select_tree


@lru_cache(maxsize=1024)
def most_nodes(nodes: int, children: int, depth: int) -> int:
    """The most nodes at `depth` of an ancestor-closed tree of `nodes` nodes that have at most `children` children each.

    Of the nodes of one depth a best-first tree holds the best, so no more than these need to be kept: it loses nothing.
    """
    count = max(0, nodes - depth)
    while sum(-(-count // children**level) for level in range(depth + 1)) > nodes:
        count -= 1
    return count


def _layout(kept: tuple[int, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """Of a ledger with so many entries a depth: what turns an entry's lane into its parent's place, and its depth, both [L]."""
    starts = [-1] + [sum(kept[:depth]) for depth in range(len(kept) - 1)]
    places = [starts[depth] for depth, count in enumerate(kept) for _ in range(count)]
    depths = [depth for depth, count in enumerate(kept) for _ in range(count)]
    return torch.tensor(places, device=device), torch.tensor(depths, device=device)


_lasting_layout = cache(_layout)
"""On a GPU there are few shapes, and a CUDA graph reads their tensors for as long as the process lives."""

_recent_layout = lru_cache(maxsize=1024)(_layout)
"""On a CPU there are as many as trees look different."""


def _living(scores: Tensor, best: Tensor, budget: int) -> int:
    """How many lanes, best first in `scores` [R, n], can still have a child in some request's tree.

    best: scores of all nodes so far, or the `budget` best of them. A lane below the last of so many cannot: its children
    are no better than itself. Reads from the device.
    """
    if best.shape[1] < budget:
        return scores.shape[1]
    return int((scores >= best[:, budget - 1 :]).sum(dim=1).max())


def build_trees(scorer: Scorer, budget: int, width: int | None = None, depth_penalty: float = 0.0) -> DraftTree:
    """The `budget` best nodes of each request's candidate tree, by log-probability plus `depth_penalty` (<= 0) a depth.

    A node's score is never above its parent's, so these nodes are a tree, the one that `heap.build_tree` pops, up to the
    order of exact ties; best first. `width` below the budget keeps that many lanes a depth, and the tree is then the best of
    what these lanes have scored (W < B in Appendix B). If there are fewer candidates, dead leaves fill it up.
    """
    states, lanes, children = scorer.root_state, 1, scorer.children
    lane_scores = states.new_zeros(1, 1, 1, dtype=torch.promote_types(states.dtype, torch.float32))
    best, ledger = lane_scores[:, :0, 0].expand(len(states), 0), []
    for depth in range(scorer.num_depths):
        kept = min(lanes * children, most_nodes(budget, children, depth))
        if not kept:
            break
        tokens, log_probs = scorer.score(states, depth)
        found, places = (log_probs + lane_scores).flatten(1).topk(kept)
        parents, tokens = places.div(children, rounding_mode="floor"), tokens.flatten(1).gather(1, places)
        scores = found + depth_penalty * depth if depth_penalty else found
        ledger.append((scores, tokens, parents, found))
        # A lane is worth growing only where the budget leaves room for a child.
        lanes = min(kept, width or budget, most_nodes(budget - 1, children, depth))
        if not states.is_cuda:
            # Reading costs nothing on a CPU, and most lanes die young.
            best = torch.cat((best, scores), dim=1)
            best = best.topk(budget).values if best.shape[1] >= budget else best
            lanes = min(lanes, _living(scores[:, :lanes], best, budget))
        if not lanes:
            break
        if depth + 1 < scorer.num_depths:
            states = scorer.advance(states, parents[:, :lanes], tokens[:, :lanes])
            lane_scores = found[:, :lanes, None]
    scores, tokens, parents, log_probs = (torch.cat(part, dim=1) for part in zip(*ledger, strict=True))
    layout = _lasting_layout if states.is_cuda else _recent_layout
    places, depths = layout(tuple(entry[0].shape[1] for entry in ledger), states.device)
    return DraftTree(*select_tree(scores, tokens, parents + places, depths, log_probs, most_candidates(scorer, budget)))


def most_candidates(scorer: Scorer, budget: int) -> int:
    """Nodes of a tree: the budget, or all candidates where there are fewer."""
    total, level = 0, 1
    for _ in range(scorer.num_depths):
        level *= scorer.children
        total += level
        if total >= budget:
            return budget
    return total
