"""Neural networks and their checkpoints: the target, the drafters, strict loading, the GGUF conversion."""
