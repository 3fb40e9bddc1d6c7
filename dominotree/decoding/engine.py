"""Decoding one prompt: plain autoregression, and the speculative loop of draft, build, verify, commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from dominotree.decoding.cache import TargetCache
from dominotree.decoding.clock import Clock
from dominotree.decoding.draft import Draft, Drafting
from dominotree.decoding.sampling import Places, Sampler
from dominotree.decoding.verify import Accepted, accept, ahead, verify_input
from dominotree.drafting.tree import DraftTree
from dominotree.models.drafter import DFlashDrafter
from dominotree.models.target import Target


@dataclass(frozen=True)
class Round:
    """One round: tokens committed after the cut at EOS or length (bonus included), and its tree before that cut.

    probabilities: of each node's path, as the drafter forecast them; accepted: the nodes that the target accepted.
    """

    committed: int
    probabilities: tuple[float, ...] = ()
    accepted: tuple[int, ...] = ()

    @property
    def nodes(self) -> int:
        return len(self.probabilities)

    @property
    def forecast(self) -> float:
        """Tokens that the drafter expected to be committed, bonus included (Section 2.5)."""
        return 1.0 + sum(self.probabilities)


Build = Callable[[Draft, Sequence[Round]], DraftTree]
"""The tree of a draft, given the rounds that the generation has been through."""


@dataclass(frozen=True)
class Limits:
    """Where decoding stops: at the first of these tokens, which counts, or at this many new tokens."""

    max_new_tokens: int
    eos_ids: frozenset[int] = frozenset()


@dataclass(frozen=True)
class StageTimes:
    """Seconds spent in each stage, over all rounds."""

    draft: float = 0.0
    build: float = 0.0
    verify: float = 0.0
    commit: float = 0.0


@dataclass(frozen=True)
class Generation:
    """The new tokens, the first of which prefill gave, and how they came about."""

    tokens: list[int]
    stopped_by_eos: bool
    decode_s: float
    rounds: list[Round]
    stages: StageTimes


@dataclass
class Output:
    """The tokens so far, cut exactly at the first EOS or at the length limit."""

    limits: Limits
    tokens: list[int] = field(default_factory=list)
    stopped_by_eos: bool = False

    @property
    def done(self) -> bool:
        return self.stopped_by_eos or len(self.tokens) >= self.limits.max_new_tokens

    def extend(self, committed: list[int]) -> int:
        """Append what the limits allow of `committed`, and say how many tokens that is."""
        before = len(self.tokens)
        for token in committed:
            if self.done:
                break
            self.tokens.append(token)
            self.stopped_by_eos = token in self.limits.eos_ids
        return len(self.tokens) - before


@torch.inference_mode()
def generate_autoregressive(target: Target, prompt: list[int], sampler: Sampler, limits: Limits) -> Generation:
    """One token a pass: the lean loop that every speedup is measured against."""
    cache, output, clock = TargetCache(target, len(prompt) + limits.max_new_tokens), Output(limits), Clock(target.device)
    root, _ = _prefill(target, cache, prompt, sampler)
    output.extend(root.tolist())
    clock.mark()
    while not output.done:
        position = torch.full_like(root, cache.length)
        hidden = target.forward(root.unsqueeze(0), position.unsqueeze(0), cache=cache).hidden
        cache.commit(1)
        root = sampler.sample(target.logits(hidden[:, -1]), Places.at(cache.length, target.device))
        output.extend(root.tolist())
    clock.mark()
    (seconds,) = clock.seconds()
    rounds = [Round(committed=1)] * (len(output.tokens) - 1)
    return Generation(output.tokens, output.stopped_by_eos, seconds, rounds, StageTimes(verify=seconds))


def _prefill(target: Target, cache: TargetCache, prompt: list[int], sampler: Sampler) -> tuple[Tensor, Tensor]:
    """Run the prompt: the first token [1], and the prompt's features [1, n, L_ctx * H]."""
    tokens = torch.tensor([prompt], device=target.device)
    first = target.forward(tokens, torch.arange(len(prompt), device=target.device).unsqueeze(0), cache=cache)
    cache.commit(len(prompt))
    return sampler.sample(target.logits(first.hidden[:, -1]), Places.at(len(prompt), target.device)), first.features


@torch.inference_mode()
def generate_speculative(
    target: Target, drafter: DFlashDrafter, build: Build, max_nodes: int, prompt: list[int], sampler: Sampler, limits: Limits
) -> Generation:
    """Rounds of draft, build, verify, commit. `build` makes trees of at most `max_nodes` nodes, dead leaves included.

    `target` must give the features of the drafter's `target_layer_ids`. With a keyed or greedy sampler the tokens are
    those of `generate_autoregressive`, up to rounding.
    """
    capacity = len(prompt) + limits.max_new_tokens + max_nodes + 1
    cache, drafting = TargetCache(target, capacity), Drafting(drafter, target, capacity)
    output, rounds, clock = Output(limits), [], Clock(target.device)
    depth = drafter.config.num_proposals
    root, features = _prefill(target, cache, prompt, sampler)
    output.extend(root.tolist())
    clock.mark()
    while not output.done:
        drafting.extend(features)
        draft = drafting.draft(root)
        clock.mark()
        tree = build(draft, rounds)
        clock.mark()
        inputs = verify_input(tree, root, cache.length, depth, target.dtype)
        passed = target.forward(inputs.tokens, inputs.positions, inputs.mask, cache)
        places = Places(cache.length + 1, ahead(tree)[0], depth + 1)
        accepted = accept(tree, sampler.sample(target.logits(passed.hidden[0]), places).unsqueeze(0), depth)
        clock.mark()
        cache.compact(accepted.rows, accepted.counts)
        told = _tell(accepted, tree)
        cache.commit(len(told.rows))
        root, features = accepted.tokens[:, len(told.rows) - 1], passed.features[:, accepted.rows[0, : len(told.rows)]]
        committed = output.extend(told.tokens)
        rounds.append(Round(committed, told.probabilities, tuple(row - 1 for row in told.rows[1:])))
        clock.mark()
    seconds = clock.seconds()
    stages = StageTimes(*(sum(seconds[stage::4]) for stage in range(4)))
    return Generation(output.tokens, output.stopped_by_eos, sum(seconds), rounds, stages)


@dataclass(frozen=True)
class Told:
    """What the host learns of a round: accepted rows, root first, the tokens after them, and the nodes' path probabilities."""

    rows: list[int]
    tokens: list[int]
    probabilities: tuple[float, ...]


def _tell(accepted: Accepted, tree: DraftTree) -> Told:
    """A round's one read from the device: everything in a row of float64, which holds any token exactly."""
    counts = torch.stack((accepted.counts, tree.valid.sum(dim=1)), dim=1)
    parts = (counts, accepted.rows, accepted.tokens, tree.log_probs.exp())
    told = torch.cat([part.double() for part in parts], dim=1)[0].tolist()
    (count, nodes), width = (int(number) for number in told[:2]), accepted.rows.shape[1]
    rows, tokens = ([int(number) for number in told[start : start + count]] for start in (2, 2 + width))
    return Told(rows, tokens, tuple(told[2 + 2 * width :][:nodes]))
