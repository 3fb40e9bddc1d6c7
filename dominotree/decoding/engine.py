"""Decoding one prompt: plain autoregression, and the speculative loop of draft, build, verify, commit."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, field

import torch

from dominotree.decoding.cache import TargetCache
from dominotree.decoding.draft import Draft, Drafting
from dominotree.decoding.sampling import Sampler
from dominotree.decoding.verify import verify_input
from dominotree.drafting.tree import DraftTree, accepted_path
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

    def __add__(self, other: StageTimes) -> StageTimes:
        pairs = zip(astuple(self), astuple(other), strict=True)
        return StageTimes(*(mine + theirs for mine, theirs in pairs))


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


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _row(target: Target, tokens: list[int], first: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens at consecutive positions from `first`, as the tensors [1, n] of a pass."""
    ids = torch.tensor([tokens], device=target.device)
    return ids, torch.arange(first, first + len(tokens), device=target.device).unsqueeze(0)


@torch.inference_mode()
def generate_autoregressive(target: Target, prompt: list[int], sampler: Sampler, limits: Limits) -> Generation:
    """One token a pass: the lean loop that every speedup is measured against."""
    cache = TargetCache(target.config.num_hidden_layers, len(prompt) + limits.max_new_tokens)
    output, hidden = Output(limits), target.forward(*_row(target, prompt, 0), cache=cache).hidden
    cache.commit(list(range(len(prompt))))
    output.extend(sampler.sample(target.logits(hidden[0, -1:]), [len(prompt)]))
    start, rounds = _now(target.device), []
    while not output.done:
        hidden = target.forward(*_row(target, output.tokens[-1:], cache.length), cache=cache).hidden
        cache.commit([0])
        output.extend(sampler.sample(target.logits(hidden[0]), [cache.length]))
        rounds.append(Round(committed=1))
    seconds = _now(target.device) - start
    return Generation(output.tokens, output.stopped_by_eos, seconds, rounds, StageTimes(verify=seconds))


@torch.inference_mode()
def generate_speculative(
    target: Target, drafter: DFlashDrafter, build: Build, max_nodes: int, prompt: list[int], sampler: Sampler, limits: Limits
) -> Generation:
    """Rounds of draft, build, verify, commit. `build` makes trees of at most `max_nodes` nodes,
    dead leaves included.

    `target` must give the features of the drafter's `target_layer_ids`. With a keyed or greedy sampler the tokens are
    those of `generate_autoregressive`, up to rounding.
    """
    capacity = len(prompt) + limits.max_new_tokens + max_nodes + 1
    cache = TargetCache(target.config.num_hidden_layers, capacity)
    drafting = Drafting(drafter, target, capacity)
    output, first = Output(limits), target.forward(*_row(target, prompt, 0), cache=cache)
    cache.commit(list(range(len(prompt))))
    output.extend(sampler.sample(target.logits(first.hidden[0, -1:]), [len(prompt)]))
    start, rounds, stages, features = _now(target.device), [], StageTimes(), first.features
    while not output.done:
        features, round_, times = _speculate(target, drafting, build, cache, sampler, output, features, rounds)
        rounds.append(round_)
        stages += times
    return Generation(output.tokens, output.stopped_by_eos, _now(target.device) - start, rounds, stages)


def _speculate(
    target: Target,
    drafting: Drafting,
    build: Build,
    cache: TargetCache,
    sampler: Sampler,
    output: Output,
    features: torch.Tensor,
    rounds: Sequence[Round],
) -> tuple[torch.Tensor, Round, StageTimes]:
    """One round. `features` are those of the tokens committed since the last draft; returns the next round's."""
    t0, root, position = _now(target.device), output.tokens[-1], cache.length
    drafting.extend(features)
    draft = drafting.draft(root)
    t1 = _now(target.device)
    tree = build(draft, rounds)
    t2 = _now(target.device)
    inputs = verify_input(tree, root, position, drafting.drafter.config.num_proposals, target.dtype)
    passed = target.forward(inputs.tokens, inputs.positions, inputs.mask, cache)
    next_positions = [position + 1, *(position + 2 + depth for depth in tree.depths[0].tolist())]
    sampled = sampler.sample(target.logits(passed.hidden[0]), next_positions)
    t3 = _now(target.device)
    valid = tree.valid[0].tolist()
    path = accepted_path(tree.tokens[0].tolist(), tree.parents[0].tolist(), valid, sampled)
    rows = [0, *(node + 1 for node in path)]
    cache.commit(rows)
    # An accepted node's token is what its parent sampled; the last is the bonus.
    committed = output.extend([sampled[row] for row in rows])
    probabilities = tuple(tree.log_probs[0].exp().tolist()[: sum(valid)])
    features = passed.features[:, rows]
    t4 = _now(target.device)
    return features, Round(committed, probabilities, tuple(path)), StageTimes(t1 - t0, t2 - t1, t3 - t2, t4 - t3)
