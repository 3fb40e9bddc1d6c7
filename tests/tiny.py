"""Tiny random models in the released layouts, for tests that need real forward passes."""

from __future__ import annotations

import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Qwen3_5ForCausalLM,
    Qwen3_5MoeForCausalLM,
    Qwen3_5MoeTextConfig,
    Qwen3_5TextConfig,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3NextConfig,
    Qwen3NextForCausalLM,
)

from dominotree.arms import MethodSettings
from dominotree.drafting.budget import CostModel
from dominotree.drafting.scorers import InputTable
from dominotree.methods import METHODS, Parts
from dominotree.models.drafter import DRAFTERS, DFlashDrafter, DrafterConfig
from dominotree.models.target import Target

VOCAB = 40
LAYERS = 5
FEATURE_LAYERS = (1, 2)
SHAPE = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "initializer_range": 0.3,
}
RECURRENT = {
    "initializer_range": 0.15,  # with 0.3 rounding grows to a thousandth on its way through the layers
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 6,
    "layer_types": ["linear_attention", "linear_attention", "full_attention", "linear_attention", "full_attention"],
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5},
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16}
HYBRIDS = {
    "qwen3_5": (Qwen3_5ForCausalLM, Qwen3_5TextConfig, {}),
    "qwen3_next": (Qwen3NextForCausalLM, Qwen3NextConfig, {"num_experts": 0}),
    "qwen3_next_moe": (Qwen3NextForCausalLM, Qwen3NextConfig, EXPERTS),
    "qwen3_5_moe": (Qwen3_5MoeForCausalLM, Qwen3_5MoeTextConfig, EXPERTS),
}


def tiny_hybrid(
    seed: int = 0, family: str = "qwen3_5", feature_layers: tuple[int, ...] = FEATURE_LAYERS, **changes: object
) -> Target:
    """A random hybrid in fp32 whose states last from a few tokens to some dozens."""
    torch.manual_seed(seed)
    model, config, own = HYBRIDS[family]
    made = model(config(**(SHAPE | RECURRENT | own | changes)))
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if name.endswith("A_log"):
                parameter.uniform_(-4, -1)
            elif "norm" in name:
                parameter.add_(0.2 * torch.randn_like(parameter))
    return Target(made, feature_layers)


def tiny_target(seed: int = 0, family: str = "qwen3", feature_layers: tuple[int, ...] = FEATURE_LAYERS) -> Target:
    """A random Qwen3 or Llama in fp32, its weights large enough that logits differ clearly."""
    torch.manual_seed(seed)
    if family == "llama":
        return Target(LlamaForCausalLM(LlamaConfig(**SHAPE, tie_word_embeddings=True)), feature_layers)
    return Target(Qwen3ForCausalLM(Qwen3Config(**SHAPE, tie_word_embeddings=False)), feature_layers)


def tiny_config(kind: str, **changes: object) -> DrafterConfig:
    """A drafter's configuration that fits `tiny_target`."""
    head = {"pure_draft_prefix_len": 1, "gru_hidden_dim": 12, "emb_dim": 6} if kind == "domino" else {}
    fields = {
        "kind": kind,
        "hidden_size": 32,
        "intermediate_size": 40,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "vocab_size": VOCAB,
        "max_position_embeddings": 256,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "block_size": 6,
        "mask_token_id": VOCAB - 1,
        "target_layer_ids": FEATURE_LAYERS,
        "num_target_layers": LAYERS,
        "shift_label": kind == "domino",
        **head,
    }
    return DrafterConfig(**(fields | changes))


def tiny_drafter(kind: str, seed: int = 0, **changes: object) -> DFlashDrafter:
    """A random drafter in fp32, with a correction strong enough to matter."""
    torch.manual_seed(1000 + seed)
    drafter = DRAFTERS[kind](tiny_config(kind, **changes)).eval().requires_grad_(False)
    for parameter in drafter.parameters():
        if parameter.dim() > 1:
            parameter.normal_(0, 0.3)
    return drafter


def tiny_parts(method: str, target: Target, settings: MethodSettings, seed: int = 0, cost: CostModel | None = None) -> Parts:
    """What `method` builds from, on a random drafter."""
    kind = METHODS[method].drafter
    drafter = tiny_drafter(kind, seed)
    inputs = InputTable(drafter, target.embedding) if kind == "domino" else None
    return Parts(drafter, settings, inputs, cost=cost)
