from __future__ import annotations

from tests.reliability.document import DOCUMENT, render, sections


def test_the_page_says_what_the_tests_say():
    tests = [row.test for _, rows in sections() for row in rows]
    assert len(tests) == len(set(tests)) > 20
    written = DOCUMENT.read_text(encoding="utf-8")
    results = {test: _result(written, test) for test in tests}
    assert written == render(results)
    assert {result.partition(":")[0] for result in results.values()} <= {"passed", "skipped"}


def _result(text: str, test: str) -> str:
    (line,) = [line for line in text.splitlines() if line.startswith(f"| `{test}` |")] or ["| not in the page |"]
    return line.rstrip(" |").rpartition("| ")[2]
