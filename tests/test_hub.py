"""The Hub, without the Hub: what is asked of it, and what is said when it does not give."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from httpx2 import ReadTimeout, Request, Response
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from dominotree.errors import UserError
from dominotree.hub import commit_of, fetch, resolve, verify

COMMIT = "0123456789abcdef0123456789abcdef01234567"
ANSWER = Response(503, request=Request("GET", "http://localhost"))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[tuple, dict]]:
    """A Hub that has everything, and the list of what it was asked."""
    calls: list[tuple[tuple, dict]] = []

    def snapshot_download(*args: Any, **kwargs: Any) -> str:
        calls.append((args, kwargs))
        return f"/cache/hub/models--owner--name/snapshots/{COMMIT}"

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    return calls


def test_fetch(asked: list) -> None:
    assert fetch("owner/name", "v1", ["*.json", "*.safetensors"]).name == COMMIT
    assert asked == [
        (("owner/name",), {"repo_type": "model", "revision": "v1", "allow_patterns": ["*.json", "*.safetensors"]}),
    ]


def test_resolve_downloads_next_to_nothing(asked: list) -> None:
    assert resolve("owner/name", "main", "dataset") == COMMIT
    assert asked == [(("owner/name",), {"repo_type": "dataset", "revision": "main", "allow_patterns": [".gitattributes"]})]


def test_commit_of_a_folder() -> None:
    assert commit_of(Path(f"/cache/models--owner--name/snapshots/{COMMIT}")) == COMMIT
    assert commit_of(Path("/home/me/drafter")) is None


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (RevisionNotFoundError("404", response=ANSWER), "has no revision 'v1'"),
        (RepositoryNotFoundError("404", response=ANSWER), "not on the Hub, or not open to you"),
        (GatedRepoError("403", response=ANSWER), "not on the Hub, or not open to you"),
        (HFValidationError("form"), "owner/name"),
        (HfHubHTTPError("503\nService Unavailable", response=ANSWER), "503 Service Unavailable"),
        (LocalEntryNotFoundError("no connection"), "cannot be reached"),
        (ConnectionError("reset"), "cannot be reached"),
        (ReadTimeout("timed out"), "not to be had from the Hub (timed out)"),
        (OSError(28, "No space left on device"), "No space left on device"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_the_hub_does_not_give_is_one_line(monkeypatch: pytest.MonkeyPatch, error: Exception, words: str) -> None:
    def refuse(*_: Any, **__: Any) -> str:
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    with pytest.raises(UserError) as caught:
        fetch("owner/name", "v1", ["*.json"])
    assert str(caught.value).startswith("model owner/name: ") and words in str(caught.value) and "\n" not in str(caught.value)


def test_a_cached_commit_needs_no_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With huggingface_hub itself, offline, on a cache laid out as it lays it out."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    repository = tmp_path / "datasets--owner--name"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(COMMIT)
    (repository / "snapshots" / COMMIT).mkdir(parents=True)
    (repository / "snapshots" / COMMIT / ".gitattributes").write_text("")
    assert resolve("owner/name", "main", "dataset") == COMMIT
    with pytest.raises(UserError, match="cannot be reached"):
        resolve("owner/name", "other", "dataset")


@pytest.mark.parametrize("digest", ["sha256", "git"])
def test_what_was_downloaded_is_what_the_hub_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, digest: str) -> None:
    monkeypatch.setenv("DOMINOTREE_CACHE", str(tmp_path / "cache"))
    content = b"weights"
    names = {"sha256": hashlib.sha256(content).hexdigest(), "git": hashlib.sha1(b"blob 7\0" + content).hexdigest()}
    blob, snapshot = tmp_path / "blobs" / names[digest], tmp_path / "snapshots" / COMMIT
    for folder in (blob.parent, snapshot):
        folder.mkdir(parents=True)
    (snapshot / "model.safetensors").symlink_to(blob)
    blob.write_bytes(content)
    verify(snapshot, "model owner/name")
    monkeypatch.setattr("dominotree.hub._digest", lambda *_: pytest.fail("a file is read once"))
    verify(snapshot, "model owner/name")
    monkeypatch.undo()
    monkeypatch.setenv("DOMINOTREE_CACHE", str(tmp_path / "cache"))
    blob.write_bytes(b"weighty")
    with pytest.raises(
        UserError, match=f"model owner/name: model.safetensors is not the file that the Hub names; delete .*{blob.name}"
    ):
        verify(snapshot, "model owner/name")
