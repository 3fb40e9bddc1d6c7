"""The names of all methods, for configuration and tables, which need no torch."""

from __future__ import annotations

METHOD_NAMES = (
    "ar", "dflash", "ddtree", "caddtree", "domino", "dominotree", "marginal", "static", "dartree", "adaptive", "loadaware"
)  # fmt: skip
"""In the order of the paper's tables. Arms besides the compared ones: `marginal` and `static` are controls on the Domino drafter,
`dartree`, `adaptive` and `loadaware` choose other trees on it."""
