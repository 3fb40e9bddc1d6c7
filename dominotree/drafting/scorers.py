"""Scorers: which tokens may follow a node, and how likely the drafter thinks each is (Section 3.1, 3.2).

A scorer answers two questions, for any number of nodes of one depth at once: `score`, the best k children of each,
and `advance`, the states of the children that are kept. The builders differ in how they ask; the answers are the same.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from dominotree.models.drafter import DominoDrafter


class Scorer(Protocol):
    """n nodes of one depth in, k children of each out, best first."""

    num_depths: int
    root_state: Tensor  # [1, G]

    def score(self, states: Tensor, depth: int) -> tuple[Tensor, Tensor]:
        """Children at `depth` of nodes with these states [n, G]: tokens [n, k] and log-probabilities [n, k]."""

    def advance(self, states: Tensor, tokens: Tensor) -> Tensor:
        """States [n, G] of children with these tokens [n], whose parents have these states [n, G]."""


class TableScorer:
    """The same children for every node of a depth: marginals, or one fixed correction a depth."""

    def __init__(self, tokens: Tensor, log_probs: Tensor) -> None:
        """tokens, log_probs: [D, k], best first."""
        self.tokens, self.log_probs = tokens, log_probs
        self.num_depths = len(tokens)
        self.root_state = log_probs.new_empty(1, 0)

    def score(self, states: Tensor, depth: int) -> tuple[Tensor, Tensor]:
        shape = (len(states), self.tokens.shape[1])
        return self.tokens[depth].expand(shape), self.log_probs[depth].expand(shape)

    def advance(self, states: Tensor, tokens: Tensor) -> Tensor:
        return states


def marginal_scorer(base_logits: Tensor, children: int) -> TableScorer:
    """DDTree's scorer (Section 2.4): top-k of the base marginals. base_logits: [D, V]."""
    log_probs, tokens = base_logits.float().log_softmax(-1).topk(min(children, base_logits.shape[-1]))
    return TableScorer(tokens, log_probs)


class ConditionalScorer:
    """DominoTree's scorer: the base top-M of a depth, corrected along each node's own path (Section 3.1, 3.2).

    Normalisation is the released method's: over the M candidates where the correction applies, over the full
    vocabulary below the prefix length, where the base stands alone.
    """

    def __init__(
        self,
        drafter: DominoDrafter,
        embedding: Tensor,
        z: Tensor,
        base_logits: Tensor,
        root: Tensor,
        children: int,
        candidate_width: int | None,
    ) -> None:
        """embedding: the target's [V, H]. z: [D, H]. base_logits: [D, V]. root: token [1].

        candidate_width: M, or None to correct the full vocabulary.
        """
        self.drafter, self.embedding = drafter, embedding
        self.num_depths, vocabulary = base_logits.shape
        self.children = min(children, candidate_width or vocabulary)
        self.prefix = drafter.config.pure_draft_prefix_len
        self.uncorrected = marginal_scorer(base_logits[: self.prefix], self.children)
        self._gather_candidates(base_logits[self.prefix :], candidate_width)
        from_z, self.from_state = drafter.embed_proj[0].weight.split([z.shape[-1], drafter.config.gru_hidden_dim], dim=1)
        self.from_z = F.linear(z[self.prefix :], from_z)  # [D - prefix, E]: the part of W1 [z ; s] that no path changes
        self.root_state = self.advance(z.new_zeros(1, drafter.config.gru_hidden_dim), root)

    def _gather_candidates(self, base_logits: Tensor, width: int | None) -> None:
        rows = self.drafter.correction_rows
        if width is None:
            depths = len(base_logits)
            self.base, self.tokens, self.rows = base_logits, None, rows.expand(depths, *rows.shape)
        else:
            self.base, self.tokens = base_logits.topk(width)
            self.rows = rows[self.tokens]  # [D - prefix, M, E]

    def score(self, states: Tensor, depth: int) -> tuple[Tensor, Tensor]:
        if depth < self.prefix:
            return self.uncorrected.score(states, depth)
        at = depth - self.prefix
        bottleneck = F.silu(self.from_z[at] + F.linear(states, self.from_state))
        corrected = self.base[at] + F.linear(bottleneck, self.rows[at])
        log_probs, places = corrected.float().log_softmax(-1).topk(self.children)
        return (places if self.tokens is None else self.tokens[at][places]), log_probs

    def advance(self, states: Tensor, tokens: Tensor) -> Tensor:
        return self.drafter.gru_step(self.embedding[tokens], states)


def static_scorer(conditional: ConditionalScorer) -> TableScorer:
    """The correction once a depth, along the greedy path (Appendix D): what the correction gives without the paths."""
    state, rows = conditional.root_state, []
    for depth in range(conditional.num_depths):
        rows.append(conditional.score(state, depth))
        state = conditional.advance(state, rows[-1][0][:, 0])
    tokens, log_probs = zip(*rows, strict=True)
    return TableScorer(torch.cat(tokens), torch.cat(log_probs))
