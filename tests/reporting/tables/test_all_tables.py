"""What holds of every table."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from dominotree.compose import CONF, load_study
from dominotree.errors import UserError
from dominotree.reporting import paper
from dominotree.reporting.catalogue import TABLES as READS
from dominotree.reporting.catalogue import check_arms, tables_of
from dominotree.reporting.layout import to_markdown
from dominotree.reporting.names import kind_of
from dominotree.reporting.source import Source
from dominotree.reporting.tables.__main__ import TABLES
from tests.reporting.tables import examples

NAMES = list(TABLES)
PRINTED_BY_DATASET = {"table12": "gsm8k", "table13": "alpaca", "tableA3": "gsm8k", "calibration": "gsm8k"}
"""A dataset that the paper has, of tables for which it has no numbers over all."""


def test_the_workflow_knows_every_table() -> None:
    assert list(READS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_cells_fit_the_columns_and_the_name_is_the_tables(name: str) -> None:
    table = TABLES[name](examples.source(name))
    assert table.name == name
    width = 1 + len(table.columns) * max(1, len(table.groups))
    assert {len(row) for section in table.sections for row in section.rows} == {width}
    assert len({section.title for section in table.sections}) == len(table.sections) > 1


@pytest.mark.parametrize("name", NAMES)
def test_the_order_of_records_does_not_matter(name: str) -> None:
    source = examples.source(name)
    shuffled = replace(source, records=source.records.sample(frac=1.0, random_state=0))
    assert to_markdown(TABLES[name](shuffled)) == to_markdown(TABLES[name](source))


@pytest.mark.parametrize("name", NAMES)
def test_models_have_sections_of_their_own_and_the_numbers_that_each_has_alone(name: str) -> None:
    records = examples.records(name)
    both = pd.concat(
        [records.assign(model="small"), records.assign(model="large", tps=2 * records.tps, run="large-" + records.run)]
    )
    table = TABLES[name](Source(both, examples.SETTING))
    alone = TABLES[name](examples.source(name))
    titles = [section.title for section in table.sections]
    assert [title for title in titles if title.startswith("small, ")] == titles[: len(titles) // 2]
    assert [title for title in titles if title.startswith("large, ")] == titles[len(titles) // 2 :]
    assert table.sections[0].rows == alone.sections[0].rows
    small = table.data[table.data.model == "small"].drop(columns="model").reset_index(drop=True)
    pd.testing.assert_frame_equal(small, alone.data.drop(columns="model").reset_index(drop=True))


@pytest.mark.parametrize(("name", "kind"), [(name, kind) for name, reads in READS.items() for kind in reads.kinds])
def test_a_table_refuses_records_without_an_arm_that_the_workflow_knows_it_needs(name: str, kind: str) -> None:
    source = examples.source(name)
    lacking = source.records[source.records.arm.map(kind_of) != kind]
    if kind.endswith("+full"):  # stands for any width
        lacking = lacking[~lacking.arm.str.contains(r"\+")]
    with pytest.raises(UserError, match="which the table needs"):
        TABLES[name](replace(source, records=lacking))


@pytest.mark.parametrize("name", sorted(path.stem for path in (CONF / "study").glob("*.yaml")))
def test_a_study_has_the_arms_of_every_table_that_it_has_a_grid_for(name: str) -> None:
    study = load_study(name)
    assert tables_of(study)
    for table in tables_of(study):
        check_arms(table, study)


def test_a_table_without_its_grid_is_refused() -> None:
    study = load_study("demo")
    few = replace(study, grids={"main": study.grids["main"]})
    assert tables_of(few) == ["table1", "table2"]
    with pytest.raises(UserError, match=r"study demo has no grid 'widths' \(known: main\)"):
        check_arms("table11", few)


def test_a_grid_without_an_arm_is_named_before_anything_is_measured() -> None:
    study = load_study("demo", "few", ["grids.main.arms=[ar,domino]"])
    check_arms("table1", study)
    with pytest.raises(UserError, match="table2 needs an arm of dominotree, and grid main of study demo-few has only ar, domino"):
        check_arms("table2", study)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "latency"])
def test_the_paper_stands_beside_where_it_printed_something(name: str) -> None:
    source = examples.source(name, beside_paper=True)
    if name in PRINTED_BY_DATASET:
        records = source.records[source.records.dataset == "math"].assign(dataset=PRINTED_BY_DATASET[name])
        source = replace(
            source, records=records.assign(budget=records.budget.replace(8, 32) if name == "table12" else records.budget)
        )
    table = TABLES[name](source)
    assert table.data.filter(regex="^paper_").notna().to_numpy().any()
    assert table.notes[-1].startswith("In parentheses: what the paper printed for qwen3-4b")
    assert not TABLES[name](replace(source, beside_paper=False)).data.filter(regex="^paper_").shape[1]


def test_a_table_beside_which_nothing_stands_says_so() -> None:
    table = TABLES["table15"](examples.source("table15", beside_paper=True))
    at_one = replace(examples.source("table15", beside_paper=True), records=examples.records("table15").query("temperature == 1"))
    assert TABLES["table15"](at_one).notes[-1] == "The paper printed nothing that these rows could be compared with."
    row = table.data.set_index(["dataset", "arm", "temperature"]).loc["Overall", "static@8", 0.0]
    assert (row.paper_tau_per_prompt, row.paper_tau_delta_percent) == (7.62, 10.1)
    assert "(7.62)" in to_markdown(table)


def test_a_model_of_the_paper_stands_beside_itself() -> None:
    source = examples.source("table2", beside_paper=True)
    table = TABLES["table2"](replace(source, records=source.records.assign(model="qwen3-8b")))
    row = table.data[(table.data.category == "Overall") & (table.data.baseline == "domino") & (table.data.temperature == 0)].iloc[
        0
    ]
    assert (row.paper_delta_percent, row.paper_ci_low, row.paper_ci_high) == (27.15, 25.27, 29.03)
    assert paper.reference_model("tiny") == "qwen3-4b"
