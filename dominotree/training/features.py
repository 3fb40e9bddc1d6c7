"""The target's hidden features of a corpus: computed once, kept in one memory-mapped file, shared by all trainings."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dominotree.models.target import Target
from dominotree.progress import track
from dominotree.training.corpus import Conversation


def corpus_digest(conversations: Sequence[Conversation]) -> str:
    """A short digest of a corpus' tokens."""
    digest = hashlib.sha256()
    for conversation in conversations:
        digest.update(np.asarray(conversation.tokens, dtype=np.int32).tobytes())
    return digest.hexdigest()[:16]


class FeatureStore:
    """Features [n, L_ctx * H] in bf16 of each conversation's n tokens, computed by `fill` and kept on disk."""

    def __init__(self, target: Target, conversations: Sequence[Conversation], directory: Path) -> None:
        self.target, self.conversations = target, conversations
        lengths = [len(c.tokens) for c in conversations]
        self.offsets = np.concatenate(([0], np.cumsum(lengths)))
        width = len(target.feature_layers) * target.config.hidden_size
        directory.mkdir(parents=True, exist_ok=True)
        stem = f"features-{corpus_digest(conversations)}-{'-'.join(map(str, target.feature_layers))}"
        self.data = self._open(directory / f"{stem}.bf16", np.int16, (int(self.offsets[-1]), width))
        self.done = self._open(directory / f"{stem}.done", np.uint8, (len(conversations),))

    @staticmethod
    def _open(path: Path, dtype: type, shape: tuple[int, ...]) -> np.memmap:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        if not path.is_file() or path.stat().st_size != size:
            with path.open("wb") as file:
                file.truncate(size)
        return np.memmap(path, dtype=dtype, mode="r+", shape=shape)

    @torch.no_grad()
    def fill(self, batch: int = 6) -> None:
        """Compute what is missing, conversations of like length together, to pad little. A kill loses one batch."""
        missing = sorted(np.flatnonzero(self.done == 0).tolist(), key=lambda i: len(self.conversations[i].tokens))
        batches = [missing[first : first + batch] for first in range(0, len(missing), batch)]
        for indices in track("target features", batches, len(batches)):
            self._fill_batch(indices)

    def _fill_batch(self, indices: list[int]) -> None:
        rows = [torch.tensor(self.conversations[i].tokens) for i in indices]
        tokens = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        positions = torch.arange(tokens.shape[1]).expand_as(tokens)
        # Padding stands at the end, where causal attention never looks from a real token.
        features = self.target.forward(tokens, positions).features.to(torch.bfloat16)
        for index, row in zip(indices, features, strict=True):
            start, end = self.offsets[index], self.offsets[index + 1]
            self.data[start:end] = row[: end - start].view(torch.int16).numpy()
            self.done[index] = 1

    def get(self, indices: list[int]) -> list[Tensor]:
        """Features of these conversations, a [n_i, L_ctx * H] tensor in bf16 each."""
        spans = [(self.offsets[i], self.offsets[i + 1]) for i in indices]
        return [torch.from_numpy(self.data[a:b].copy()).view(torch.bfloat16) for a, b in spans]
