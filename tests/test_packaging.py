from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import dominotree

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PINS = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["test"]]


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


def test_one_version():
    assert dominotree.__version__ == PROJECT["version"]


def test_what_the_package_imports_is_declared():
    declared = {re.split("[=<>]", pin)[0] for pin in PROJECT["dependencies"]}
    other_names = {"hydra": "hydra-core", "omegaconf": "hydra-core", "huggingface_hub": "transformers"}
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
