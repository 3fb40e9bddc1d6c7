"""The names of all methods, for configuration and tables, which need no torch."""

from __future__ import annotations

METHOD_NAMES = ("ar", "dflash", "ddtree", "caddtree", "domino", "dominotree", "marginal", "static", "dartree")
"""In the order of the paper's tables; `marginal` and `static` are control arms on the Domino drafter, `dartree` a peer on it."""
