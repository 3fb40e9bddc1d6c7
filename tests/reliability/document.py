"""docs/reliability.md, made from a run of the tests of this folder.

    pytest tests/reliability -m '' --write-reliability

A test's docstring is its row: the first line what happens, the others what follows. A module's is its section.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parent
DOCUMENT = FOLDER.parents[1] / "docs" / "reliability.md"
HEAD = """# What the pipeline survives

Each row is a test that brings the fault about and looks at what follows. "One line" is a line on standard error that says what is
wrong, where, and what to do; the exit status is 2. Measured is what stands in a run's journal: a kill loses at most the
conversation that was under way.

This page is made from a run of these tests, the slow ones included:

```bash
pytest tests/reliability -m '' --write-reliability
```
"""


@dataclass(frozen=True)
class Row:
    """One test: what it does, and what follows."""

    test: str
    event: str
    outcome: str


def sections() -> Iterator[tuple[str, list[Row]]]:
    """The title of every module of tests in this folder, with its rows."""
    for path in sorted(FOLDER.glob("test_*.py")):
        module = importlib.import_module(f"tests.reliability.{path.stem}")
        tests = [test for name, test in vars(module).items() if name.startswith("test_") and inspect.isfunction(test)]
        if module.__doc__:
            yield module.__doc__.strip().rstrip("."), [_row(module, test) for test in tests]


def _row(module: ModuleType, test: Callable[..., None]) -> Row:
    inner = getattr(test, "hypothesis", None)
    text = inspect.cleandoc((inner.inner_test if inner else test).__doc__ or "")
    event, _, outcome = text.partition("\n")
    if not outcome:
        raise ValueError(f"{module.__name__}.{test.__name__}: its docstring does not say what happens and what follows")
    return Row(f"{module.__name__.rpartition('.')[2]}::{test.__name__}", event.rstrip("."), " ".join(outcome.split()))


def render(results: dict[str, str]) -> str:
    """The page; results: by test, how it went."""
    parts = [HEAD]
    for title, rows in sections():
        lines = [f"| `{row.test}` | {row.event} | {row.outcome} | {results[row.test]} |" for row in rows]
        head = [f"## {title}\n", "| test | what happens | what follows | result |", "|---|---|---|---|"]
        parts.append("\n".join([*head, *lines, ""]))
    return "\n".join(parts)


class Writer:
    """Gathers how tests went, and writes the page when all have."""

    def __init__(self) -> None:
        self.outcomes: dict[str, list[str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file, _, name = report.nodeid.partition("::")
        outcomes = self.outcomes.setdefault(f"{Path(file).stem}::{name.partition('[')[0]}", [])
        if report.skipped:
            outcomes.append(f"skipped: {report.longrepr[2].removeprefix('Skipped: ')}")
        elif report.failed or report.when == "call":
            outcomes.append(report.outcome)

    def pytest_sessionfinish(self) -> None:
        results = {test: ", ".join(sorted(set(outcomes))) for test, outcomes in self.outcomes.items()}
        missing = [row.test for _, rows in sections() for row in rows if row.test not in results]
        if missing:
            raise pytest.UsageError(f"{missing[0]} did not run; run all of tests/reliability, with -m ''")
        DOCUMENT.write_text(render(results), encoding="utf-8")
