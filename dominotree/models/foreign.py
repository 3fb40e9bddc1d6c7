"""Any other causal language model, through transformers' own forward pass."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from dominotree.models.transformer import KeyValues, TreeLayout


class ForeignLayer(CacheLayerMixin):
    """One layer of our cache, as transformers wants to see it."""

    is_initialized = True

    def __init__(self, store: KeyValues, index: int) -> None:
        self.store, self.index = store, index

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        raise AssertionError("the cache is allocated from the start")

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        return self.store.extend(self.index, key_states, value_states)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.store.length + query_length, 0

    def get_seq_length(self) -> int:
        return self.store.length

    def get_max_length(self) -> int:
        return -1  # not for transformers to watch


class ForeignTransformer:
    """The layers of a model as transformers runs them; one interface with `Transformer` (see `Network`)."""

    def __init__(self, model: Any) -> None:
        self.decoder, self.num_layers = model.base_model, model.config.num_hidden_layers

    def __call__(
        self,
        tokens: Tensor,
        positions: Tensor,
        layout: TreeLayout | None,
        cache: KeyValues | None,
        feature_layers: tuple[int, ...],
    ) -> tuple[Tensor, list[Tensor]]:
        """See `Network`."""
        layers = None if cache is None else Cache(layers=[ForeignLayer(cache, index) for index in range(self.num_layers)])
        output = self.decoder(
            input_ids=tokens,
            position_ids=positions,
            attention_mask=None if layout is None else layout.mask,
            cache=layers,
            use_cache=cache is not None,
            output_hidden_states=bool(feature_layers),
        )
        # hidden_states[0] is the embedding.
        states = [output.last_hidden_state, *(output.hidden_states[layer + 1] for layer in feature_layers)]
        if layout is not None and layout.rows is not None:
            states = [state.flatten(0, 1)[layout.rows].unsqueeze(0) for state in states]
        return states[0], states[1:]
