"""The loop of rounds: draft, build, verify, commit. Knows nothing of datasets, tokenizers or tracking."""
