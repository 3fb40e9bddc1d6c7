"""One draft tree of a prompt of your choice, with its accepted path.

    python -m dominotree.reporting.draw_tree "Why is the sky blue?" --arm dominotree@16 --round 2 --output results/tree

answers the prompt, draws that round's tree into results/tree.pdf and results/tree.png, and takes overrides as dominotree.run does
(temperature=1, model=..., method.dominotree.candidate_width=32).
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, get_font
from matplotlib.patches import FancyBboxPatch

from dominotree.compose import compose_run
from dominotree.errors import UserError, exit_on_user_error
from dominotree.reporting.figures.style import method_style, paper_style, save_figure
from dominotree.reporting.names import arm_title

if TYPE_CHECKING:
    from dominotree.trace import DraftedRound

ROOT, BONUS = -1, -2
TEXT_FONT, TOKEN_FONT = "DejaVu Sans", "DejaVu Sans Mono"
TOKEN_SIZE, SMALL_SIZE, TEXT_SIZE = 6.5, 5, 7
CHARACTER, PADDING, GAP = 0.602 * TOKEN_SIZE, 3, 20
"""Width of a character, padding in a box, and room between columns; these and all other lengths in points."""
BOX_HEIGHT, ROW_HEIGHT = 15, 19
HEADER, MARGIN = 54, 6
NUMBER_WIDTH = 4 * 0.602 * SMALL_SIZE
KEY = "Filled: accepted. Dashed: the target's own next token. Numbers: the forecast probability of the path."
LONGEST_TOKEN, LONGEST_LINE = 16, 110
VISIBLE = str.maketrans(
    {" ": "\N{OPEN BOX}", "\n": "\N{DOWNWARDS ARROW WITH CORNER LEFTWARDS}", "\t": "\N{RIGHTWARDS ARROW TO BAR}"}
)


@dataclass(frozen=True)
class Box:
    """Where a node is drawn: the left end and the middle of its box, and its width."""

    x: float
    y: float
    width: float


def draw_tree(drafted: DraftedRound) -> Figure:
    """The tree from left to right, likelier children above; filled are the root and what was accepted, dashed is the bonus."""
    labels = dict(enumerate(map(_label, drafted.tokens))) | {ROOT: _label(drafted.root)}
    children = _children(drafted)
    if drafted.bonus is not None:
        labels[BONUS] = _label(drafted.bonus)
    boxes = _layout(children, labels)
    lines = _header(drafted)
    right = max(box.x + box.width for box in boxes.values())
    width = max(right, 0.55 * TEXT_SIZE * max(map(len, lines))) + 2 * MARGIN
    height = max(box.y for box in boxes.values()) + ROW_HEIGHT / 2 + HEADER + 2 * MARGIN
    figure = Figure(figsize=(width / 72, height / 72))
    axis = figure.add_axes((0, 0, 1, 1), xlim=(-MARGIN, width - MARGIN), ylim=(height - HEADER - MARGIN, -HEADER - MARGIN))
    axis.set_axis_off()
    for place, line in enumerate(lines):
        weight = "bold" if place == 0 else "normal"
        axis.text(0, 12 * place - HEADER, line, size=TEXT_SIZE, weight=weight, va="top", parse_math=False)
    taken = {ROOT, BONUS, *drafted.accepted}
    for parent, nodes in children.items():
        for node in nodes:
            _edge(axis, boxes[parent], boxes[node], strong=node in taken)
    color = method_style(drafted.arm).color
    for node, box in boxes.items():
        number = f"{drafted.probabilities[node]:.2f}" if node >= 0 else ""
        _box(axis, box, labels[node], number, color if node in drafted.accepted else "0.85" if node == ROOT else "white", node)
    return figure


def _header(drafted: DraftedRound) -> list[str]:
    count, nodes = len(drafted.accepted), len(drafted.tokens)
    committed = f"{arm_title(drafted.arm)} at temperature {drafted.temperature:g}: {count} of {nodes} nodes accepted"
    return [
        f"Round {drafted.number} of {drafted.rounds}, {committed}",
        f"Prompt: {_shortened(drafted.prompt, end=False)}",
        f"Answer so far: {_shortened(drafted.so_far, end=True)}",
        KEY,
    ]


def _shortened(text: str, end: bool) -> str:
    """A text on one line, its beginning or its end."""
    text = _drawable(" ".join(text.split()))
    if len(text) <= LONGEST_LINE:
        return text
    return f"… {text[-LONGEST_LINE:]}" if end else f"{text[:LONGEST_LINE]} …"


def _label(token: str) -> str:
    """A token as its box shows it, spaces and line ends visible."""
    text = _drawable(token.translate(VISIBLE)) or "(empty)"
    return text if len(text) <= LONGEST_TOKEN else text[: LONGEST_TOKEN - 1] + "…"


def _drawable(text: str) -> str:
    """`text` with what the font lacks, or nobody sees, spelt as `\\u4f60`."""
    return "".join(sign if _is_drawable(sign) else sign.encode("unicode_escape").decode() for sign in text)


@cache
def _is_drawable(sign: str) -> bool:
    fonts = [get_font(findfont(name)) for name in (TEXT_FONT, TOKEN_FONT)]
    return sign.isprintable() and all(font.get_char_index(ord(sign)) for font in fonts)


def _children(drafted: DraftedRound) -> dict[int, list[int]]:
    """By node, its children, the likeliest first; the bonus comes last under the end of the accepted path."""
    children: dict[int, list[int]] = defaultdict(list)
    for node in sorted(range(len(drafted.parents)), key=lambda node: -drafted.probabilities[node]):
        children[drafted.parents[node]].append(node)
    if drafted.bonus is not None:
        children[drafted.accepted[-1] if drafted.accepted else ROOT].append(BONUS)
    return dict(children)


def _layout(children: dict[int, list[int]], labels: dict[int, str]) -> dict[int, Box]:
    """A column a depth, as wide as its longest label; leaves a row apart, and a parent midway between its outer children."""
    depths: dict[int, int] = {}
    rows: dict[int, float] = {}
    leaves = 0

    def place(node: int, depth: int) -> None:
        nonlocal leaves
        depths[node] = depth
        below = children.get(node, [])
        for child in below:
            place(child, depth + 1)
        rows[node] = (rows[below[0]] + rows[below[-1]]) / 2 if below else leaves
        leaves += not below

    place(ROOT, 0)
    widths = {node: max(CHARACTER * len(label), NUMBER_WIDTH) + 2 * PADDING for node, label in labels.items()}
    columns = [max(widths[node] for node in depths if depths[node] == depth) for depth in range(max(depths.values()) + 1)]
    lefts = [sum(columns[:depth]) + GAP * depth for depth in range(len(columns))]
    return {node: Box(lefts[depths[node]], ROW_HEIGHT * (rows[node] + 0.5), widths[node]) for node in depths}


def _edge(axis: Axes, parent: Box, child: Box, strong: bool) -> None:
    x = [parent.x + parent.width, child.x - GAP / 2, child.x - GAP / 2, child.x]
    width, color = (1.6, "black") if strong else (0.6, "0.55")
    axis.plot(x, [parent.y, parent.y, child.y, child.y], color=color, linewidth=width, zorder=2 if strong else 1)


def _box(axis: Axes, box: Box, label: str, number: str, face: str, node: int) -> None:
    """A node's box with its token and, smaller, its path probability."""
    plain = node >= 0 and face == "white"
    outline = {"edgecolor": "0.55" if plain else "black", "linewidth": 0.6 if plain else 1.0}
    outline |= {"linestyle": (0, (2, 1.5))} if node == BONUS else {}
    outline |= {"boxstyle": "round,pad=0,rounding_size=2", "facecolor": face, "zorder": 3, "label": label}
    axis.add_patch(FancyBboxPatch((box.x, box.y - BOX_HEIGHT / 2), box.width, BOX_HEIGHT, **outline))
    ink = "white" if sum(weight * part for weight, part in zip((0.3, 0.59, 0.11), to_rgb(face), strict=True)) < 0.45 else "black"
    text = {"ha": "center", "va": "center", "color": ink, "parse_math": False, "family": TOKEN_FONT, "zorder": 4}
    middle, lift = box.x + box.width / 2, 2.5 if number else 0
    axis.text(middle, box.y - lift, label, size=TOKEN_SIZE, **text)
    axis.text(middle, box.y + 4, number, size=SMALL_SIZE, **text)


@exit_on_user_error
def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m dominotree.reporting.draw_tree", description=__doc__.splitlines()[0])
    parser.add_argument("prompt", help="what the user asks")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="as for dominotree.run")
    parser.add_argument("--arm", default="dominotree@16", help="whose tree, as in ddtree@32 (default: %(default)s)")
    parser.add_argument("--round", type=int, default=1, metavar="N", help="which round, from 1 (default: %(default)s)")
    parser.add_argument(
        "--output", type=Path, default=Path("results/tree"), metavar="PATH", help="written with .pdf and .png added"
    )
    options = parser.parse_intermixed_args(arguments)
    if not options.prompt.strip():
        raise UserError("the prompt is empty; write what the user asks")
    if options.round < 1:
        raise UserError(f"--round {options.round}: rounds are counted from 1")
    for override in options.overrides:
        if override.partition("=")[0] in ("arms", "study"):
            raise UserError(f"'{override}': one tree is drawn, of one arm: name it, as in --arm {options.arm}")
    config = compose_run([*options.overrides, f"arms=[{options.arm}]"])
    from dominotree.trace import trace_round  # needs torch, so only once the configuration is known to be right

    drafted = trace_round(config, options.prompt, options.round)
    with paper_style():
        files = save_figure(draw_tree(drafted), options.output)
    print("\n".join(map(str, files)))


if __name__ == "__main__":
    main()
