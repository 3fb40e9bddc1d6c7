"""Where things live on disk."""

from __future__ import annotations

import os
from pathlib import Path

ASSETS = Path(__file__).parent / "assets"


def record_file(dataset: str, temperature: float, arm: str) -> Path:
    """Where the records of an arm lie, below the folder of its study's grid."""
    return Path(dataset, f"t{temperature:g}", f"{arm}.parquet")


def cache_dir() -> Path:
    """The cache for converted targets, corpora and cost models: `DOMINOTREE_CACHE`, else `~/.cache/dominotree`."""
    return Path(os.environ.get("DOMINOTREE_CACHE") or Path.home() / ".cache" / "dominotree")
