"""One draft tree: what was drafted and accepted in a round, where its nodes are drawn, and the command."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_rgba

from dominotree.compose import compose_run
from dominotree.errors import UserError
from dominotree.reporting.draw_tree import BONUS, BOX_HEIGHT, ROOT, _children, _label, _layout, draw_tree, main
from dominotree.reporting.figures.style import METHOD_STYLES
from dominotree.trace import DraftedRound, trace_round

DRAFTED = DraftedRound(
    prompt="Why $x$ is ¥5?",
    arm="dominotree@4",
    temperature=0.0,
    number=2,
    rounds=7,
    so_far="```\nThe sky",
    root=" sky",
    tokens=(" is", " was", " blue", "\n\n"),
    parents=(-1, -1, 0, 0),
    probabilities=(0.6, 0.3, 0.4, 0.1),
    accepted=(0, 2),
    bonus=".",
)


@st.composite
def rounds(draw: st.DrawFn) -> DraftedRound:
    """Any tree of up to 24 nodes, with any path of it accepted, and a bonus or none."""
    count = draw(st.integers(0, 24))
    parents = [draw(st.integers(-1, node - 1)) for node in range(count)]
    words = st.text(st.characters(codec="utf-8"), max_size=20)
    probabilities = [draw(st.floats(0, 1)) for _ in range(count)]
    accepted: list[int] = []
    for node in range(count):
        if parents[node] == (accepted[-1] if accepted else ROOT) and draw(st.booleans()):
            accepted.append(node)
    tokens = tuple(draw(words) for _ in range(count))
    return DraftedRound(
        prompt=draw(words),
        arm="domino",
        temperature=1.0,
        number=1,
        rounds=1,
        so_far=draw(words),
        root=draw(words),
        tokens=tokens,
        parents=tuple(parents),
        probabilities=tuple(probabilities),
        accepted=tuple(accepted),
        bonus=draw(st.none() | words),
    )


# --- the drawing ---------------------------------------------------------------------------------------------------------


@given(rounds())
def test_boxes_do_not_overlap_and_children_stand_right_of_their_parent(drafted: DraftedRound) -> None:
    children = _children(drafted)
    labels = {node: _label(token) for node, token in enumerate(drafted.tokens)} | {ROOT: "root", BONUS: "bonus"}
    boxes = _layout(children, labels)
    assert boxes.keys() == {ROOT, *range(len(drafted.tokens))} | ({BONUS} if drafted.bonus is not None else set())
    for parent, nodes in children.items():
        assert all(boxes[node].x > boxes[parent].x + boxes[parent].width for node in nodes)
        assert boxes[nodes[0]].y <= boxes[parent].y <= boxes[nodes[-1]].y
    for column in {box.x for box in boxes.values()}:
        heights = sorted(box.y for box in boxes.values() if box.x == column)
        assert all(below - above > BOX_HEIGHT for above, below in pairwise(heights))


def test_what_was_accepted_is_filled_and_the_bonus_dashed() -> None:
    (axis,) = draw_tree(DRAFTED).axes
    faces = {shape.get_label(): shape.get_facecolor() for shape in axis.patches}
    accepted = to_rgba(METHOD_STYLES["dominotree"].color)
    assert faces.keys() == {"␣sky", "␣is", "␣was", "␣blue", "↵↵", "."}
    assert {label for label, face in faces.items() if face == accepted} == {"␣is", "␣blue"}
    assert [shape.get_label() for shape in axis.patches if shape.get_linestyle() != "-" and shape.get_linestyle() != "solid"] == [
        "."
    ]
    assert axis.texts[0].get_text() == "Round 2 of 7, DominoTree (4) at temperature 0: 2 of 4 nodes accepted"


@given(rounds())
def test_no_text_breaks_the_drawing(drafted: DraftedRound) -> None:
    draw_tree(drafted).draw_without_rendering()


@pytest.mark.parametrize(
    ("token", "label"),
    [
        (" the", "␣the"),
        ("\n", "↵"),
        ("$x$", "$x$"),
        ("你", "\\u4f60"),
        ("\x07", "\\x07"),
        ("", "(empty)"),
        ("a" * 30, "a" * 15 + "…"),
    ],
)
def test_a_label_shows_what_is_hard_to_see(token: str, label: str) -> None:
    assert _label(token) == label


# --- the round -----------------------------------------------------------------------------------------------------------


def words(*tokens: str) -> list[str]:
    return " ".join(tokens).split()


@pytest.mark.parametrize(
    ("arm", "temperature"),
    [("dominotree@8", 0), ("dominotree@8+heap", 1), ("ddtree@8", 0), ("domino", 0), ("caddtree", 0), ("dartree", 0)],
)
def test_a_round_leads_to_the_next(tiny_overrides: list[str], arm: str, temperature: float) -> None:
    config = compose_run([*tiny_overrides, f"arms=[{arm}]", f"temperature={temperature}", "max_new_tokens=8"])
    drafted = trace_round(config, "please tell me a story", 1)
    count, expected = drafted.rounds, words(drafted.so_far)
    for number in range(1, count + 1):
        drafted = trace_round(config, "please tell me a story", number)
        assert len(drafted.tokens) == len(drafted.parents) == len(drafted.probabilities) > 0
        assert [ROOT, *drafted.accepted[:-1]] == [drafted.parents[node] for node in drafted.accepted] or not drafted.accepted
        assert words(drafted.so_far) == expected
        if number < count:
            assert drafted.bonus is not None
            expected = words(drafted.so_far, *(drafted.tokens[node] for node in drafted.accepted), drafted.bonus)
    with pytest.raises(UserError, match=f"round {count + 1}: the answer took {count} rounds"):
        trace_round(config, "please tell me a story", count + 1)


# --- the command ---------------------------------------------------------------------------------------------------------


def test_the_command_writes_two_files(tiny_overrides: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = []
    for name in ("once", "again"):
        main(["please tell me a story", *tiny_overrides, "--arm", "ddtree@8", "--output", str(tmp_path / name / "tree")])
        files.append({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()})
    assert files[0] == files[1] and files[0].keys() == {"tree.pdf", "tree.png"}
    assert capsys.readouterr().out.splitlines()[:2] == [str(tmp_path / "once" / f"tree.{end}") for end in ("pdf", "png")]


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["--arm", "ar"], "arms: ar drafts nothing; name an arm that does, as in dominotree@16"),
        (["--arm", "domintree"], "arms: unknown method 'domintree'; did you mean dominotree?"),
        (["--round", "0"], "--round 0: rounds are counted from 1"),
        (["--round", "99"], "round 99: the answer took . rounds"),
        (["arms=[domino]"], "'arms=.domino.': one tree is drawn, of one arm"),
        (["temperature=-1"], "temperature: should be greater than or equal to 0, not -1"),
    ],
)
def test_the_command_fails_in_one_line(
    tiny_overrides: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], fault: str
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["please tell me a story", *tiny_overrides, *arguments, "--output", str(tmp_path / "trees" / "tree")])
    assert stop.value.code == 2
    assert re.search(f"^error: {fault}", capsys.readouterr().err, re.MULTILINE)
    assert not (tmp_path / "trees").exists()


def test_an_empty_prompt_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["  "])
    assert capsys.readouterr().err == "error: the prompt is empty; write what the user asks\n"


def test_loading_the_commands_of_reporting_loads_no_torch() -> None:
    modules = "dominotree.reporting.draw_tree, dominotree.reporting.figures.__main__, dominotree.reporting.tables.__main__"
    check = f"import sys, {modules}; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check]).returncode == 0
