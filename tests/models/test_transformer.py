"""Our forward pass against transformers' own, on tiny random models: logits, features and the cache."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from dominotree.decoding.cache import TargetCache
from dominotree.errors import UserError
from dominotree.models.foreign import ForeignTransformer
from dominotree.models.projection import Projection, freeze_linears
from dominotree.models.target import Target
from dominotree.models.transformer import Transformer, TreeLayout, why_not
from tests.tiny import LAYERS, SHAPE, VOCAB

LLAMA3 = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}
VARIANTS: dict[str, tuple[type, type, dict[str, Any]]] = {
    "llama": (LlamaForCausalLM, LlamaConfig, {}),
    "llama-tied": (LlamaForCausalLM, LlamaConfig, {"tie_word_embeddings": True}),
    "llama-biases": (LlamaForCausalLM, LlamaConfig, {"attention_bias": True, "mlp_bias": True}),
    "llama-rope3": (LlamaForCausalLM, LlamaConfig, {"rope_parameters": LLAMA3 | {"original_max_position_embeddings": 32}}),
    "llama-no-groups": (LlamaForCausalLM, LlamaConfig, {"num_key_value_heads": 4}),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config, {}),
    "qwen3-tied": (Qwen3ForCausalLM, Qwen3Config, {"tie_word_embeddings": True}),
    "qwen3-biases": (Qwen3ForCausalLM, Qwen3Config, {"attention_bias": True}),
    "qwen3-yarn": (Qwen3ForCausalLM, Qwen3Config, {"rope_parameters": YARN | {"original_max_position_embeddings": 64}}),
}
CONTEXT, BLOCK = 7, 6


def random_model(model: type, config: type, changes: dict[str, Any], dtype: torch.dtype = torch.float32) -> Any:
    """Every parameter random, norms and biases too."""
    torch.manual_seed(0)
    made = model(config(**(SHAPE | changes)))
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            parameter.normal_(1.0 if "norm" in name or "ln_" in name else 0.0, 0.2)
    return made.to(dtype).eval()


def tree_pass(random: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens, positions and mask of a block behind the context whose rows see some of the earlier ones, and themselves."""
    tokens = torch.randint(0, VOCAB, (1, BLOCK), generator=random)
    seen = torch.rand(BLOCK, BLOCK, generator=random) < 0.5
    seen = torch.cat((torch.ones(BLOCK, CONTEXT, dtype=torch.bool), seen.tril() | torch.eye(BLOCK, dtype=torch.bool)), dim=1)
    positions = CONTEXT + torch.randint(0, 4, (1, BLOCK), generator=random).sort().values
    return tokens, positions, torch.zeros(seen.shape).masked_fill_(~seen, -float("inf"))[None, None]


def passes(target: Target, network: Any) -> list[tuple[Tensor, list[Tensor], Tensor]]:
    """A prefill, a tree behind it, one token behind both: hidden states, features of all layers, the cache so far."""
    random, cache, results = torch.Generator().manual_seed(1), TargetCache(target, CONTEXT + BLOCK + 1), []
    cache.data.fill_(float("nan"))
    prompt = torch.randint(0, VOCAB, (1, CONTEXT), generator=random)
    tokens, positions, mask = tree_pass(random)
    for arguments in (
        (prompt, torch.arange(CONTEXT)[None], None),
        (tokens, positions, TreeLayout(mask.to(target.dtype), torch.zeros_like(tokens))),
        (prompt[:, :1], torch.tensor([[CONTEXT + 3]]), None),
    ):
        hidden, features = network(*arguments, cache, tuple(range(LAYERS)))
        cache.commit([arguments[0].shape[1]])
        results.append((target.logits(hidden), features, cache.data[..., : cache.length, :].clone()))
    return results


@torch.inference_mode()
@pytest.mark.parametrize("name", VARIANTS)
def test_passes_equal_those_of_transformers(name: str) -> None:
    model = random_model(*VARIANTS[name])
    target = Target(model)
    assert isinstance(target.network, Transformer)
    for got, expected in zip(passes(target, target.network), passes(target, ForeignTransformer(model)), strict=True):
        torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)


@torch.inference_mode()
@pytest.mark.parametrize("name", ["llama-biases", "qwen3-tied"])
def test_where_weights_are_not_packed_the_model_keeps_one_copy(name: str) -> None:
    """In double precision there is no packed layout, so that the plain one, a GPU's, is tested on a CPU."""
    model = random_model(*VARIANTS[name], torch.float64)
    expected = model(torch.arange(9)[None]).logits
    target = Target(model)
    attention = model.model.layers[0].self_attn
    joined = target.network.layers[0].qkv.weight
    assert attention.v_proj.weight.untyped_storage().data_ptr() == joined.untyped_storage().data_ptr()
    assert torch.equal(model(torch.arange(9)[None]).logits, expected), "transformers sees the same weights as before"
    hidden = target.forward(torch.arange(9)[None], torch.arange(9)[None]).hidden
    torch.testing.assert_close(target.logits(hidden), expected, atol=1e-4, rtol=1e-4)  # transformers norms in fp32


@torch.inference_mode()
def test_a_batch_without_a_cache() -> None:
    target = Target(random_model(*VARIANTS["qwen3"]), (0, LAYERS - 1))
    tokens, positions = torch.randint(0, VOCAB, (3, 5)), torch.arange(5).expand(3, -1)
    together = target.forward(tokens, positions)
    for request in range(3):
        alone = target.forward(tokens[request, None], positions[:1])
        torch.testing.assert_close(together.hidden[request], alone.hidden[0], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(together.features[request], alone.features[0], atol=1e-5, rtol=1e-5)


def test_several_rows_behind_a_context_need_a_layout() -> None:
    target = Target(random_model(*VARIANTS["llama"]))
    cache = TargetCache(target, 12)
    cache.start(0, 3)
    with pytest.raises(ValueError, match="layout"):
        target.forward(torch.zeros(1, 2, dtype=torch.int64), torch.zeros(1, 2, dtype=torch.int64), cache=cache)


FOREIGN = {
    "Mistral": (MistralForCausalLM, MistralConfig, {"sliding_window": None}),
    "GPT2": (GPT2LMHeadModel, GPT2Config, {"num_key_value_heads": 4, "bos_token_id": 0, "eos_token_id": 1}),
    "activation": (LlamaForCausalLM, LlamaConfig, {"hidden_act": "gelu"}),
    "dynamic": (LlamaForCausalLM, LlamaConfig, {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}),
}


@torch.inference_mode()
@pytest.mark.parametrize("name", FOREIGN)
def test_any_other_model_runs_through_transformers_and_says_so(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    model = random_model(*FOREIGN[name])
    assert name in why_not(model)
    with pytest.raises(ValueError, match=name):
        Transformer(model)
    target = Target(model)
    assert name in capsys.readouterr().err
    tokens = torch.arange(3, 11)[None]
    cache, positions = TargetCache(target, 8), torch.arange(8)[None]
    target.forward(tokens[:, :6], positions[:, :6], cache=cache)
    cache.start(0, 6)
    mask = torch.zeros(1, 1, 2, 8).masked_fill_(torch.ones(2, 8).triu(7).bool(), -float("inf"))
    logits = target.logits(
        target.forward(tokens[:, 6:], positions[:, 6:], TreeLayout(mask, torch.tensor([[-1, 0]])), cache).hidden
    )
    torch.testing.assert_close(logits, model(tokens).logits[:, 6:], atol=1e-4, rtol=1e-4)


def test_sliding_windows_are_refused() -> None:
    """They would be transformers' own masks, whose place the tree's takes."""
    windows = {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 2}
    with pytest.raises(UserError, match="sliding"):
        Target(random_model(Qwen3ForCausalLM, Qwen3Config, windows))
    with pytest.raises(UserError, match="sliding"):
        Target(random_model(MistralForCausalLM, MistralConfig, {"sliding_window": 4}))


@pytest.mark.parametrize("rows", [1, 2, 33])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_projection_is_the_linear_layer(dtype: torch.dtype, bias: bool, rows: int) -> None:
    linear = torch.nn.Linear(40, 24, bias=bias, dtype=dtype).requires_grad_(False)
    x, residual = torch.randn(2, rows, 40, dtype=dtype), torch.randn(2, rows, 24, dtype=dtype)
    projection = Projection(linear.weight, linear.bias)
    torch.testing.assert_close(projection(x), linear(x))
    tolerance = {"atol": 2e-2, "rtol": 2e-2} if dtype == torch.bfloat16 else {}  # the sum is rounded once, not twice
    torch.testing.assert_close(projection(x, residual), residual + linear(x), **tolerance)


def test_every_linear_layer_below_is_frozen() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Sequential(torch.nn.SiLU(), torch.nn.Linear(8, 4)))
    x = torch.randn(3, 8)
    expected = module(x)
    freeze_linears(module)
    assert not [layer for layer in module.modules() if type(layer) is torch.nn.Linear]
    torch.testing.assert_close(module(x), expected)
