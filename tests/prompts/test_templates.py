"""The paper's eight sets: their words, their subsets, and what is said of a row that does not fit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dominotree.errors import UserError
from dominotree.prompts import EMBEDDED_SETS, Conversation, load_dataset
from dominotree.prompts.rendering import prompt_sha, render
from dominotree.prompts.templates import TEMPLATES

SHARED = Path(__file__).parents[3] / "shared" / "prompts"
HASHES = json.loads((Path(__file__).parent / "hashes.json").read_text())
WHOLE = {"gsm8k": 1319, "math500": 500, "aime25": 30, "humaneval": 164, "mbpp": 257, "mt-bench": 80}
"""The sets of which the files have every row; of the others they have a part."""
COUNTS = {name: 30 if name == "aime25" else 50 for name in WHOLE} | {"alpaca": 80, "livecodebench": 3}

QWEN3 = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
"""What Qwen3's chat template writes for turns without a system message, tools or reasoning."""
ANSWER = {"role": "assistant", "content": "An answer."}

ROWS = {
    "gsm8k": ({"question": "Q?"}, "Q?\nPlease reason step by step, and put your final answer within \\boxed{}."),
    "math500": ({"problem": "$x$?"}, "$x$?\nPlease reason step by step, and put your final answer within \\boxed{}."),
    "aime25": ({"problem": "P."}, "P.\nPlease reason step by step, and put your final answer within \\boxed{}."),
    "humaneval": (
        {"prompt": "def f():\n"},
        "Write a solution to the following problem and make sure that it passes the tests:\n```python\ndef f():\n\n```",
    ),
    "mbpp": ({"prompt": "Write it."}, "Write it."),
    "alpaca": ({"instruction": "Do.", "input": ""}, "Do."),
}
LIVECODEBENCH = (
    "You are an expert Python programmer. You will be given a question (problem specification) and will generate a correct "
    "Python program that matches the specification and passes all tests. You will NOT return anything except for the program"
    "\n\n### Question:\nQ\n\n### Format: {}:\n```python\n{}\n```\n\n### Answer: (use the provided format with backticks)"
)


def _write(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def _turns(tmp_path: Path, name: str, row: dict[str, Any]) -> tuple[str, ...]:
    (conversation,) = load_dataset(name, path=_write(tmp_path / "rows.jsonl", row))
    return conversation.turns


@pytest.mark.parametrize("name", ROWS)
def test_words(tmp_path: Path, name: str) -> None:
    row, turn = ROWS[name]
    assert _turns(tmp_path, name, row | {"another": 1}) == (turn,)


def test_an_alpaca_row_with_an_input(tmp_path: Path) -> None:
    assert _turns(tmp_path, "alpaca", {"instruction": "Do.", "input": "this"}) == ("Do.\n\nInput:\nthis",)


def test_livecodebench(tmp_path: Path) -> None:
    empty = LIVECODEBENCH.format("Write your code in the following format", "# YOUR CODE HERE")
    assert _turns(tmp_path, "livecodebench", {"question_content": "Q", "starter_code": ""}) == (empty,)
    given = LIVECODEBENCH.format("Use the following code structure", "class Solution:")
    assert _turns(tmp_path, "livecodebench", {"question_content": "Q", "starter_code": "class Solution:"}) == (given,)


def test_mt_bench_has_the_turns_as_they_are(tmp_path: Path) -> None:
    assert _turns(tmp_path, "mt-bench", {"prompt": ["One.", "Two."]}) == ("One.", "Two.")


def test_braces_are_text(tmp_path: Path) -> None:
    assert _turns(tmp_path, "math500", {"problem": "{x} {0} {{"})[0].startswith("{x} {0} {{\n")


def test_every_set_has_a_family() -> None:
    assert {template.family for template in TEMPLATES.values()} == set(EMBEDDED_SETS)


@pytest.mark.parametrize(
    ("name", "row", "fault"),
    [
        ("gsm8k", {"problem": "Q?"}, "'question' is missing"),
        ("gsm8k", {"question": None}, "'question' is missing"),
        ("gsm8k", {"question": 3}, "'question' should be a text"),
        ("gsm8k", {"question": ["Q?"]}, "'question' should be a text"),
        ("gsm8k", {"question": " "}, "'question' is empty"),
        ("gsm8k", ["Q?"], "expected an object"),
        ("alpaca", {"instruction": "Do."}, "'input' is missing"),
        ("livecodebench", {"question_content": "Q"}, "'starter_code' is missing"),
        ("mt-bench", {"prompt": "One."}, "'prompt' should be a list of texts"),
        ("mt-bench", {"prompt": []}, "'prompt' should be a list of texts"),
        ("mt-bench", {"prompt": ["One.", ""]}, "'prompt' is empty"),
    ],
    ids=str,
)
def test_a_row_that_does_not_fit_is_named(tmp_path: Path, name: str, row: object, fault: str) -> None:
    good = {"mt-bench": {"prompt": ["One."]}, "livecodebench": {"question_content": "Q", "starter_code": ""}}
    path = _write(tmp_path / "rows.jsonl", good.get(name) or ROWS[name][0], row)
    with pytest.raises(UserError) as caught:
        load_dataset(name, path=path)
    assert str(caught.value) == f"{path}, line 2: not a conversation ({fault})"


def test_too_few(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"rows\.jsonl: num_prompts=2 asked for, it has 1"):
        load_dataset("mbpp", 2, path=_write(tmp_path / "rows.jsonl", ROWS["mbpp"][0]))


def _hashes(name: str, make_tokenizer: Callable[..., Any]) -> list[list[str]]:
    """The prompts of every turn, a fixed answer between, as the first 16 digits of the hash that a record has."""
    tokenizer = make_tokenizer(QWEN3)

    def hashes(conversation: Conversation) -> list[str]:
        messages, found = [], []
        for turn in conversation.turns:
            messages.append({"role": "user", "content": turn})
            found.append(prompt_sha(render(tokenizer, messages)[0])[:16])
            messages.append(ANSWER)
        return found

    return [hashes(c) for c in load_dataset(name, COUNTS[name], path=SHARED / f"{name}.jsonl")]


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared/prompts")
@pytest.mark.parametrize("name", TEMPLATES)
def test_the_prompts_are_the_stored_ones(name: str, make_tokenizer: Callable[..., Any]) -> None:
    assert _hashes(name, make_tokenizer) == HASHES[name]


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared/prompts")
@pytest.mark.parametrize(("name", "count"), WHOLE.items())
def test_whole_sets_are_whole(name: str, count: int) -> None:
    assert len(load_dataset(name, path=SHARED / f"{name}.jsonl")) == count
