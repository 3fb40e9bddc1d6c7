"""The report of the workflow: what is in it, under which category, and what its captions say of where it comes from."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline import SMALL, finish


def given(page: str, variable: str) -> Any:
    """What the script of a page gives a variable."""
    start = re.search(rf"var {variable} = (?=\{{)", page).end()
    return json.JSONDecoder().raw_decode(page, start)[0]


@pytest.fixture
def page(snakemake, tmp_path: Path) -> str:
    file = tmp_path / "report.html"
    finish(snakemake("table1", "figure_speedup", "--config", *SMALL, "--report-after-run", "--report", str(file)))
    return file.read_text()


def test_tables_and_figures_are_shown_with_captions_that_say_where_they_come_from(page):
    results = given(page, "results")
    table, figure = (f"results/demo-small/{place}" for place in ("tables/table1.html", "figures/speedup.png"))
    assert given(page, "categories") == {"Tables": {"Other": [table]}, "Figures": {"Other": [figure]}}
    assert [results[table]["mime_type"], results[figure]["mime_type"]] == ["text/html", "image/png"]
    for name, result in results.items():
        caption = re.sub("<.*?>", "", result["caption"])
        assert Path(name).stem in caption and "6 record files" in caption
        assert "results/demo-small/records/main/chat/t0.5/ar.parquet to" in " ".join(caption.split())
        assert re.search(r"stats\.py [0-9a-f]{16}", caption) and "results/demo-small/logs/" in caption
        assert "mailto:" not in result["caption"]
    shown = base64.b64decode(results[table]["data_uri"].partition("base64,")[2]).decode()
    assert "DominoTree (8)" in shown and "<table>" in shown
    assert {"measure_main", "table", "figure"} <= set(given(page, "rules"))
