"""Tiny random targets and corpora, made on the spot."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from dominotree.models.target import Target
from dominotree.training.corpus import Conversation

VOCABULARY = 200
MODELS = {"llama": (LlamaForCausalLM, LlamaConfig), "qwen3": (Qwen3ForCausalLM, Qwen3Config)}


@pytest.fixture(scope="session")
def make_target() -> Callable[..., Target]:
    """Makes random models of hidden size 32 with 4 layers, in fp32."""

    def make(architecture: str = "llama", vocab_size: int = VOCABULARY) -> Target:
        model, config = MODELS[architecture]
        torch.manual_seed(0)
        dimensions = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4, "head_dim": 8}
        heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
        return Target(model(config(vocab_size=vocab_size, max_position_embeddings=128, **dimensions, **heads)), (1, 2))

    return make


@pytest.fixture(params=MODELS)
def target(make_target: Callable[..., Target], request: pytest.FixtureRequest) -> Target:
    return make_target(request.param)


@pytest.fixture
def conversations() -> list[Conversation]:
    """Twelve conversations of random tokens, of different lengths."""
    generator = torch.Generator().manual_seed(1)
    rows = [torch.randint(VOCABULARY, (12 + i,), generator=generator).tolist() for i in range(12)]
    return [Conversation("math", 0.0, tuple(row[:4]), tuple(row[4:])) for row in rows]
