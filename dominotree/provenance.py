"""Where a number comes from: a digest of the sources and weights behind it, the versions, the commit."""

from __future__ import annotations

import hashlib
import platform
import subprocess
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path

PACKAGE = Path(__file__).parent

MEASURE_SOURCES = (
    "arms.py",
    "decoding",
    "drafting",
    "graphs.py",
    "kernels",
    "loading.py",
    "measure.py",
    "methods.py",
    "models",
    "prompts",
)
"""What decides a measured number."""

SERVE_SOURCES = ("prompts", "serving")
"""What decides a number that was measured on a server, besides the server."""

SHOWN = ("html.py", "layout.py", "latex.py", "names.py", "notes.py", "paper.py", "printed", "source.py", "tables")
TABLE_SOURCES = ("records.py", *(f"reporting/{name}" for name in SHOWN), "stats.py")
"""What decides a table, given the records."""

LOOKS = ("figures/__main__.py", "figures/panels.py", "figures/style.py", "paper.mplstyle")
DRAWN = (*LOOKS, "latex.py", "names.py", "notes.py", "source.py")
FIGURE_SOURCES = ("records.py", *(f"reporting/{name}" for name in DRAWN), "stats.py")
"""What decides every figure, given the records; each has a module of its own beside."""

PUBLISHED_SOURCES = ("published", "records.py", "stats.py")
"""What decides the authors' records and their audit."""

NUMBER_SOURCES = ("reporting/numbers.py",)
DOCUMENT_SOURCES = ("reporting/document.py",)
"""What decides the numbers of a text and the document, given the tables."""

REHEARSAL_SOURCES = ("models", "prompts", "rehearsal.py")
"""What decides the models and prompts of a rehearsal."""

TRAINING_SOURCES = ("models", "prompts", "training")
"""What decides a corpus and a drafter."""

SUFFIXES = (".py", ".csv", ".json", ".jsonl", ".safetensors")
LIBRARIES = ("torch", "transformers", "triton", "numpy")


@cache
def digest(paths: Sequence[Path]) -> str:
    """A short SHA-256 of the names and contents of files, and of all Python, JSON and weight files below folders."""
    found = hashlib.sha256()
    for root in paths:
        files = [root] if root.is_file() else sorted(path for path in root.rglob("*") if path.suffix in SUFFIXES)
        for file in files:
            found.update(f"{root.name}/{file.relative_to(root)}\0{file.stat().st_size}\0".encode())
            found.update(file.read_bytes())
    return found.hexdigest()[:16]


def source_digests(names: Sequence[str]) -> dict[str, str]:
    """The digest of each module or room of this package, after its name, as Snakemake gives it for the reason of a rerun."""
    return {name.removesuffix(".py").replace("/", "_").replace(".", "_"): f"{name} {digest((PACKAGE / name,))}" for name in names}


def versions() -> dict[str, str]:
    """Python and the libraries that do the arithmetic."""
    return {"python": platform.python_version(), **{name: version(name) for name in LIBRARIES}}


def git_commit() -> str | None:
    """The commit of the working tree, with `+` where files differ from it; None outside a repository."""
    command = ["git", "-C", str(PACKAGE), "describe", "--always", "--abbrev=40", "--dirty=+", "--exclude=*"]
    try:
        result = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return result.stdout.strip() or None
