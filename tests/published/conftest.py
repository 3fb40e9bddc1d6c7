"""The authors' results, unpacked once."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from dominotree.published.anomalies import anomalies
from dominotree.published.archive import read_manifest, unpack
from dominotree.published.cells import all_cells
from dominotree.published.grids import grids

ARCHIVE = Path(__file__).parents[3] / "shared" / "published" / "domino-tree-4677af5-results.tar.xz"


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The authors' `results/`."""
    if not ARCHIVE.is_file():
        pytest.skip("needs ../shared/published")
    folder = tmp_path_factory.mktemp("published") / "results"
    unpack(ARCHIVE, folder, read_manifest())
    return folder


@pytest.fixture(scope="session")
def records(results: Path) -> dict[str, pd.DataFrame]:
    """The records of every grid of the study `published`."""
    return grids(results)


@pytest.fixture(scope="session")
def cells(results: Path, records: dict[str, pd.DataFrame]) -> pd.DataFrame:
    return all_cells(results, records)


@pytest.fixture(scope="session")
def found(results: Path) -> pd.DataFrame:
    return anomalies(results)
