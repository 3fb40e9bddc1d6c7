"""The data files below `results/` of the authors' repository at one commit, checked file by file.

    python -m dominotree.published.archive                     downloads them to the cache
    python -m dominotree.published.archive --archive PATH      takes them from a tar file or a folder

The variable DOMINOTREE_PUBLISHED=PATH does the same as the option, for all that needs the files.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from lzma import LZMAError
from pathlib import Path, PurePosixPath
from urllib.request import urlopen

from dominotree.errors import UserError, exit_on_user_error
from dominotree.files import atomic_write
from dominotree.paths import cache_dir

COMMIT = "4677af5"
URL = f"https://github.com/slin-zhq/Domino-Tree/archive/{COMMIT}.tar.gz"
ROOT = "results"
MANIFEST = Path(__file__).with_name("manifest.sha256")
"""SHA-256 and path below results/ of every data file, as `sha256sum` prints them."""

SOURCE = "DOMINOTREE_PUBLISHED"
REMEDY = f"delete it and download it again, or give another with {SOURCE}=PATH"
TIMEOUT_S = 60


def read_manifest(path: Path = MANIFEST) -> dict[str, str]:
    """The digest of each file, by its path below results/."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return {name: digest for digest, name in (line.split("  ", 1) for line in lines)}


def open_archive(source: Path | None = None) -> Path:
    """The folder of the authors' `results/`, every file as the manifest says.

    source: a tar file or a folder that holds them; None for what DOMINOTREE_PUBLISHED names, else for the cache, into which they
    are downloaded once. Raises `UserError` naming what is missing or differs.
    """
    manifest = read_manifest()
    if source is None and os.environ.get(SOURCE):
        source = Path(os.environ[SOURCE])
    if source is not None and source.is_dir():
        folder = source / ROOT if (source / ROOT).is_dir() else source
        check(folder, manifest)
        return folder
    folder = cache_dir() / f"published-{COMMIT}"
    if source is not None or not folder.is_dir():
        unpack(source or download(), folder, manifest)
    else:
        check(folder, manifest)
    return folder


def download() -> Path:
    """The commit's tar file in the cache, downloaded if it is not there."""
    path = cache_dir() / f"domino-tree-{COMMIT}.tar.gz"
    if path.is_file():
        return path
    print(f"downloading {URL}", file=sys.stderr)
    try:
        with urlopen(URL, timeout=TIMEOUT_S) as response, atomic_write(path) as partial, partial.open("wb") as file:
            shutil.copyfileobj(response, file)
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise UserError(f"{URL}: not to be had ({reason}); give a copy of it with {SOURCE}=PATH") from None
    return path


def unpack(source: Path, folder: Path, manifest: Mapping[str, str]) -> None:
    """Write the files of `manifest` from the tar file `source` to `folder`, which is whole or as before."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as partial:
        whole = Path(partial, ROOT)
        try:
            with tarfile.open(source) as tar:
                for member in tar:
                    _unpack_member(tar, member, whole, manifest)
        except (OSError, tarfile.TarError, EOFError, LZMAError, zlib.error) as error:
            reason = " ".join(str(error).split())
            raise UserError(f"{source}: not a readable tar file ({reason}); {REMEDY}") from None
        check(whole, manifest, str(source))
        if folder.exists():
            shutil.rmtree(folder)
        whole.replace(folder)


def _unpack_member(tar: tarfile.TarFile, member: tarfile.TarInfo, whole: Path, manifest: Mapping[str, str]) -> None:
    """Write one member below `whole` if it is of the manifest; the path that it has in the tar file decides no place on disk."""
    tarfile.data_filter(member, str(whole.parent))  # raises on a path that leads outside
    parts = PurePosixPath(member.name).parts
    name = "/".join(parts[parts.index(ROOT) + 1 :]) if ROOT in parts else ""
    content = tar.extractfile(member) if name in manifest else None
    if content is not None:
        path = whole / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            shutil.copyfileobj(content, file)


def check(folder: Path, manifest: Mapping[str, str], where: str = "") -> None:
    """Raise `UserError` naming the first file below `folder` that is missing or differs from the manifest."""
    where = where or str(folder)
    for name, digest in manifest.items():
        try:
            content = (folder / name).read_bytes()
        except OSError:
            raise UserError(f"{where}: {ROOT}/{name} is missing; {REMEDY}") from None
        if hashlib.sha256(content).hexdigest() != digest:
            raise UserError(f"{where}: {ROOT}/{name} is not the file of commit {COMMIT}; {REMEDY}")


def add_archive_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--archive", type=Path, metavar="PATH", help="tar file or folder of the authors' results; else downloaded"
    )


@exit_on_user_error
def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m dominotree.published.archive", description=__doc__.splitlines()[0])
    add_archive_option(parser)
    print(open_archive(parser.parse_args(arguments).archive))


if __name__ == "__main__":
    main()
