"""How figures look: one style file, one table of styles by method, and files whose bytes depend on nothing but the records."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.style
from matplotlib.figure import Figure

from dominotree.files import atomic_write

STYLE_FILE = Path(__file__).parents[1] / "paper.mplstyle"
COLUMN_WIDTH, PAGE_WIDTH = 3.35, 6.9
"""Inches, of a two-column page."""

UNDATED: dict[str, dict[str, Any]] = {".pdf": {"CreationDate": None}, ".png": {}}
"""By suffix of a file, what keeps it the same when it is drawn again."""


@dataclass(frozen=True)
class MethodStyle:
    """A method's look in every figure; without colour, marker and dashes tell lines apart and hatches tell bars apart."""

    color: str
    marker: str
    dashes: Any
    hatch: str

    def line(self) -> dict[str, Any]:
        """Keywords of a line with markers."""
        return {"color": self.color, "marker": self.marker, "linestyle": self.dashes, "markeredgecolor": "black"}

    def bar(self) -> dict[str, Any]:
        """Keywords of a bar."""
        return {"facecolor": self.color, "edgecolor": "black", "hatch": self.hatch}


# The colours of Okabe and Ito, and a grey and a brown beside them.
METHOD_STYLES = {
    "ar": MethodStyle("#666666", "|", (0, (1, 1)), ""),
    "dflash": MethodStyle("#56B4E9", "v", (0, (4, 1.5)), "...."),
    "ddtree": MethodStyle("#0072B2", "s", (0, (4, 1, 1, 1)), "////"),
    "caddtree": MethodStyle("#009E73", "D", (0, (2, 1)), "xxxx"),
    "domino": MethodStyle("#E69F00", "^", (0, (6, 1.5)), "----"),
    "dominotree": MethodStyle("#D55E00", "o", "-", ""),
    "marginal": MethodStyle("#F0E442", "P", (0, (3, 1, 1, 1, 1, 1)), "||||"),
    "static": MethodStyle("#CC79A7", "X", (0, (5, 1, 2, 1)), "++++"),
    "dartree": MethodStyle("#000000", "*", (0, (1, 1.5)), "\\\\\\\\"),
    "adaptive": MethodStyle("#7F3F1F", "h", (0, (8, 1, 1, 1)), "oooo"),
    "loadaware": MethodStyle("#332288", "d", (0, (3, 1, 1, 1)), "****"),
}

STAGE_STYLES = {
    "draft": {"facecolor": "0.35", "edgecolor": "black", "hatch": ""},
    "build": {"facecolor": "white", "edgecolor": "black", "hatch": "//////"},
    "verify": {"facecolor": "0.8", "edgecolor": "black", "hatch": ""},
    "commit": {"facecolor": "white", "edgecolor": "black", "hatch": "......"},
}
"""Greys, since colours are the methods'."""


def method_style(arm: str) -> MethodStyle:
    """The style of an arm's method: `dominotree@8+heap` looks as `dominotree` does."""
    return METHOD_STYLES[re.split("[@+]", arm)[0]]


@contextmanager
def paper_style() -> Iterator[None]:
    """The style file and nothing else: what a person's own matplotlibrc says does not reach a figure."""
    with matplotlib.style.context(STYLE_FILE, after_reset=True):
        yield


def save_figure(figure: Figure, output: Path) -> list[Path]:
    """Write `output`.pdf and .png: both are complete before the first takes its place."""
    files = {output.with_name(output.name + suffix): metadata for suffix, metadata in UNDATED.items()}
    with ExitStack() as stack:
        for path, metadata in files.items():
            figure.savefig(stack.enter_context(atomic_write(path)), format=path.suffix[1:], metadata=metadata)
    return list(files)
