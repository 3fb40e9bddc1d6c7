"""Scorers: which tokens may follow a node, and how likely the drafter thinks each is (Section 3.1, 3.2).

A scorer answers two questions, for any number of nodes of one depth of any number of requests at once: `score`, the best k
children of each, and `advance`, the states of the children that are kept. The builders differ in how they ask; the
answers are the same.
"""

from __future__ import annotations

from typing import Literal, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from dominotree.drafting.topk import top_tokens
from dominotree.kernels import candidate_log_probs, gru_step, score_candidates
from dominotree.kernels.packed import pack
from dominotree.models.drafter import DominoDrafter

Normaliser = Literal["candidates", "tail"]


class Scorer(Protocol):
    """n nodes (lanes) of one depth of R requests in, k children of each out, best first."""

    num_depths: int
    children: int
    root_state: Tensor  # [R, 1, G]

    def score(self, states: Tensor, depth: int) -> tuple[Tensor, Tensor]:
        """Children at `depth` of nodes with these states [R, n, G]: tokens and log-probabilities [R, n, k]."""

    def advance(self, states: Tensor, parents: Tensor, tokens: Tensor) -> Tensor:
        """States [R, m, G] of children with these tokens [R, m], whose parents [R, m] are lanes of states [R, n, G]."""


class TableScorer:
    """The same children for every node of a depth: marginals, or one fixed correction a depth."""

    def __init__(self, tokens: Tensor, log_probs: Tensor) -> None:
        """tokens, log_probs: [R, D, k], best first."""
        self.tokens, self.log_probs = tokens, log_probs
        requests, self.num_depths, self.children = tokens.shape
        self.root_state = log_probs.new_empty(requests, 1, 0)

    def score(self, states: Tensor, depth: int) -> tuple[Tensor, Tensor]:
        shape = (-1, states.shape[1], -1)
        return self.tokens[:, depth, None].expand(shape), self.log_probs[:, depth, None].expand(shape)

    def advance(self, states: Tensor, parents: Tensor, tokens: Tensor) -> Tensor:
        return self.root_state.expand(-1, tokens.shape[1], -1)


def marginal_scorer(base_logits: Tensor, children: int) -> TableScorer:
    """DDTree's scorer (Section 2.4): top-k of the base marginals. base_logits: [R, D, V]."""
    best, tokens = top_tokens(base_logits, min(children, base_logits.shape[-1]))
    return TableScorer(tokens, best - _total(base_logits).unsqueeze(-1))


def _total(logits: Tensor) -> Tensor:
    """The normaliser of logits [..., V]: log-sum-exp [...], at least in float32."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32)).logsumexp(-1)


class GruInputs(Protocol):
    """What a GRU step reads besides states: input products W_ih E(v), and W_hh [3G, G], packed once."""

    weight_hh: Tensor

    def products(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Of tokens [R, m]: rows [T, 3G], and which of them is whose [R, m]."""


class ComputedInputs:
    """Products computed when they are needed."""

    def __init__(self, drafter: DominoDrafter, embedding: Tensor) -> None:
        """embedding: the target's [V, H]."""
        self.weight, self.embedding = drafter.prefix_gru.weight_ih_l0, embedding
        self.weight_hh = pack(drafter.prefix_gru.weight_hh_l0)

    def products(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        rows = torch.arange(tokens.numel(), device=tokens.device).view_as(tokens)
        return F.linear(self.embedding[tokens.flatten()], self.weight), rows


class InputTable:
    """Products of the whole vocabulary, computed once: the step's larger half becomes a look-up (`table_bytes` of memory)."""

    def __init__(self, drafter: DominoDrafter, embedding: Tensor) -> None:
        """embedding: the target's [V, H]."""
        self.table = F.linear(embedding, drafter.prefix_gru.weight_ih_l0)  # [V, 3G]
        self.weight_hh = pack(drafter.prefix_gru.weight_hh_l0)

    def products(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        return self.table, tokens


def table_bytes(drafter: DominoDrafter, embedding: Tensor) -> int:
    """What an `InputTable` takes."""
    return embedding.shape[0] * drafter.prefix_gru.weight_ih_l0.shape[0] * embedding.element_size()


class ConditionalScorer:
    """DominoTree's scorer: the base top-M of a depth, corrected along each node's own path (Section 3.1, 3.2).

    Below the prefix length, where the base stands alone, normalisation is over the full vocabulary. Where the correction
    applies it is `normaliser`'s choice: over the M corrected candidates, as in the released method, or over these and the
    base's mass outside them, which is the full vocabulary's normaliser as far as the candidates' choice lets it be known.
    """

    def __init__(
        self,
        drafter: DominoDrafter,
        inputs: GruInputs,
        z: Tensor,
        base_logits: Tensor,
        root: Tensor,
        children: int,
        candidate_width: int | None,
        normaliser: Normaliser = "candidates",
    ) -> None:
        """z: [R, D, H]. base_logits: [R, D, V]. root: tokens [R]. candidate_width: M, or None for the full vocabulary."""
        requests, self.num_depths, vocabulary = base_logits.shape
        self.inputs = inputs
        self.children = min(children, candidate_width or vocabulary)
        self.prefix = drafter.config.pure_draft_prefix_len
        self.base_logits = base_logits[:, : self.prefix]
        self.uncorrected = marginal_scorer(self.base_logits, self.children)
        depth_first = base_logits[:, self.prefix :].transpose(0, 1)  # [D - prefix, R, V]
        base, tokens, rows = _candidates(depth_first, candidate_width, drafter.correction_rows)
        hidden, state = z.shape[-1], drafter.config.gru_hidden_dim
        from_z, self.from_state = drafter.embed_proj[0].weight.split([hidden, state], dim=1)
        # The part of W1 [z ; s] that no path changes: [D - prefix, R, E].
        fixed = F.linear(z[:, self.prefix :].transpose(0, 1), from_z)
        self.tokens = tokens.unbind()
        self.corrections = list(zip(fixed, base, rows, _tails(depth_first, base, normaliser), strict=True))
        zero = z.new_zeros(requests, 1, state)
        self.root_state = self.advance(zero, torch.zeros_like(root).unsqueeze(1), root.unsqueeze(1))

    def score(self, states: Tensor, depth: int) -> tuple[Tensor, Tensor]:
        if depth < self.prefix:
            return self.uncorrected.score(states, depth)
        places, log_probs = score_candidates(states, *self._correction(depth), self.children)
        return self.tokens[depth - self.prefix].gather(1, places.flatten(1)).view_as(places), log_probs

    def distribution(self, states: Tensor, depth: int) -> tuple[Tensor, Tensor]:
        """All that `score` chooses from: tokens and log-probabilities, both [R, n, candidates], in no order."""
        if depth < self.prefix:
            logits = self.base_logits[:, depth, None]
            log_probs = (logits - _total(logits).unsqueeze(-1)).expand(-1, states.shape[1], -1)
            return torch.arange(logits.shape[-1], device=logits.device).expand_as(log_probs), log_probs
        log_probs = candidate_log_probs(states, *self._correction(depth))
        return self.tokens[depth - self.prefix].unsqueeze(1).expand_as(log_probs), log_probs

    def _correction(self, depth: int) -> tuple[Tensor, ...]:
        """What the kernels ask for, besides the states."""
        return self.from_state, *self.corrections[depth - self.prefix]

    def advance(self, states: Tensor, parents: Tensor, tokens: Tensor) -> Tensor:
        table, rows = self.inputs.products(tokens)
        return gru_step(table, rows, states, parents, self.inputs.weight_hh)


def _candidates(base_logits: Tensor, width: int | None, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The base's best `width` of logits [D, R, V]: logits and tokens [D, R, M], and their rows of W2 [D, R, M, E]."""
    depths, requests, vocabulary = base_logits.shape
    if width is None:
        tokens = torch.arange(vocabulary, device=rows.device).expand_as(base_logits)
        return base_logits, tokens, rows.expand(depths, requests, *rows.shape)
    base, tokens = top_tokens(base_logits, width)
    return base, tokens, rows.index_select(0, tokens.flatten()).view(*tokens.shape, rows.shape[1])


def _tails(base_logits: Tensor, candidates: Tensor, normaliser: Normaliser) -> Tensor:
    """What of the base shares in the normaliser besides the candidates: log-sum-exp of the rest [..., V] -> [...], or -inf."""
    if normaliser == "candidates":
        wide = torch.promote_types(base_logits.dtype, torch.float32)
        return base_logits.new_full(base_logits.shape[:-1], -float("inf"), dtype=wide)
    total, inside = _total(base_logits), _total(candidates)
    return total + torch.log1p(-(inside - total).clamp(max=0).exp())


class SampledScorer:
    """Children drawn from the drafter's distribution at a temperature, without replacement, instead of its best (Appendix A.2).

    The k largest of log-probability plus Gumbel noise are such a draw; they come ordered by their probability at the
    temperature, which is also what the builder sees.
    """

    def __init__(self, conditional: ConditionalScorer, temperature: float, random: torch.Generator) -> None:
        """temperature: above 0."""
        self.conditional, self.temperature, self.random = conditional, temperature, random
        self.num_depths, self.children, self.root_state = conditional.num_depths, conditional.children, conditional.root_state

    def score(self, states: Tensor, depth: int) -> tuple[Tensor, Tensor]:
        tokens, log_probs = self.conditional.distribution(states, depth)
        log_probs = (log_probs / self.temperature).log_softmax(-1)
        noise = torch.empty_like(log_probs).exponential_(generator=self.random).log_().neg_()
        drawn = (log_probs + noise).topk(self.children).indices
        best, order = log_probs.gather(-1, drawn).sort(dim=-1, descending=True)
        return tokens.gather(-1, drawn.gather(-1, order)), best

    def advance(self, states: Tensor, parents: Tensor, tokens: Tensor) -> Tensor:
        return self.conditional.advance(states, parents, tokens)


def static_scorer(conditional: ConditionalScorer) -> TableScorer:
    """The correction once a depth, along the greedy path (Appendix D): what the correction gives without the paths."""
    state, rows = conditional.root_state, []
    lane = torch.zeros(len(state), 1, dtype=torch.int64, device=state.device)
    for depth in range(conditional.num_depths):
        rows.append(conditional.score(state, depth))
        if depth + 1 < conditional.num_depths:
            state = conditional.advance(state, lane, rows[-1][0][:, :, 0])
    tokens, log_probs = zip(*rows, strict=True)
    return TableScorer(torch.cat(tokens, dim=1), torch.cat(log_probs, dim=1))
