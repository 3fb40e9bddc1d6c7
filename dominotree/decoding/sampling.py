"""How the target's next token is drawn from its logits.

`KeyedSampler` draws argmax(logits / T + gumbel(seed, prompt, position)): its noise depends on where the token stands
and on nothing else, so every arm draws the same token from the same distribution. It is exact sampling (the Gumbel-max
trick), and it makes losslessness testable at any temperature. `MultinomialSampler` is plain sampling, for comparison
with harnesses that have no such key.
"""

from __future__ import annotations

import hashlib
from typing import Protocol

import torch
from torch import Tensor

_MASK = 0xFFFFFFFF


class Sampler(Protocol):
    def scores(self, logits: Tensor, positions: list[int]) -> Tensor:
        """logits [n, V] of tokens that will stand at these absolute positions -> what is compared to choose, [n, V]."""

    def sample(self, logits: Tensor, positions: list[int]) -> list[int]:
        """The n tokens."""


class GreedySampler:
    """Temperature 0."""

    def scores(self, logits: Tensor, positions: list[int]) -> Tensor:
        return logits

    def sample(self, logits: Tensor, positions: list[int]) -> list[int]:
        return logits.argmax(-1).tolist()


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
        self.noise: dict[int, Tensor] = {}

    def _row(self, position: int, like: Tensor) -> Tensor:
        if position not in self.noise:
            self.noise[position] = keyed_gumbel(self.seed, self.prompt, position, like.shape[-1], like.device)
        return self.noise[position]

    def scores(self, logits: Tensor, positions: list[int]) -> Tensor:
        # Rounds look ahead, so rows are kept for the next round; those before the first position are over.
        self.noise = {position: row for position, row in self.noise.items() if position >= positions[0]}
        distinct = sorted(set(positions))
        noise = torch.stack([self._row(position, logits) for position in distinct])
        places = torch.tensor([distinct.index(position) for position in positions], device=logits.device)
        return logits.float() / self.temperature + noise[places]

    def sample(self, logits: Tensor, positions: list[int]) -> list[int]:
        return self.scores(logits, positions).argmax(-1).tolist()


class MultinomialSampler:
    """Plain sampling at temperature T > 0 from a seeded generator. One instance serves one generation."""

    def __init__(self, seed: int, prompt: str, temperature: float, device: torch.device) -> None:
        digest = hashlib.sha256(f"{seed}/{prompt}".encode()).digest()
        self.generator = torch.Generator(device).manual_seed(int.from_bytes(digest[:8], "little") >> 1)
        self.temperature = temperature

    def scores(self, logits: Tensor, positions: list[int]) -> Tensor:
        return logits.float() / self.temperature

    def sample(self, logits: Tensor, positions: list[int]) -> list[int]:
        probabilities = self.scores(logits, positions).softmax(-1)
        return torch.multinomial(probabilities, 1, generator=self.generator).squeeze(1).tolist()


def make_sampler(kind: str, seed: int, prompt: str, temperature: float, device: torch.device) -> Sampler:
    """The sampler of one generation. kind: `keyed` or `multinomial`; temperature 0 is greedy in both."""
    if temperature == 0:
        return GreedySampler()
    if kind == "multinomial":
        return MultinomialSampler(seed, prompt, temperature, device)
    return KeyedSampler(seed, prompt, temperature)
