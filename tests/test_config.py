from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace

import pytest

from dominotree.arms import MethodSettings, parse_arms
from dominotree.compose import CONF, compose_drafters, compose_run, load_study, study_from_snakemake
from dominotree.config import TrackingConfig, parse
from dominotree.errors import UserError
from dominotree.method_names import METHOD_NAMES
from dominotree.paths import record_file
from dominotree.prompts import DATASETS


def fault(action, *arguments) -> str:
    with pytest.raises(UserError) as raised:
        action(*arguments)
    message = str(raised.value)
    assert "\n" not in message
    return message


def test_defaults():
    run = compose_run([])
    assert (run.label, run.temperature, run.model.dtype) == ("adhoc math t0", 0.0, "float32")
    assert [arm.label for arm in run.arms] == ["ar", "dflash", "ddtree@32", "caddtree", "domino", "dominotree@32"]


def test_the_readme_example():
    run = compose_run(["dataset=chat", "temperature=0.5", "arms=[ar,dominotree]", "method.dominotree.budget=64"])
    assert (run.dataset.name, run.temperature) == ("chat", 0.5)
    assert [arm.label for arm in run.arms] == ["ar", "dominotree@64"]
    assert run.arms[1].settings == MethodSettings(budget=64, children=8, candidate_width=64)


def test_an_arm_may_have_a_budget_of_its_own():
    arms = compose_run(["arms=[ddtree,ddtree@16]"]).arms
    assert [(arm.label, arm.method, arm.settings.budget) for arm in arms] == [
        ("ddtree@32", "ddtree", 32),
        ("ddtree@16", "ddtree", 16),
    ]


def test_null_candidate_width_is_the_full_vocabulary():
    assert compose_run(["arms=[dominotree]", "method.dominotree.candidate_width=null"]).arms[0].settings.candidate_width is None


def test_every_method_and_dataset_has_a_conf_file():
    assert {path.stem for path in CONF.glob("method/*.yaml")} == set(METHOD_NAMES)
    assert {path.stem for path in CONF.glob("dataset/*.yaml")} == set(DATASETS)
    assert [arm.method for arm in compose_run([f"arms=[{','.join(METHOD_NAMES)}]"]).arms] == list(METHOD_NAMES)


@pytest.mark.parametrize(
    "overrides, words",
    [
        ("datset=chat", ["datset", "did you mean dataset?"]),
        ("dataset=chatt", ["dataset", "chatt", "did you mean chat?"]),
        ("dataset=3", ["dataset=3"]),
        ("dataset.name=gsm", ["dataset", "unknown dataset 'gsm'"]),
        ("model=qwen", ["model", "qwen", "did you mean qwen3-8b?"]),
        ("model=local", ["model.target"]),
        ("study=dmo", ["study", "did you mean demo?"]),
        ("grid=main", ["study adhoc has no grid 'main'"]),
        ("arms=[ar,domintree]", ["domintree", "did you mean dominotree?"]),
        ("arms=[ar,ar]", ["ar", "twice"]),
        ("arms=[ddtree,ddtree@32]", ["ddtree@32", "twice"]),
        ("arms=[ar@3]", ["ar has no fixed budget"]),
        ("arms=[ddtree@0]", ["ddtree@0", "positive"]),
        ("arms=[ddtree@x]", ["ddtree@x", "positive"]),
        ("arms=[]", ["arms", "at least one"]),
        ("arms=ar", ["arms", '"ar"']),
        ("arms=[ar", ["arms=[ar"]),
        ("method.dominotree.budgt=3", ["did you mean method.dominotree.budget?"]),
        ("method.ar.budget=3", ["method.ar.budget"]),
        ("method.dominotree.budget=0", ["method.dominotree.budget", "greater than 0", "not 0"]),
        ("method.dominotree.budget=-1", ["method.dominotree.budget", "not -1"]),
        ("method.dominotree.budget=1.5", ["method.dominotree.budget", "not 1.5"]),
        ("method.dominotree.budget=null", ["method.dominotree.budget", "null"]),
        ("method.dominotree.budget=64,32", ["-m"]),
        ("method.dominotree.children=65", ["method.dominotree", "children=65", "candidate_width=64"]),
        ("method.dominotree.candidate_width=7", ["children=8", "candidate_width=7"]),
        ("method.caddtree.cap=65", ["caddtree", "cap=65", "cost_model.sizes"]),
        ("method.dominotree=3", ["method.dominotree", "not 3"]),
        ("method.caddtree.cap=0", ["method.caddtree.cap", "not 0"]),
        ("temperature=-1", ["temperature", "not -1"]),
        ("temperature=nan", ["temperature", "finite"]),
        ("temperature=inf", ["temperature", "finite"]),
        ("temperature=hot", ["temperature", '"hot"']),
        ("max_new_tokens=0", ["max_new_tokens", "not 0"]),
        ("dataset.num_prompts=0", ["dataset.num_prompts", "not 0"]),
        ("engine.sampling=key", ["engine.sampling", "'keyed' or 'multinomial'"]),
        ("+foo=1", ["+foo=1"]),
        ("~dataset", ["~dataset"]),
        ("foo", ["foo", "key=value"]),
        ("=3", ["=3"]),
    ],
)
def test_a_bad_override_is_one_line(overrides, words):
    message = fault(compose_run, [overrides])
    assert all(word in message for word in words), message


def test_study():
    study = load_study("demo")
    assert str(study.folder) == "results/demo"
    main = [run for run in study.runs if run.grid == "main"]
    assert {(run.dataset.name, run.temperature) for run in main} == {(d, t) for d in ("math", "code", "chat") for t in (0.0, 1.0)}
    assert study.grids["main"].arms == ("ar", "dflash", "ddtree@8", "caddtree", "domino", "dominotree@8")


def test_the_record_files_of_a_grid_are_those_that_its_runs_write():
    study = load_study("demo")
    for purpose in {grid.partition("_")[0] for grid in study.grids}:
        runs = [run for run in study.runs if run.grid in study.grids_for(purpose)]
        written = [run.records / record_file(run.dataset.name, run.temperature, arm.label) for run in runs for arm in run.arms]
        assert study.record_files(purpose) == written


def test_grids_of_one_purpose_are_read_together():
    study = load_study("demo")
    main = study.grids["main"]
    others = {"main_8b": replace(main, arms=("ar",)), "maintenance": main}
    study = replace(study, grids=study.grids | others)
    files = study.record_files("main")
    assert [path for path in files if "main_8b" in path.parts] == [
        study.folder / "records/main_8b" / record_file(d, t, "ar") for d in main.datasets for t in main.temperatures
    ]
    assert {path.parts[3] for path in files} == {"main", "main_8b"}
    assert "did you mean main?" in fault(study.record_files, "mian")


def test_a_command_line_makes_the_very_run():
    for study in (load_study("demo"), load_study("demo", "m32", ["method.dominotree.candidate_width=32"])):
        for run in {run.grid: run for run in study.runs}.values():
            assert compose_run(study.command_line(run)) == run


def test_a_grid_may_have_sizes_of_its_own_and_an_override_goes_before_them(monkeypatch, tmp_path):
    conf = tmp_path / "conf"
    shutil.copytree(CONF, conf)
    text = (conf / "study/demo.yaml").read_text()
    small = "grids:\n  small: {datasets: [chat], temperatures: [0.0], arms: [ar], num_prompts: 2, max_new_tokens: 7}\n"
    (conf / "study/demo.yaml").write_text(text.replace("grids:", small, 1).replace("# each is", "  # each is"))
    monkeypatch.setattr("dominotree.compose.CONF", conf)

    def sizes(*arguments) -> dict[str, tuple[int | None, int]]:
        return {run.grid: (run.dataset.num_prompts, run.max_new_tokens) for run in load_study(*arguments).runs}

    assert sizes("demo")["small"] == (2, 7) and sizes("demo")["main"] == (None, 20)
    changed = sizes("demo", "tiny", ["max_new_tokens=3", "dataset.num_prompts=1"])
    assert changed["small"] == changed["main"] == (1, 3)


def test_how_tables_are_shown_makes_no_other_study():
    study, plain = load_study("demo", None, ["tables.beside_paper=true"]), load_study("demo")
    assert study.tables.beside_paper and not plain.tables.beside_paper
    assert replace(study, tables=plain.tables) == plain
    assert "tables.beside_paper" in fault(load_study, "demo", None, ["tables.beside_paper=3"])


def test_a_study_from_elsewhere_has_grids_and_no_runs(monkeypatch, tmp_path):
    conf = tmp_path / "conf"
    shutil.copytree(CONF, conf)
    (conf / "study/found.yaml").write_text(
        "# @package _global_\nstudy: found\nsource: found\n"
        "grids: {main: {datasets: [gsm8k], temperatures: [0.0], arms: [ar, dominotree@16]}}\n"
    )
    monkeypatch.setattr("dominotree.compose.CONF", conf)
    study = load_study("found")
    assert (study.source, study.runs) == ("found", ())
    assert study.record_files("main") == [
        study.folder / "records/main/gsm8k/t0" / f"{arm}.parquet" for arm in ("ar", "dominotree@16")
    ]
    assert "not measured" in fault(compose_run, ["study=found"])


def test_a_variant_is_kept_apart():
    variant = load_study("demo", "m32", ["method.dominotree.candidate_width=32"])
    assert str(variant.folder) == "results/demo-m32"
    assert variant.runs[0].arms[-1].settings.candidate_width == 32
    assert variant.runs[0].digest != load_study("demo").runs[0].digest


def test_a_variant_may_change_the_grid():
    study = load_study(
        "demo", "cool", ["grids.main.temperatures=[0.5]", "grids.main.datasets=[chat]", "grids.main.arms=[ar,domino]"]
    )
    assert [run.label for run in study.runs if run.grid == "main"] == ["demo-cool main chat t0.5"]
    assert study.grids["main"].arms == ("ar", "domino")


@pytest.mark.parametrize(
    "variant, override, words",
    [
        (None, "max_new_tokens=3", ["variant=mine", "max_new_tokens=3"]),
        ("v", "temperature=1", ["temperature", "grids.main.temperatures=[0.5]"]),
        ("v", "dataset=chat", ["dataset", "grids.main.datasets=[chat]"]),
        ("v", "arms=[ar]", ["arms", "grids.main.arms=[ar,dominotree]"]),
        ("v", "grids.main.datasets=[foo]", ["foo", "chat"]),
        ("v", "grids.main.temperatures=[-1]", ["grids.main.temperatures", "not -1"]),
        ("v", "grids.main.temperatures=[]", ["grids.main.temperatures", "at least 1"]),
        ("v", "grids.main.datsets=[chat]", ["did you mean grids.main.datasets?"]),
        ("v", "grids.mian.datasets=[chat]", ["did you mean grids.main"]),
        ("v", "study=other", ["--config study="]),
        ("v", "grid=main", ["grid is not an override"]),
        ("A/b", "max_new_tokens=3", ["variant", "A/b"]),
    ],
)
def test_a_bad_study_override_is_one_line(variant, override, words):
    message = fault(load_study, "demo", variant, [override])
    assert all(word in message for word in words), message


@pytest.mark.parametrize("override", ["temperature=0.5", "arms=[ar]", "max_new_tokens=3"])
def test_a_run_of_a_study_is_a_point_of_its_grid(override):
    fault(compose_run, ["study=demo", override])


def test_a_run_of_a_study_is_of_one_of_its_grids():
    assert "did you mean main?" in fault(compose_run, ["study=demo", "grid=mian"])


def test_snakemake_values_are_coerced_or_refused():
    assert study_from_snakemake({"variant": "v", "overrides": "max_new_tokens=5"}).runs[0].max_new_tokens == 5
    assert "did you mean overrides?" in fault(study_from_snakemake, {"overides": []})
    assert "list" in fault(study_from_snakemake, {"overrides": 3, "variant": "v"})
    assert "list" in fault(study_from_snakemake, {"overrides": [{"a": 1}], "variant": "v"})
    assert "variant" in fault(study_from_snakemake, {"variant": 3})


def test_the_digest_names_what_decides_a_number():
    run = compose_run(["arms=[ar,dominotree]"])
    assert run.digest == replace(run, tracking=TrackingConfig("disabled"), results="elsewhere").digest
    assert run.digest == compose_run(["arms=[ar,dominotree]", "method.static.budget=5"]).digest  # of a method that has no arm
    others = ["temperature=1", "method.dominotree.budget=16", "max_new_tokens=9", "seed=1", "engine.threads=1"]
    assert len({run.digest, *(compose_run(["arms=[ar,dominotree]", other]).digest for other in others)}) == len(others) + 1


def test_runs_outside_a_study_are_kept_apart():
    folders = {compose_run([f"temperature={t}"]).folder for t in (0, 0.5, 0.5)}
    assert len(folders) == 2
    assert all(not set("=,") & set(str(folder)) for folder in folders)


def test_drafters():
    config = compose_drafters(["training=dflash", "output=there", "conversations=[/tmp/corpus.jsonl]"])
    assert (config.training["kind"], config.output, config.conversations) == ("dflash", "there", ("/tmp/corpus.jsonl",))
    assert "did you mean training.steps?" in fault(compose_drafters, ["training.stps=3"])


def test_training_settings_fit_their_schemas():
    from dominotree.training.corpus import CorpusConfig
    from dominotree.training.train import TrainingConfig

    for kind in ("domino", "dflash"):
        config = compose_drafters([f"training={kind}"])
        assert parse(TrainingConfig, config.training).kind == kind
        assert parse(CorpusConfig, config.corpus).batches


def test_no_budget_means_no_mark_in_the_label():
    arms = parse_arms(["ar", "caddtree"], {"ar": {}, "caddtree": {"cap": 8}}, {})
    assert [arm.label for arm in arms] == ["ar", "caddtree"]


def test_a_variant_changes_what_its_method_has():
    plain, varied, both = compose_run(["arms=[dominotree,dominotree@16+heap,dominotree@16+tail+m16]"]).arms
    assert (varied.label, varied.method, varied.settings) == (
        "dominotree@16+heap",
        "dominotree",
        replace(plain.settings, budget=16, builder="heap"),
    )
    assert both.label == "dominotree@16+m16+tail", "in one order, however it is written"
    assert (both.settings.candidate_width, both.settings.normaliser) == (16, "tail")
    assert compose_run(["arms=[dominotree+full]"]).arms[0].settings.candidate_width is None


@pytest.mark.parametrize(
    "arm, words",
    [
        ("dominotree+hepa", "unknown variant 'hepa' of dominotree; did you mean heap"),
        ("ddtree+tail", "ddtree has no normaliser to vary"),
        ("ar+heap", "ar has no builder to vary"),
        ("dartree+heap", "width=12 is the frontier's"),
        ("dominotree@8+", "unknown variant ''"),
    ],
)
def test_a_variant_that_does_not_fit_is_refused(arm, words):
    assert words in fault(compose_run, [f"arms=[{arm}]"])


def test_configuration_needs_no_torch():
    check = "import sys, dominotree.compose; sys.exit('torch' in sys.modules or 'pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check]).returncode == 0
