"""How the target's next token is drawn from its logits.

`KeyedSampler` draws argmax(logits / T + gumbel(seed, prompt, position)): its noise depends on where the token stands
and on nothing else, so every arm draws the same token from the same distribution. It is exact sampling (the Gumbel-max
trick), and it makes losslessness testable at any temperature. `MultinomialSampler` is plain sampling, for comparison
with harnesses that have no such key.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

_MASK = 0xFFFFFFFF


@dataclass(frozen=True)
class Places:
    """Where n tokens will stand: at absolute positions `first` + `ahead` [n], of which none reaches `first` + `span`.

    The host knows the two numbers; `ahead` it need not read.
    """

    first: int
    ahead: Tensor
    span: int

    @classmethod
    def at(cls, position: int, device: torch.device) -> Places:
        """The place of one token."""
        return cls(position, torch.zeros(1, dtype=torch.int64, device=device), 1)


class Sampler(Protocol):
    """Waits for nothing on a GPU."""

    def scores(self, logits: Tensor, places: Places) -> Tensor:
        """logits [n, V] of the tokens at these places -> what is compared to choose, [n, V]."""

    def sample(self, logits: Tensor, places: Places) -> Tensor:
        """The tokens [n]."""


class GreedySampler:
    """Temperature 0."""

    def scores(self, logits: Tensor, places: Places) -> Tensor:
        return logits

    def sample(self, logits: Tensor, places: Places) -> Tensor:
        return logits.argmax(-1)


def _mix(x: Tensor) -> Tensor:
    """A bijective 32-bit hash (murmur3's finaliser) of non-negative int64 numbers below 2^32."""
    x = ((x ^ (x >> 16)) * 0x85EBCA6B) & _MASK
    x = ((x ^ (x >> 13)) * 0xC2B2AE35) & _MASK
    return x ^ (x >> 16)


def keyed_gumbel(seed: int, prompt: str, position: int, vocab_size: int, device: torch.device) -> Tensor:
    """Standard Gumbel noise [V] in fp32, a function of its arguments alone, the same on every device up to rounding.

    prompt: anything that names the prompt, such as its SHA-256.
    """
    digest = hashlib.sha256(f"{seed}/{prompt}/{position}".encode()).digest()
    first, second = (int.from_bytes(digest[i : i + 4], "little") for i in (0, 4))
    tokens = torch.arange(vocab_size, device=device)
    bits = _mix(_mix(tokens ^ first) ^ second) >> 8
    uniform = (bits.float() + 0.5) / (1 << 24)
    return -torch.log(-torch.log1p(-uniform))


class KeyedSampler:
    """Sampling at temperature T > 0 with position-keyed noise. One instance serves one generation."""

    def __init__(self, seed: int, prompt: str, temperature: float) -> None:
        self.seed, self.prompt, self.temperature = seed, prompt, temperature
        self.held: list[int] = []  # the position whose noise each row of `noise` [span, V] is

    def _fill(self, places: Places, like: Tensor) -> None:
        """Rounds look ahead, so a row is kept, at its position modulo the span, until a later one takes its place."""
        if len(self.held) != places.span:
            self.held = [-1] * places.span
            self.noise = torch.empty(places.span, like.shape[-1], device=like.device)
        for position in range(places.first, places.first + places.span):
            row = position % places.span
            if self.held[row] != position:
                self.held[row] = position
                self.noise[row] = keyed_gumbel(self.seed, self.prompt, position, like.shape[-1], like.device)

    def scores(self, logits: Tensor, places: Places) -> Tensor:
        self._fill(places, logits)
        noise = self.noise[(places.first + places.ahead) % places.span]
        return torch.add(noise, logits, alpha=1 / self.temperature)

    def sample(self, logits: Tensor, places: Places) -> Tensor:
        return self.scores(logits, places).argmax(-1)


class MultinomialSampler:
    """Plain sampling at temperature T > 0 from a seeded generator. One instance serves one generation."""

    def __init__(self, seed: int, prompt: str, temperature: float, device: torch.device) -> None:
        digest = hashlib.sha256(f"{seed}/{prompt}".encode()).digest()
        self.generator = torch.Generator(device).manual_seed(int.from_bytes(digest[:8], "little") >> 1)
        self.temperature = temperature

    def scores(self, logits: Tensor, places: Places) -> Tensor:
        return logits.float() / self.temperature

    def sample(self, logits: Tensor, places: Places) -> Tensor:
        # The largest of the logits plus Gumbel noise; torch.multinomial would read its sum back first.
        scores = self.scores(logits, places)
        noise = torch.empty_like(scores).exponential_(generator=self.generator).log_()
        return (scores - noise).argmax(-1)


def make_sampler(kind: str, seed: int, prompt: str, temperature: float, device: torch.device) -> Sampler:
    """The sampler of one generation. kind: `keyed` or `multinomial`; temperature 0 is greedy in both."""
    if temperature == 0:
        return GreedySampler()
    if kind == "multinomial":
        return MultinomialSampler(seed, prompt, temperature, device)
    return KeyedSampler(seed, prompt, temperature)
