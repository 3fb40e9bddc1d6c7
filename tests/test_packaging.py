from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

import dominotree

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
PINS = [*PROJECT["dependencies"], *EXTRAS["tracking"], *EXTRAS["serving"], *EXTRAS["test"]]
LOCKS = ("requirements.lock", "requirements-torch.lock")
PICKLES = {"pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
LOADERS = {"torch.load", "np.load", "numpy.load", "pd.read_pickle", "yaml.load", "yaml.unsafe_load", "eval", "exec"}


@pytest.mark.parametrize("pin", PINS)
def test_every_dependency_is_pinned(pin):
    (specifier,) = Requirement(pin).specifier
    assert specifier.operator == "==" and "*" not in specifier.version


def test_the_conda_environment_has_the_same_pins():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    (from_pip,) = [entry["pip"] for entry in environment if isinstance(entry, dict)]
    assert from_pip == PINS
    (python,) = [entry.partition("=")[2] for entry in environment if isinstance(entry, str) and entry.startswith("python=")]
    assert python in SpecifierSet(PROJECT["requires-python"])


def locked(*files: str) -> dict[str, set[str]]:
    """The versions of every package that lock files name."""
    found: dict[str, set[str]] = {}
    for file in files:
        for name, pinned in re.findall(r"^([a-z0-9.-]+)==(\S+)", (ROOT / file).read_text(), re.MULTILINE):
            found.setdefault(name, set()).add(pinned)
    return found


def installed(name: str) -> str | None:
    try:
        return version(name).partition("+")[0]  # of torch the build
    except PackageNotFoundError:
        return None


def unlocked(pin: str, lock: dict[str, set[str]], seen: set[tuple[str, ...]], wanted: tuple[str, ...] = ("",)) -> Iterator[str]:
    """What the lock lacks of a requirement, if it is one of the extras `wanted` of what names it, and of all that it brings.

    What a package brings is read where its locked version is installed.
    """
    requirement = Requirement(pin)
    if requirement.marker and not any(requirement.marker.evaluate({"extra": extra}) for extra in wanted):
        return
    name, extras = canonicalize_name(requirement.name), (*sorted(requirement.extras), "")
    if not any(requirement.specifier.contains(known, prereleases=True) for known in lock.get(name, ())):
        yield pin
    elif (name, *extras) not in seen and installed(name) in lock[name]:
        seen.add((name, *extras))
        for brought in requires(name) or ():
            yield from unlocked(brought, lock, seen, extras)


def test_the_lock_has_the_pins_and_all_that_they_bring():
    lock, seen = locked(*LOCKS), set()
    missing = [lacking for pin in PINS for lacking in unlocked(pin, lock, seen)]
    assert not missing, f"{missing}: .ci/lock makes the lock files again"
    assert len(seen) > len(PROJECT["dependencies"])
    for requirement in map(Requirement, PINS):
        assert {str(requirement.specifier)} == {f"=={pinned}" for pinned in lock[canonicalize_name(requirement.name)]}


def test_a_pin_that_was_changed_without_the_lock_is_found():
    assert list(unlocked("numpy==0.1", locked(*LOCKS), set())) == ["numpy==0.1"]
    assert list(unlocked("never-heard-of", locked(*LOCKS), set())) == ["never-heard-of"]


def test_every_locked_file_has_a_hash_but_what_torch_brings():
    entries = re.split(r"\n(?=\S)", (ROOT / LOCKS[0]).read_text().strip())
    assert len(entries) > 100
    assert all(re.fullmatch(r"\S+==[^\n]+?(?: \\\n    --hash=sha256:[0-9a-f]{64})+", entry) for entry in entries)
    assert {name.partition("-")[0] for name in locked(LOCKS[1])} == {"torch", "nvidia", "cuda"}


def test_ci_installs_what_is_locked():
    script = (ROOT / ".ci/run").read_text()
    assert "--require-hashes --no-deps -r requirements.lock" in script and "-c requirements-torch.lock" in script


def sources() -> list[Path]:
    return [path for folder in ("dominotree", "benchmarks", "notebooks") for path in sorted(ROOT.glob(f"{folder}/**/*.py"))]


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_is_unpickled_and_no_foreign_code_is_run(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = {alias.name for alias in node.names} | {getattr(node, "module", None) or ""}
            assert not {name.partition(".")[0] for name in names} & PICKLES
        if isinstance(node, ast.Call):
            called, given = ast.unparse(node.func), {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            assert called not in LOADERS
            if re.fullmatch(r"Auto\w+\.from_pretrained", called) and "**read" not in ast.unparse(node):
                assert given["trust_remote_code"] == "False"


def test_licence_and_citation():
    assert (ROOT / "LICENSE").read_text().split()[:4] == ["Apache", "License", "Version", "2.0,"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["license"] == "Apache-2.0" and citation["version"] == PROJECT["version"]
    paper = citation["preferred-citation"]
    assert paper["title"].startswith("DominoTree: ") and paper["url"].endswith("/2607.08642")
    shipped = (ROOT / "dominotree/assets/README.md").read_text()
    assert all(folder.name in shipped for folder in (ROOT / "dominotree/assets").iterdir() if folder.is_dir())
    notice = (ROOT / "dominotree/NOTICE.md").read_text()
    assert "Apache-2.0" in shipped
    for path in ("prompts/embedded", "assets", "reporting/printed", "published/manifest.sha256"):
        assert (ROOT / "dominotree" / path).exists() and f"`{path}" in notice


def test_one_version():
    assert dominotree.__version__ == PROJECT["version"]


def test_what_the_package_imports_is_declared():
    declared = {re.split("[=<>]", pin)[0] for pin in (*PROJECT["dependencies"], *EXTRAS["tracking"], *EXTRAS["serving"])}
    other_names = {
        "hydra": "hydra-core",
        "omegaconf": "hydra-core",
        "httpx": "guidellm",  # whose client it is
        "huggingface_hub": "transformers",
        "tokenizers": "transformers",
        "wandb_workspaces": "wandb-workspaces",
    }
    text = "\n".join(file.read_text() for file in ROOT.glob("dominotree/**/*.py"))
    imported = set(re.findall(r"^ *(?:from|import) (\w+)", text, re.MULTILINE)) - sys.stdlib_module_names - {"dominotree"}
    assert {other_names.get(name, name) for name in imported} <= declared


@pytest.mark.parametrize("path", ["results/demo/tables/table2.md", "wandb/x", "results/wandb/x", ".snakemake/log/x"])
def test_what_the_pipeline_makes_is_ignored_by_git(path):
    ignored = subprocess.run(["git", "-C", str(ROOT), "check-ignore", "-q", path])
    assert ignored.returncode == 0


@pytest.mark.parametrize(
    "path", ["dominotree/assets/smollm2-135m-domino/model.safetensors", "conf/run.yaml", "profiles/default/config.yaml"]
)
def test_what_the_repository_carries_is_not_ignored_by_git(path):
    ignored = subprocess.run(["git", "-C", str(ROOT), "check-ignore", "-q", path])
    assert ignored.returncode == 1
