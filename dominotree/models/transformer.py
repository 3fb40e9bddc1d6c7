"""Llama and Qwen3 as speculative decoding runs them: few rows, given positions and mask, a preallocated cache.

The weights are those of a model that transformers has loaded. What differs is what a pass does not do: no argument is parsed,
no mask is made or copied, no weight is laid out anew, q, k and v are one product, gate and up another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import LlamaForCausalLM, Qwen3ForCausalLM

from dominotree.models.projection import Projection

ROPE_TYPES = ("default", "linear", "llama3", "yarn")
"""Those that depend on positions alone, not on how long the text has become."""


class KeyValues(Protocol):
    """A cache as a pass sees it, of R requests."""

    length: int
    """Of the longest context."""

    def extend(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write [R, kv_heads, n, d] behind each request's context; all up to there, [R, kv_heads, length + n, d]."""


@dataclass(frozen=True)
class TreeLayout:
    """How the rows of a pass, n of each of R requests, see each other and the cache.

    mask: additive [R, 1, n, keys]. parents [R, n]: each row's parent among the request's rows, -1 for the root, which
    continues the context. rows [T]: places in R * n of the rows that count, None if all do; hidden states are of these alone.
    """

    mask: Tensor
    parents: Tensor
    rows: Tensor | None = None


class Network(Protocol):
    """A target's layers."""

    def __call__(
        self,
        tokens: Tensor,
        positions: Tensor,
        layout: TreeLayout | None,
        cache: KeyValues | None,
        feature_layers: tuple[int, ...],
    ) -> tuple[Tensor, list[Tensor]]:
        """The last hidden states, normed, and `hidden_states[layer + 1]` of each feature layer, all [R, n, H].

        tokens, positions: [R, n]. layout: None for causal, with nothing in the cache, or one row of one request. With
        `layout.rows` the states are [1, T, H].
        """


def why_not(model: Any) -> str | None:
    """What keeps `Transformer` from running this model; None if nothing does."""
    config = model.config
    if type(model) not in (LlamaForCausalLM, Qwen3ForCausalLM):
        return f"{type(model).__name__} is neither Llama nor Qwen3"
    if config.hidden_act != "silu":
        return f"its activation is {config.hidden_act}"
    rope = config.rope_parameters["rope_type"]
    if rope not in ROPE_TYPES:
        return f"its rotary embedding is of type {rope}"
    linears = [module for name, module in model.model.named_modules() if name.endswith("_proj")]
    if any(type(linear) is not nn.Linear for linear in linears):
        return "its weights are quantised"
    return None


@dataclass(frozen=True)
class Layer:
    """One layer's weights. head_norms [heads + kv_heads, d]: of q and k, None in a Llama."""

    input_norm: Tensor
    qkv: Projection
    head_norms: Tensor | None
    output: Projection
    mlp_norm: Tensor
    gate_up: Projection
    down: Projection


class Transformer:
    """The layers of a Llama or Qwen3. Raises `ValueError` for any other model (`why_not`)."""

    def __init__(self, model: Any) -> None:
        if reason := why_not(model):
            raise ValueError(reason)
        decoder, config = model.model, model.config
        self.embedding, self.norm, self.eps = decoder.embed_tokens.weight, decoder.norm.weight, config.rms_norm_eps
        self.rotary = decoder.rotary_emb
        self.head_dim = decoder.layers[0].self_attn.head_dim
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.layers = [self._layer(layer) for layer in decoder.layers]

    def _layer(self, layer: Any) -> Layer:
        attention, mlp = layer.self_attn, layer.mlp
        norms = None
        if hasattr(attention, "q_norm"):
            counted = ((attention.q_norm, self.heads), (attention.k_norm, self.kv_heads))
            norms = torch.cat([norm.weight.detach().expand(count, -1) for norm, count in counted])
        return Layer(
            layer.input_layernorm.weight.detach(),
            side_by_side(attention.q_proj, attention.k_proj, attention.v_proj),
            norms,
            side_by_side(attention.o_proj),
            layer.post_attention_layernorm.weight.detach(),
            side_by_side(mlp.gate_proj, mlp.up_proj),
            side_by_side(mlp.down_proj),
        )

    def __call__(
        self,
        tokens: Tensor,
        positions: Tensor,
        layout: TreeLayout | None,
        cache: KeyValues | None,
        feature_layers: tuple[int, ...],
    ) -> tuple[Tensor, list[Tensor]]:
        """See `Network`."""
        if layout is None and cache is not None and cache.length and tokens.numel() > 1:
            raise ValueError("several rows behind a context need a layout")
        shape, rows, mask = tokens.shape, None if layout is None else layout.rows, None
        if rows is not None:
            tokens, positions = (part.flatten()[rows].unsqueeze(0) for part in (tokens, positions))
        x, features = F.embedding(tokens, self.embedding), {}
        rope = rope_factors(*self.rotary(x, positions))
        if layout is not None:  # query heads that share keys become rows of one head, so that keys need no copies
            mask = layout.mask.repeat(1, 1, self.heads // self.kv_heads, 1)
        for index, layer in enumerate(self.layers):
            heads = self._heads(layer, x, rope)
            queries, keys, values = heads if rows is None else (pad_rows(part, rows, shape) for part in heads)
            if cache is not None:
                keys, values = cache.extend(index, keys, values)
            attended = attend(queries, keys, values, mask)
            x = layer.output(attended if rows is None else attended.flatten(0, 1)[rows].unsqueeze(0), x)
            gate, up = layer.gate_up(self._norm(x, layer.mlp_norm)).chunk(2, dim=-1)
            x = layer.down(F.silu(gate).mul_(up), x)
            if index in feature_layers:
                features[index] = x
        hidden = self._norm(x, self.norm)
        if len(self.layers) - 1 in features:  # as transformers has it: the last of the hidden states is normed
            features[len(self.layers) - 1] = hidden
        return hidden, [features[layer] for layer in feature_layers]

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x, weight.shape, weight, self.eps)

    def _heads(self, layer: Layer, x: Tensor, rope: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """[b, n, H] -> queries [b, heads, n, d], keys and values [b, kv_heads, n, d]; queries and keys are rotated."""
        heads = layer.qkv(self._norm(x, layer.input_norm)).unflatten(-1, (-1, self.head_dim))
        turned, values = heads.split((self.heads + self.kv_heads, self.kv_heads), dim=2)
        if layer.head_norms is not None:
            turned = F.rms_norm(turned, (self.head_dim,), None, self.eps) * layer.head_norms
        queries, keys = rotate(turned, rope).transpose(1, 2).split((self.heads, self.kv_heads), dim=1)
        return queries, keys, values.transpose(1, 2)


def side_by_side(*linears: nn.Linear) -> Projection:
    """One product for linear layers that read the same; where it has to keep their weights, theirs become parts of it."""
    biases = [linear.bias for linear in linears if linear.bias is not None]
    weights = [linear.weight.detach() for linear in linears]
    joined = Projection(torch.cat(weights) if len(weights) > 1 else weights[0], torch.cat(biases) if biases else None)
    if joined.weight is not None:
        for linear, part in zip(linears, joined.weight.split([len(weight) for weight in weights]), strict=True):
            linear.weight.data = part
    return joined


def rope_factors(cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Factors [b, n, 1, d] of x and of its halves exchanged, from transformers' cosines and sines [b, n, d]."""
    first, second = sin.chunk(2, dim=-1)
    return cos.unsqueeze(2), torch.cat((-first, second), dim=-1).unsqueeze(2)


def rotate(x: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary embedding of x [b, n, heads, d]."""
    first, second = x.chunk(2, dim=-1)
    return (x * rope[0]).addcmul_(torch.cat((second, first), dim=-1), rope[1])


def pad_rows(heads: Tensor, rows: Tensor, shape: torch.Size) -> Tensor:
    """[1, heads, T, d] of the rows that count -> [R, heads, n, d], where the others are zero."""
    places = heads.new_zeros(shape.numel(), heads.shape[1], heads.shape[3])
    return places.index_copy_(0, rows, heads[0].transpose(0, 1)).unflatten(0, shape).transpose(1, 2)


def attend(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Attention of grouped heads, [b, n, heads * d]. mask: None for causal, or [b, 1, group * n, keys]."""
    requests, heads, count, dim = queries.shape
    if mask is None:
        attended = F.scaled_dot_product_attention(queries, keys, values, is_causal=count > 1, enable_gqa=True)
    else:
        rows = queries.reshape(requests, keys.shape[1], -1, dim)
        attended = F.scaled_dot_product_attention(rows, keys, values, attn_mask=mask).view(requests, heads, count, dim)
    return attended.transpose(1, 2).flatten(2)
