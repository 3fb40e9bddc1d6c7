"""From a row of a dataset to the user's turns, in the words that the field measures with (paper Section 4.1).

The words are those that the released harnesses of the compared methods share; tests hold them by their hashes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

BOXED = "\nPlease reason step by step, and put your final answer within \\boxed{}."
PROGRAMMER = (
    "You are an expert Python programmer. You will be given a question (problem specification) and will generate a correct "
    "Python program that matches the specification and passes all tests. You will NOT return anything except for the program"
)


@dataclass(frozen=True)
class Template:
    """fields: what of a row `turns` reads; lists of texts where `several`. may_be_empty: those that may say nothing."""

    family: str
    fields: tuple[str, ...]
    turns: Callable[..., tuple[str, ...]]
    may_be_empty: tuple[str, ...] = ()
    several: bool = False

    def render(self, row: Mapping[str, Any]) -> tuple[str, ...]:
        """The user's turns. Raises `ValueError` naming the field that the row lacks."""
        return self.turns(*(self._text(row, field) for field in self.fields))

    def _text(self, row: Mapping[str, Any], field: str) -> Any:
        value = row.get(field)
        if value is None:
            raise ValueError(f"'{field}' is missing")
        texts = value if self.several else [value]
        if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
            raise ValueError(f"'{field}' should be {'a list of texts' if self.several else 'a text'}")
        if field not in self.may_be_empty and not all(text.strip() for text in texts):
            raise ValueError(f"'{field}' is empty")
        return value


def _reason(problem: str) -> tuple[str, ...]:
    return (problem + BOXED,)


def _complete(stub: str) -> tuple[str, ...]:
    return (f"Write a solution to the following problem and make sure that it passes the tests:\n```python\n{stub}\n```",)


def _as_it_is(prompt: str) -> tuple[str, ...]:
    return (prompt,)


def _program(question: str, starter: str) -> tuple[str, ...]:
    form = "Use the following code structure" if starter else "Write your code in the following format"
    return (
        f"{PROGRAMMER}\n\n### Question:\n{question}\n\n### Format: {form}:\n```python\n{starter or '# YOUR CODE HERE'}\n```\n\n"
        "### Answer: (use the provided format with backticks)",
    )


def _instruct(instruction: str, given: str) -> tuple[str, ...]:
    return (f"{instruction}\n\nInput:\n{given}" if given else instruction,)


TEMPLATES = {
    "gsm8k": Template("math", ("question",), _reason),
    "math500": Template("math", ("problem",), _reason),
    "aime25": Template("math", ("problem",), _reason),
    "humaneval": Template("code", ("prompt",), _complete),
    "mbpp": Template("code", ("prompt",), _as_it_is),
    "livecodebench": Template("code", ("question_content", "starter_code"), _program, ("starter_code",)),
    "mt-bench": Template("chat", ("prompt",), tuple, several=True),
    "alpaca": Template("chat", ("instruction", "input"), _instruct, ("input",)),
}
"""Of the paper's eight datasets."""
