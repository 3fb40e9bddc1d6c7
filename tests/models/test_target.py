from __future__ import annotations

from pathlib import Path

import huggingface_hub
import pytest

from dominotree.compose import compose_run
from dominotree.errors import UserError
from dominotree.models.target import target_commit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def test_the_commit_of_a_target_on_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def snapshot_download(repo: str, *, revision: str, **_: object) -> str:
        asked.append((repo, revision))
        return f"/cache/snapshots/{COMMIT}"

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    assert target_commit("Qwen/Qwen3-4B", "v1") == target_commit("Qwen/Qwen3-4B") == COMMIT
    assert asked == [("Qwen/Qwen3-4B", "v1"), ("Qwen/Qwen3-4B", "main")]


def test_a_folder_has_no_commit(tmp_path: Path) -> None:
    assert target_commit(str(tmp_path)) is None
    with pytest.raises(UserError, match="no such folder"):
        target_commit(str(tmp_path / "absent"))


@pytest.mark.parametrize("size", ["4B", "8B"])
def test_the_papers_models(size: str) -> None:
    model = compose_run([f"model=qwen3-{size.lower()}"]).model
    assert (model.target, model.dtype, model.revision) == (f"Qwen/Qwen3-{size}", "bfloat16", "main")
    assert model.drafters == {"dflash": f"z-lab/Qwen3-{size}-DFlash-b16", "domino": f"Huang2020/Qwen3-{size}-Domino-b16"}
