"""What is asked of a target, and what it answers: requests, rounds, generations."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

from dominotree.decoding.sampling import Sampler


@dataclass(frozen=True)
class Limits:
    """Where decoding stops: at the first of these tokens, which counts, or at this many new tokens."""

    max_new_tokens: int
    eos_ids: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Request:
    """A prompt to continue, how its tokens are drawn, and where it ends. The sampler serves this request alone."""

    prompt: list[int]
    sampler: Sampler
    limits: Limits


@dataclass(frozen=True)
class Round:
    """One round: tokens committed after the cut at EOS or length (bonus included), and its tree before that cut.

    probabilities: of each node's path, as the drafter forecast them; accepted: the nodes that the target accepted. drafted:
    whether there was a draft, of which a tree may have got no node.
    """

    committed: int
    probabilities: tuple[float, ...] = ()
    accepted: tuple[int, ...] = ()
    drafted: bool = True

    @property
    def nodes(self) -> int:
        return len(self.probabilities)

    @property
    def forecast(self) -> float:
        """Tokens that the drafter expected to be committed, bonus included (Section 2.5)."""
        return 1.0 + sum(self.probabilities)


@dataclass(frozen=True)
class StageTimes:
    """Seconds spent in each stage, over all rounds."""

    draft: float = 0.0
    build: float = 0.0
    verify: float = 0.0
    commit: float = 0.0


@dataclass(frozen=True)
class Generation:
    """The new tokens, the first of which prefill gave, and how they came about.

    prefill_s: seconds of the request's own prefill; decode_s: from its first token to its last, whatever other requests took
    of them; share_s: its part of the wall time, each moment of which is divided equally among the requests in flight.
    """

    tokens: list[int]
    stopped_by_eos: bool
    prefill_s: float
    decode_s: float
    share_s: float
    rounds: list[Round]
    stages: StageTimes


Client = Generator[Request, Generation, Any]
"""Asks one request after another, each when it has the answer to the last, and returns what it made of them."""


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
