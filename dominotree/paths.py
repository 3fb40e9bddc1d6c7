"""Where things live on disk outside the repository."""

from __future__ import annotations

import os
from pathlib import Path

ASSETS = Path(__file__).parent / "assets"


def cache_dir() -> Path:
    """The cache for converted targets, corpora and cost models: `DOMINOTREE_CACHE`, else `~/.cache/dominotree`."""
    return Path(os.environ.get("DOMINOTREE_CACHE") or Path.home() / ".cache" / "dominotree")
