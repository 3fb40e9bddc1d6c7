"""What lies on the Hugging Face Hub: a repository's files at one commit. Needs no torch."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from dominotree.errors import UserError
from dominotree.paths import cache_dir

Kind = Literal["model", "dataset"]
IN_EVERY_REPOSITORY = ".gitattributes"
MAIN = "main"
"""The revision where none is given."""


def fetch(repo: str, revision: str, patterns: Sequence[str], kind: Kind = "model") -> Path:
    """The folder of a repository's files that match `patterns`, downloaded where the cache lacks them.

    revision: a branch, a tag or a commit. The folder's name is the commit that it stands for. Raises `UserError` if there is
    no such repository or revision, neither a connection nor a copy in the cache, or a file that is not what the Hub says.
    """
    # Imported here, because only what comes from the Hub needs it.
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        HFValidationError,
        HTTPError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    place = f"{kind} {repo}"
    try:
        folder = Path(snapshot_download(repo, repo_type=kind, revision=revision, allow_patterns=list(patterns)))
    except RevisionNotFoundError:
        raise UserError(f"{place}: the Hub has no revision '{revision}' of it") from None
    except RepositoryNotFoundError:
        raise UserError(f"{place}: not on the Hub, or not open to you; check the name, or log in with `hf auth login`") from None
    except HFValidationError:
        raise UserError(f"{place}: not a name on the Hub, which is of the form owner/name") from None
    except (LocalEntryNotFoundError, ConnectionError):
        raise UserError(f"{place}: not in the cache, and the Hub cannot be reached; check the connection") from None
    except (HTTPError, OSError) as error:
        raise UserError(f"{place}: not to be had from the Hub ({' '.join(str(error).split())})") from None
    verify(folder, place)
    return folder


def verify(folder: Path, place: str) -> None:
    """Raise `UserError` if a file of a folder of the Hub's cache is not the one that the Hub names; each is read once for it.

    The cache keeps a file under the name of its digest: of a large one its SHA-256, of a small one what git calls it by.
    """
    for path in sorted(path for path in folder.rglob("*") if path.is_symlink()):
        blob = path.resolve()
        about = blob.stat()
        mark = cache_dir() / "verified" / f"{blob.name}-{about.st_size}-{about.st_mtime_ns}"
        if mark.is_file():
            continue
        if _digest(blob, about.st_size) != blob.name:
            raise UserError(f"{place}: {path.name} is not the file that the Hub names; delete {blob} to have it fetched again")
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()


def _digest(blob: Path, size: int) -> str:
    sha1 = len(blob.name) == hashlib.sha1().digest_size * 2
    found = hashlib.sha1(f"blob {size}\0".encode()) if sha1 else hashlib.sha256()
    with blob.open("rb") as file:
        while piece := file.read(1 << 20):
            found.update(piece)
    return found.hexdigest()


def resolve(repo: str, revision: str, kind: Kind = "model") -> str:
    """The commit that `revision` stands for, at the last time that the Hub could be asked. Raises as `fetch` does."""
    return fetch(repo, revision, [IN_EVERY_REPOSITORY], kind).name


def commit_of(folder: Path) -> str | None:
    """The commit of a folder that `fetch` gave; None for any other folder."""
    return folder.name if folder.parent.name == "snapshots" else None


def cache_folder() -> Path:
    """Where downloads from the Hub are kept."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def cached_bytes(repo: str, kind: Kind = "model") -> int:
    """How much of a repository is in the cache, of whatever commits."""
    blobs = cache_folder() / f"{kind}s--{repo.replace('/', '--')}" / "blobs"
    return sum(path.stat().st_size for path in blobs.iterdir()) if blobs.is_dir() else 0
