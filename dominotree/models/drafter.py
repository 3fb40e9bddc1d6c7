"""The drafter: DFlash's block-diffusion backbone, and Domino's GRU correction head on top of it.

Parameter names are those of the released checkpoints, so a state dict is a checkpoint. The embedding and the LM head
are the target's and are handed in. Attention over the context is handed in as well (`Attend`): decoding reads a
key/value cache, training a mask over anchors, and the network is the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dominotree.models.projection import Projection, freeze_linears

DrafterKind = Literal["dflash", "domino"]

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, q [b, heads, n, d], k [b, kv_heads, n, d], v [b, kv_heads, n, d]) -> [b, heads, n, d].

k and v are the block's own; adding the context's is the callable's part."""


@dataclass(frozen=True)
class Sight:
    """What a slot sees in a layer.

    window: keys less than so many positions away, of the block too; None: all. causal: of the block only the slots up to its own.
    """

    window: int | None = None
    causal: bool = False


@dataclass(frozen=True)
class DrafterConfig:
    """What a checkpoint's config.json says, checked and named once (see `checkpoint.read_config`).

    sights: one a layer; empty where every layer sees its whole context and block.
    """

    kind: DrafterKind
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope_theta: float
    block_size: int
    mask_token_id: int
    target_layer_ids: tuple[int, ...]
    num_target_layers: int
    shift_label: bool
    pure_draft_prefix_len: int = 0
    gru_hidden_dim: int = 0
    emb_dim: int = 0
    sights: tuple[Sight, ...] = ()

    @property
    def num_proposals(self) -> int:
        """Draft depths a block proposes: slot i predicts the token after it if labels are shifted, else slot 0 is dropped."""
        return self.block_size if self.shift_label else self.block_size - 1

    def sight(self, layer: int) -> Sight:
        return self.sights[layer] if self.sights else Sight()


def rotary(positions: Tensor, head_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """Cosines and sines [..., n, head_dim] of rotary embedding at absolute `positions` [..., n] (fp32)."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32, device=positions.device) / head_dim
    angles = positions.float().unsqueeze(-1) * theta**-exponents
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos_sin: tuple[Tensor, Tensor]) -> Tensor:
    """Apply rotary embedding to `x` [b, heads, n, d] with cosines and sines [b or 1, n, d]."""
    cos, sin = (t.unsqueeze(1).to(x.dtype) for t in cos_sin)
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class RMSNorm(nn.Module):
    """Root-mean-square norm in fp32, as in Qwen3."""

    def __init__(self, dim: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        x32 = x.float()
        normed = x32 * torch.rsqrt(x32.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * normed.to(x.dtype)


class Attention(nn.Module):
    """Projections with per-head q and k norms; who attends to what is the caller's `Attend`."""

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        hidden, queries = config.hidden_size, config.num_attention_heads * config.head_dim
        keys = config.num_key_value_heads * config.head_dim
        self.q_proj = nn.Linear(hidden, queries, bias=False)
        self.k_proj = nn.Linear(hidden, keys, bias=False)
        self.v_proj = nn.Linear(hidden, keys, bias=False)
        self.o_proj = nn.Linear(queries, hidden, bias=False)
        self.q_norm = RMSNorm(config.head_dim, config.rms_norm_eps)
        self.k_norm = RMSNorm(config.head_dim, config.rms_norm_eps)

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.head_dim))

    def queries(self, x: Tensor, cos_sin: tuple[Tensor, Tensor]) -> Tensor:
        """[b, n, H] -> rotated queries [b, heads, n, d]."""
        return rotate(self.q_norm(self._heads(self.q_proj(x))).transpose(1, 2), cos_sin)

    def keys_values(self, x: Tensor, cos_sin: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """[b, n, H] -> rotated keys and values, each [b, kv_heads, n, d]."""
        keys = rotate(self.k_norm(self._heads(self.k_proj(x))).transpose(1, 2), cos_sin)
        return keys, self._heads(self.v_proj(x)).transpose(1, 2)


class MLP(nn.Module):
    """SwiGLU."""

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """One pre-norm transformer layer over the block."""

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        self.self_attn = Attention(config)
        self.mlp = MLP(config)
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, index: int, x: Tensor, cos_sin: tuple[Tensor, Tensor], attend: Attend) -> Tensor:
        normed = self.input_layernorm(x)
        keys, values = self.self_attn.keys_values(normed, cos_sin)
        attended = attend(index, self.self_attn.queries(normed, cos_sin), keys, values)
        x = x + self.self_attn.o_proj(attended.transpose(1, 2).flatten(2))
        return x + self.mlp(self.post_attention_layernorm(x))


class DFlashDrafter(nn.Module):
    """The block-diffusion backbone (paper Section 2.2): one parallel pass drafts a whole block."""

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        self.config = config
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.fc = nn.Linear(len(config.target_layer_ids) * config.hidden_size, config.hidden_size, bias=False)
        self.hidden_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def freeze(self) -> Self:
        """Lay the backbone's weights out for decoding; it can't be trained or saved any more."""
        freeze_linears(self.layers)
        self.fc = Projection(self.fc.weight)
        return self

    def _rotary(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        return rotary(positions, self.config.head_dim, self.config.rope_theta)

    def context_keys_values(self, features: Tensor, positions: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Keys and values of context tokens, a pair a layer, each [b, kv_heads, n, d].

        features: [b, n, L_ctx * H], the target's hidden states after layers `target_layer_ids`, side by side.
        positions: [b or 1, n], absolute. The context skips the layers' input norm.
        """
        context = self.hidden_norm(self.fc(features))
        cos_sin = self._rotary(positions)
        return [layer.self_attn.keys_values(context, cos_sin) for layer in self.layers]

    def forward(self, block: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """Draft hidden states z [b, n, H] of the slots.

        block: [b, n, H], embeddings of [root, mask, ..., mask]. positions: [b or 1, n], absolute.
        """
        cos_sin = self._rotary(positions)
        for index, layer in enumerate(self.layers):
            block = layer(index, block, cos_sin, attend)
        return self.norm(block)


class DominoDrafter(DFlashDrafter):
    """The backbone with Domino's path-dependent correction head (paper Section 2.3)."""

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__(config)
        self.prefix_gru = nn.GRU(config.hidden_size, config.gru_hidden_dim, bias=False, batch_first=True)
        self.embed_proj = nn.Sequential(
            nn.Linear(config.hidden_size + config.gru_hidden_dim, config.emb_dim, bias=False),
            nn.SiLU(),
            nn.Linear(config.emb_dim, config.vocab_size, bias=False),
        )

    def gru_step(self, inputs: Tensor, states: Tensor) -> Tensor:
        """One step of n paths, [n, G] -> [n, G], with W_ih E(v) [n, 3G] known; gates in the order reset, update, new.

        Differentiable, for training; decoding has `kernels.gru_step`.
        """
        hidden = F.linear(states, self.prefix_gru.weight_hh_l0)
        input_r, input_z, input_n = inputs.chunk(3, dim=-1)
        hidden_r, hidden_z, hidden_n = hidden.chunk(3, dim=-1)
        reset, update = torch.sigmoid(input_r + hidden_r), torch.sigmoid(input_z + hidden_z)
        new = torch.tanh(input_n + reset * hidden_n)
        return new + update * (states - new)

    def gru_states(self, embeddings: Tensor) -> Tensor:
        """States after each token of a path: embeddings [b, n, H] -> [b, n, G], from the zero state."""
        inputs = F.linear(embeddings, self.prefix_gru.weight_ih_l0)
        state = inputs.new_zeros(inputs.shape[0], self.config.gru_hidden_dim)
        states = []
        for step in inputs.unbind(1):
            state = self.gru_step(step, state)
            states.append(state)
        return torch.stack(states, dim=1)

    def bottleneck(self, z: Tensor, states: Tensor) -> Tensor:
        """SiLU(W1 [z ; s]) [..., E], which W2 (or its candidate rows) turns into the correction."""
        return self.embed_proj[1](self.embed_proj[0](torch.cat((z, states), dim=-1)))

    @property
    def correction_rows(self) -> Tensor:
        """W2 [V, E]."""
        return self.embed_proj[2].weight


DRAFTERS: dict[DrafterKind, type[DFlashDrafter]] = {"dflash": DFlashDrafter, "domino": DominoDrafter}
