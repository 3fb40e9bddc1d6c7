"""The bootstrap's benchmark agrees with a loop, and says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import bootstrap


def test_it_reports_speed_and_agreement_with_a_plain_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bootstrap, "SIZES", dict.fromkeys(bootstrap.SIZES, 4))
    monkeypatch.setattr(bootstrap, "LOOP_DRAWS", 40)
    monkeypatch.setattr(bootstrap, "TIMES", 2)
    bootstrap.main(["--json", str(tmp_path / "numbers.json")])
    numbers = json.loads((tmp_path / "numbers.json").read_text())
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == numbers
    assert numbers["apart"] < 1e-9
    assert [row["intervals"] for row in numbers["rows"]] == [144, 144, 288, 288, 1]
    assert numbers["rows"][3]["rows"] == 2 * numbers["rows"][2]["rows"]
