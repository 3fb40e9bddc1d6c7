"""Draft trees: what they are, how their nodes are scored, how they are built, how large they may grow.

Knows tensors alone; nothing of tokenizers, caches or transformers."""
