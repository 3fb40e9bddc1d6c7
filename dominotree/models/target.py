"""The target: a causal language model from transformers, with what speculative decoding asks of it."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from dominotree.errors import UserError
from dominotree.hub import resolve
from dominotree.models.drafter import DrafterConfig
from dominotree.models.foreign import ForeignTransformer
from dominotree.models.gguf import DEMO, ensure_demo_target
from dominotree.models.hybrid import FULL, LINEAR, HybridTransformer, RecurrentShape, recurrent_shape
from dominotree.models.hybrid import why_not as why_not_hybrid
from dominotree.models.projection import Projection
from dominotree.models.transformer import KeyValues, Network, Transformer, TreeLayout, why_not
from dominotree.progress import report

ATTENTION = "sdpa"
"""transformers' attention implementation, which takes the tree's mask as it is."""

transformers_logging.disable_progress_bar()


@dataclass(frozen=True)
class TargetOutput:
    """What one pass gives. hidden [R, n, H], after the final norm; features [R, n, L_ctx * H]. [1, T, .] of `TreeLayout.rows`."""

    hidden: Tensor
    features: Tensor


class Target:
    """The frozen target model: a forward pass over given positions, mask and cache; the embedding; the LM head."""

    def __init__(self, model: Any, feature_layers: tuple[int, ...] = ()) -> None:
        self.model = model.requires_grad_(False).eval()
        self.feature_layers = feature_layers
        self.device: torch.device = model.device
        self.dtype: torch.dtype = model.dtype
        self.network = _network(model)
        head = model.get_output_embeddings()
        self.logits: Callable[[Tensor], Tensor] = Projection(head.weight, head.bias)  # [n, H] -> [n, V]

    def reading(self, feature_layers: tuple[int, ...]) -> Target:
        """The same target, whose passes give the features of these layers."""
        other = copy(self)
        other.feature_layers = feature_layers
        return other

    @property
    def config(self) -> Any:
        return self.model.config

    @property
    def embedding(self) -> Tensor:
        """Token embeddings [V, H]."""
        return self.model.get_input_embeddings().weight

    @property
    def lm_head(self) -> Tensor:
        """Output rows [V, H]."""
        return self.model.get_output_embeddings().weight

    @property
    def cache_shape(self) -> tuple[int, int, int]:
        """Layers with attention, key/value heads and their width."""
        config = self.config
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        kinds = getattr(config, "layer_types", None)
        layers = kinds.count(FULL) if kinds else config.num_hidden_layers
        return layers, getattr(config, "num_key_value_heads", config.num_attention_heads), width

    @property
    def recurrent_shape(self) -> RecurrentShape | None:
        """Of the layers with a state in place of keys and values; None if there are none."""
        return recurrent_shape(self.config)

    def forward(
        self, tokens: Tensor, positions: Tensor, layout: TreeLayout | None = None, cache: KeyValues | None = None
    ) -> TargetOutput:
        """One pass. tokens, positions: [R, n]. layout: of trees, or None for causal (see `Network`)."""
        hidden, features = self.network(tokens, positions, layout, cache, self.feature_layers)
        return TargetOutput(hidden, torch.cat(features, dim=-1) if features else hidden[..., :0])


def _network(model: Any) -> Network:
    """Our own forward pass, or transformers' for a model that it is not made for; `UserError` where neither sees a tree right."""
    config = model.config
    kinds = set(getattr(config, "layer_types", None) or [FULL])
    if LINEAR in kinds:
        if reason := why_not_hybrid(model):
            raise UserError(f"{type(model).__name__}: {reason}")
        return HybridTransformer(model)
    if kinds - {FULL} or (not hasattr(config, "layer_types") and getattr(config, "sliding_window", None)):
        raise UserError(f"{type(model).__name__}: layers with sliding windows or of other kinds cannot verify a tree")
    if reason := why_not(model):
        report(f"target: {reason}; it runs through transformers' own forward pass, which is slower")
        return ForeignTransformer(model)
    return Transformer(model)


def resolve_target(name: str) -> str:
    """A model name as transformers takes it: the demo's name becomes its converted folder, a path must exist."""
    if name == DEMO:
        return str(ensure_demo_target())
    path = Path(name).expanduser()
    if path.is_dir():
        return str(path)
    if name.startswith((".", "/", "~")):
        raise UserError(f"model.target={name}: no such folder")
    return name


def target_commit(name: str, revision: str | None = None) -> str | None:
    """The commit that a target's revision stands for on the Hub; None of the demo target and of a folder."""
    return None if Path(resolve_target(name)).is_dir() else resolve(name, revision or "main")


def load_target(name: str, dtype: torch.dtype, device: torch.device, revision: str | None = None) -> Target:
    """Load a target by demo name, folder or Hub name. Safetensors only, no remote code."""
    source = resolve_target(name)
    try:
        model = AutoModelForCausalLM.from_pretrained(
            source,
            dtype=dtype,
            revision=revision,
            use_safetensors=True,
            trust_remote_code=False,
            attn_implementation=ATTENTION,
        )
    except (OSError, ValueError) as error:
        raise UserError(f"model.target={name}: cannot be loaded ({str(error).splitlines()[0]})") from None
    if not Path(source).is_dir():
        resolve(source, revision or "main")  # which verifies what is in the cache by now, the weights too
    return Target(model.to(device))


def load_tokenizer(name: str, revision: str | None = None) -> Any:
    """The target's tokenizer."""
    try:
        return AutoTokenizer.from_pretrained(resolve_target(name), revision=revision, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise UserError(f"model.target={name}: no tokenizer to be had ({str(error).splitlines()[0]})") from None


def check_pair(target: Any, drafter: DrafterConfig, name: str) -> None:
    """Raise `UserError` unless the drafter `name` was made for a target of this configuration."""
    pairs = (("hidden_size", "hidden_size"), ("vocab_size", "vocab_size"), ("num_target_layers", "num_hidden_layers"))
    for ours, theirs in pairs:
        made_for, found = getattr(drafter, ours), getattr(target, theirs)
        if made_for != found:
            raise UserError(f"{name}: the drafter was made for a target with {theirs} {made_for}, this target has {found}")


def target_config(name: str, revision: str | None = None) -> Any:
    """The target's configuration alone, without its weights; of a model that reads more than text, its text's."""
    try:
        config = AutoConfig.from_pretrained(resolve_target(name), revision=revision, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise UserError(f"model.target={name}: cannot be loaded ({str(error).splitlines()[0]})") from None
    return config.get_text_config()
