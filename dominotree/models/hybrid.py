"""Hybrid targets, Qwen3-Next and Qwen3.5, as speculative decoding runs them: Gated DeltaNet layers beside full attention.

A mask tells an attention layer which rows of a tree see each other. A recurrent layer has none: run over a tree as if it were a
chain, a rejected sibling's token would change what all later nodes read (Section 4.5.4). Here a node's state and the window of
its convolution are those of its own path. The weights are those of a model that transformers has loaded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import Qwen3_5ForCausalLM, Qwen3_5MoeForCausalLM, Qwen3NextForCausalLM
from transformers.models.qwen3_5.modeling_qwen3_5 import torch_chunk_gated_delta_rule

from dominotree.kernels import Ancestry, ancestry, convolve_trees, recur_trees
from dominotree.models.transformer import ROPE_TYPES, KeyValues, TreeLayout, attend, pad_rows, rope_factors, rotate, side_by_side

FAMILIES = (Qwen3NextForCausalLM, Qwen3_5ForCausalLM, Qwen3_5MoeForCausalLM)
FULL, LINEAR = "full_attention", "linear_attention"


@dataclass(frozen=True)
class RecurrentShape:
    """Of all recurrent layers of a model: a state is [heads, key_width, value_width], a window [window, channels]."""

    layers: int
    heads: int
    key_width: int
    value_width: int
    window: int
    channels: int

    def bytes(self, size: int) -> int:
        """Of a request's states, in fp32, and windows, in the model's dtype of so many bytes."""
        return self.layers * (4 * self.heads * self.key_width * self.value_width + size * self.window * self.channels)

    def row_bytes(self, size: int) -> int:
        """Of a row's `Change`s, kept until it is known whether the row is."""
        values = self.heads * self.value_width
        keys = (self.channels - values) // 2
        return self.layers * (size * (self.channels + keys) + 4 * (values + self.heads))


def recurrent_shape(config: Any) -> RecurrentShape | None:
    """None of a model without recurrent layers."""
    layers = list(getattr(config, "layer_types", None) or ()).count(LINEAR)
    if not layers:
        return None
    keys, values = config.linear_key_head_dim, config.linear_value_head_dim
    channels = 2 * keys * config.linear_num_key_heads + values * config.linear_num_value_heads
    return RecurrentShape(layers, config.linear_num_value_heads, keys, values, config.linear_conv_kernel_dim - 1, channels)


@dataclass(frozen=True)
class Change:
    """What the rows of a pass bring to one recurrent layer: `absorb_paths` makes of it the state behind any of them.

    inputs [R, n, C] of the convolution and sources [R, n, K] of their windows; keys, updates and decays as in `recur_trees`.
    """

    inputs: Tensor
    sources: Tensor
    keys: Tensor
    updates: Tensor
    decays: Tensor


class Recurrent(Protocol):
    """The recurrent part of a cache as a pass sees it, of R requests; layers are counted among the recurrent ones."""

    def read(self, layer: int) -> tuple[Tensor, Tensor]:
        """Behind each request's context: the last K - 1 inputs of the convolution [R, K - 1, C], the state [R, h, dk, dv]."""

    def write(self, layer: int, window: Tensor, state: Tensor) -> None:
        """Put these in the place of what `read` gives: a prompt's, all of whose rows are kept."""

    def hold(self, layer: int, change: Change) -> None:
        """Keep this until it is known which rows are kept."""


class HybridCache(KeyValues, Protocol):
    """A cache whose `extend` counts layers among those with attention."""

    recurrent: Recurrent


@dataclass(frozen=True)
class Pass:
    """What all layers need to know of a pass. family: who stands above whom; None of prompts, whose rows stand in a row."""

    shape: torch.Size
    rows: Tensor | None
    rope: tuple[Tensor, Tensor]
    mask: Tensor | None
    family: Ancestry | None
    cache: HybridCache | None

    def spread(self, x: Tensor) -> Tensor:
        """[1, T, heads, d] of the rows that count -> [R, n, heads, d], where the others are zero."""
        return x if self.rows is None else pad_rows(x.transpose(1, 2), self.rows, self.shape).transpose(1, 2)

    def gather(self, x: Tensor) -> Tensor:
        """[R, n, ...] -> [1, T, ...], those of the rows that count."""
        return x if self.rows is None else x.flatten(0, 1)[self.rows].unsqueeze(0)


class Norm:
    """Root-mean-square norm whose weight is stored as its difference from one; computed in fp32."""

    def __init__(self, module: Any) -> None:
        self.weight, self.eps = 1 + module.weight.detach().float(), module.eps

    def __call__(self, x: Tensor) -> Tensor:
        return F.rms_norm(x.float(), self.weight.shape, self.weight, self.eps).to(x.dtype)


class Attention:
    """Full attention with norms of q and k, partial rotary embedding, and a gate on what is attended to."""

    def __init__(self, module: Any, index: int) -> None:
        self.index, self.head_dim = index, module.head_dim
        self.projection = side_by_side(module.q_proj, module.k_proj, module.v_proj)
        self.widths = [linear.out_features for linear in (module.q_proj, module.k_proj, module.v_proj)]
        self.q_norm, self.k_norm, self.output = Norm(module.q_norm), Norm(module.k_norm), side_by_side(module.o_proj)

    def __call__(self, x: Tensor, residual: Tensor, during: Pass) -> Tensor:
        gated, keys, values = self.projection(x).split(self.widths, dim=-1)
        queries, gate = gated.unflatten(-1, (-1, 2 * self.head_dim)).chunk(2, dim=-1)
        keys, values = (part.unflatten(-1, (-1, self.head_dim)) for part in (keys, values))
        turned = (self._turn(self.q_norm(queries), during), self._turn(self.k_norm(keys), during), values)
        queries, keys, values = (during.spread(part).transpose(1, 2) for part in turned)
        if during.cache is not None:
            keys, values = during.cache.extend(self.index, keys, values)
        mask = None
        if during.mask is not None:
            mask = during.mask.repeat(1, 1, queries.shape[1] // keys.shape[1], 1)
        attended = during.gather(attend(queries, keys, values, mask))
        return self.output(attended * gate.flatten(2).sigmoid(), residual)

    def _turn(self, x: Tensor, during: Pass) -> Tensor:
        """Rotary embedding of the first of each head's dimensions; x [b, n, heads, d]."""
        width = during.rope[0].shape[-1]
        return torch.cat((rotate(x[..., :width], during.rope), x[..., width:]), dim=-1)


class DeltaNet:
    """Gated DeltaNet: a causal convolution, the gated delta rule, and a gated norm."""

    def __init__(self, module: Any, index: int) -> None:
        self.index, self.norm, self.output = index, module.norm, side_by_side(module.out_proj)
        self.key_width, self.value_width, self.heads = module.head_k_dim, module.head_v_dim, module.num_v_heads
        self.channels, self.parts = module.conv_dim, (module.key_dim, module.key_dim, module.value_dim)
        self.weight = module.conv1d.weight.detach().squeeze(1)  # [C, K]
        self.rate, self.bias = -module.A_log.detach().float().exp(), module.dt_bias.detach()
        self.order = None
        if hasattr(module, "in_proj_qkvz"):
            self.projection, self.order = side_by_side(module.in_proj_qkvz, module.in_proj_ba), _order(module)
        else:
            self.projection = side_by_side(module.in_proj_qkv, module.in_proj_z, module.in_proj_b, module.in_proj_a)

    def __call__(self, x: Tensor, residual: Tensor, during: Pass) -> Tensor:
        projected = self.projection(x)
        if self.order is not None:
            projected = projected[..., self.order]
        inputs, z, b, a = projected.split((self.channels, self.parts[-1], self.heads, self.heads), dim=-1)
        beta, gate = b.sigmoid(), self.rate * F.softplus(a.float() + self.bias)
        inputs, beta, gate = (during.spread(part.unsqueeze(2)).squeeze(2) for part in (inputs, beta, gate))
        mix = self._chain if during.family is None else self._tree
        mixed = during.gather(mix(inputs, beta, gate, during))
        normed = self.norm(mixed.reshape(-1, self.value_width), z.reshape(-1, self.value_width))
        return self.output(normed.view(z.shape), residual)

    def _split(self, convolved: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries and keys [R, n, key heads, dk], values [R, n, heads, dv]."""
        queries, keys, values = convolved.split(self.parts, dim=-1)
        queries, keys = (part.unflatten(-1, (-1, self.key_width)) for part in (queries, keys))
        return queries, keys, values.unflatten(-1, (-1, self.value_width))

    def _tree(self, inputs: Tensor, beta: Tensor, gate: Tensor, during: Pass) -> Tensor:
        recurrent = during.cache.recurrent
        window, state = recurrent.read(self.index)
        convolved = convolve_trees(inputs, window, self.weight, during.family.sources)
        queries, keys, values = self._split(convolved)
        outputs, updates, decays = recur_trees(queries, keys, values, gate, beta, state, during.family.above)
        # Parts of wider tensors, which would stay as long as they do.
        inputs, keys = inputs.contiguous(), keys.contiguous()
        recurrent.hold(self.index, Change(inputs, during.family.sources, keys, updates, decays))
        return outputs

    def _chain(self, inputs: Tensor, beta: Tensor, gate: Tensor, during: Pass) -> Tensor:
        """Of prompts, with nothing before them."""
        stream = F.pad(inputs, (0, 0, self.weight.shape[1] - 1, 0))
        convolved = F.conv1d(stream.mT, self.weight.unsqueeze(1), groups=self.channels).mT
        outputs, state = torch_chunk_gated_delta_rule(
            *self._split(F.silu(convolved)), g=gate, beta=beta, output_final_state=True, use_qk_l2norm_in_kernel=True
        )
        if during.cache is not None:
            during.cache.recurrent.write(self.index, stream[:, inputs.shape[1] :], state)
        return outputs


def _order(module: Any) -> Tensor:
    """Where q, k, v, z, b and a stand in what Qwen3-Next's two projections give side by side: it groups them by key head."""
    first = torch.arange(module.in_proj_qkvz.out_features)
    second = len(first) + torch.arange(module.in_proj_ba.out_features)
    parts = module.fix_query_key_value_ordering(first.view(1, 1, -1), second.view(1, 1, -1))
    return torch.cat([part.flatten() for part in parts]).to(module.in_proj_ba.weight.device)


class Dense:
    """SwiGLU."""

    def __init__(self, module: Any) -> None:
        self.gate_up, self.down = side_by_side(module.gate_proj, module.up_proj), side_by_side(module.down_proj)

    def __call__(self, x: Tensor, residual: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate).mul_(up), residual)


class Experts:
    """A mixture of experts, as transformers runs it."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def __call__(self, x: Tensor, residual: Tensor) -> Tensor:
        return residual + self.module(x)


@dataclass(frozen=True)
class Layer:
    """One layer."""

    input_norm: Norm
    mixer: Attention | DeltaNet
    mlp_norm: Norm
    mlp: Dense | Experts


def why_not(model: Any) -> str | None:
    """What keeps `HybridTransformer` from running this model with recurrent layers; None if nothing does."""
    config = model.config
    if type(model) not in FAMILIES:
        return f"recurrent layers of {type(model).__name__}, of which only those of Qwen3-Next and Qwen3.5 are known here"
    if others := sorted(set(config.layer_types) - {FULL, LINEAR}):
        return f"layers of kind {others[0]}"
    if config.hidden_act != "silu":
        return f"activation {config.hidden_act}"
    if (rope := config.rope_parameters["rope_type"]) not in ROPE_TYPES:
        return f"rotary embedding of type {rope}"
    linears = [module for name, module in model.model.named_modules() if "_proj" in name.rpartition(".")[2]]
    if any(type(linear) is not nn.Linear for linear in linears):
        return "quantised weights"
    return None


class HybridTransformer:
    """The layers of a hybrid model. Raises `ValueError` for any other model (`why_not`)."""

    def __init__(self, model: Any) -> None:
        if reason := why_not(model):
            raise ValueError(reason)
        decoder = model.model
        self.embedding, self.norm, self.rotary = decoder.embed_tokens.weight, Norm(decoder.norm), decoder.rotary_emb
        self.width = model.config.linear_conv_kernel_dim
        self.layers, counts = [], {Attention: 0, DeltaNet: 0}
        for layer in decoder.layers:
            kind, module = (DeltaNet, layer.linear_attn) if hasattr(layer, "linear_attn") else (Attention, layer.self_attn)
            mlp = Dense(layer.mlp) if hasattr(layer.mlp, "gate_proj") else Experts(layer.mlp)
            norms = (Norm(layer.input_layernorm), Norm(layer.post_attention_layernorm))
            self.layers.append(Layer(norms[0], kind(module, counts[kind]), norms[1], mlp))
            counts[kind] += 1

    def __call__(
        self,
        tokens: Tensor,
        positions: Tensor,
        layout: TreeLayout | None,
        cache: HybridCache | None,
        feature_layers: tuple[int, ...],
    ) -> tuple[Tensor, list[Tensor]]:
        """See `Network`. A prompt's rows become context at once; those of other passes when they are committed."""
        if layout is None and cache is not None and cache.length and tokens.numel() > 1:
            raise ValueError("several rows behind a context need a layout")
        if layout is not None and cache is None:
            raise ValueError("a tree needs a context")
        family = None
        if layout is not None:
            family = ancestry(layout.parents, self.width)
        elif cache is not None and cache.length:
            family = ancestry(torch.full_like(tokens, -1), self.width)
        shape, rows, mask = tokens.shape, layout and layout.rows, layout and layout.mask
        if rows is not None:
            tokens, positions = (part.flatten()[rows].unsqueeze(0) for part in (tokens, positions))
        x, features = F.embedding(tokens, self.embedding), {}
        during = Pass(shape, rows, rope_factors(*self.rotary(x, positions)), mask, family, cache)
        for index, layer in enumerate(self.layers):
            x = layer.mixer(layer.input_norm(x), x, during)
            x = layer.mlp(layer.mlp_norm(x), x)
            if index in feature_layers:
                features[index] = x
        hidden = self.norm(x)
        if len(self.layers) - 1 in features:  # as transformers has it: the last of the hidden states is normed
            features[len(self.layers) - 1] = hidden
        return hidden, [features[layer] for layer in feature_layers]
