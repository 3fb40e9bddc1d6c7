"""Fetching and checking the authors' files."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from dominotree.errors import UserError
from dominotree.published import archive
from dominotree.published.archive import check, main, open_archive, read_manifest, unpack

FILES = {"raw/a.jsonl": b'{"tps": 1.0}\n', "tables/b.csv": b"temp,tps\n"}
MANIFEST = {name: hashlib.sha256(content).hexdigest() for name, content in FILES.items()}


def write_tar(path: Path, files: Mapping[str, bytes], prefix: str = "Domino-Tree-4677af5/results/") -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(prefix + name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


@pytest.fixture(autouse=True)
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A manifest of two files, a cache of the test's own, and no archive given."""
    manifest = tmp_path / "manifest.sha256"
    manifest.write_text("".join(f"{digest}  {name}\n" for name, digest in MANIFEST.items()))
    monkeypatch.setattr(archive, "read_manifest", lambda: read_manifest(manifest))
    monkeypatch.setenv("DOMINOTREE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("DOMINOTREE_PUBLISHED", raising=False)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("prefix", ["Domino-Tree-4677af5/results/", "results/"])
def test_only_what_the_manifest_names_is_unpacked(tmp_path: Path, prefix: str) -> None:
    tar = write_tar(tmp_path / "a.tar.gz", FILES | {"raw/script.py": b"print()"}, prefix)
    assert contents(open_archive(tar)) == FILES


def test_a_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    for name, content in FILES.items():
        (tmp_path / "results" / name).parent.mkdir(parents=True)
        (tmp_path / "results" / name).write_bytes(content)
    assert open_archive(tmp_path) == open_archive(tmp_path / "results") == tmp_path / "results"


def test_the_environment_names_an_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOMINOTREE_PUBLISHED", str(write_tar(tmp_path / "a.tar.gz", FILES)))
    assert contents(open_archive()) == FILES


def test_it_is_downloaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    tar = write_tar(tmp_path / "a.tar.gz", FILES)
    monkeypatch.setattr(archive, "URL", tar.as_uri())
    assert contents(open_archive()) == FILES
    tar.unlink()
    assert contents(open_archive()) == FILES
    assert capsys.readouterr().err.count("downloading") == 1


def test_a_download_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "URL", (tmp_path / "nowhere.tar.gz").as_uri())
    with pytest.raises(
        UserError, match=r"nowhere.tar.gz: not to be had \(.*\); give a copy of it with DOMINOTREE_PUBLISHED=PATH"
    ):
        open_archive()
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("files", "fault"),
    [
        ({"raw/a.jsonl": FILES["raw/a.jsonl"]}, "a.tar.gz: results/tables/b.csv is missing"),
        (FILES | {"raw/a.jsonl": b"{}"}, "a.tar.gz: results/raw/a.jsonl is not the file of commit 4677af5"),
    ],
)
def test_what_is_missing_or_other_is_named_and_nothing_is_left(tmp_path: Path, files: Mapping[str, bytes], fault: str) -> None:
    with pytest.raises(UserError, match=fault):
        open_archive(write_tar(tmp_path / "a.tar.gz", files))
    assert os.listdir(tmp_path / "cache") == []


def test_a_file_that_changed_in_the_cache_is_found(tmp_path: Path) -> None:
    folder = open_archive(write_tar(tmp_path / "a.tar.gz", FILES))
    (folder / "raw/a.jsonl").write_bytes(b"{}")
    with pytest.raises(UserError, match=r"results/raw/a.jsonl is not the file of commit"):
        open_archive()


def test_a_new_archive_takes_the_place_of_the_cache_only_if_it_is_whole(tmp_path: Path) -> None:
    good, bad = write_tar(tmp_path / "good.tar.gz", FILES), write_tar(tmp_path / "bad.tar.gz", {})
    folder = open_archive(good)
    with pytest.raises(UserError, match="is missing"):
        open_archive(bad)
    assert contents(folder) == FILES
    assert open_archive(good) == folder


@pytest.mark.parametrize("length", [0, 10, 100])
def test_a_truncated_tar_is_refused(tmp_path: Path, length: int) -> None:
    tar = write_tar(tmp_path / "a.tar.gz", {"raw/a.jsonl": os.urandom(4096)})
    tar.write_bytes(tar.read_bytes()[:length])
    with pytest.raises(UserError, match=r"a.tar.gz: not a readable tar file \(.*\); delete it and download it again"):
        open_archive(tar)


@pytest.mark.parametrize("prefix", ["../results/", "x/results/../../../", "results/../../"])
def test_a_path_that_leads_outside_is_refused(tmp_path: Path, prefix: str) -> None:
    tar = write_tar(tmp_path / "a.tar.gz", FILES, prefix)
    with pytest.raises(UserError, match="outside"):
        unpack(tar, tmp_path / "deep" / "down" / "results", MANIFEST)
    assert contents(tmp_path / "deep") == {}


def test_a_link_that_leads_outside_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        link = tarfile.TarInfo("results/raw/a.jsonl")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    with pytest.raises(UserError, match="not a readable tar file"):
        unpack(path, tmp_path / "results", MANIFEST)


def test_a_missing_tar_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--archive", str(tmp_path / "none.tar")])
    assert "none.tar: not a readable tar file" in capsys.readouterr().err


def test_the_manifest_agrees_with_the_authors_own(results: Path) -> None:
    """They published digests of the serving files; a few of those files, marks of finished jobs, are not data."""
    lines = (results / "serving" / "MANIFEST.sha256").read_text().splitlines()
    theirs = {f"serving/{name}": digest for digest, name in (line.split("  ", 1) for line in lines)}
    ours = read_manifest()
    common = theirs.keys() & ours.keys()
    assert len(common) == 248
    assert all(theirs[name] == ours[name] for name in common)
    check(results, ours)
