from __future__ import annotations

import re
from html import unescape

import pandas as pd

from dominotree.reporting.html import to_html
from dominotree.reporting.layout import Cell, Section, Table


def rows(page: str) -> list[list[tuple[str, str]]]:
    """The cells of a table row by row: how many columns or rows each spans, and its text."""
    cells = r"<t[dh](?: (\w+=\d))?>(.*?)</t[dh]>"
    return [
        [(span, unescape(re.sub("<.*?>", "", text))) for span, text in re.findall(cells, row)]
        for row in re.findall(r"<tr.*?>(.*?)</tr>", page)
    ]


def test_a_page_holds_caption_cells_and_notes_as_they_are():
    cells = (Cell("a < b"), Cell("1.00", bold=True, beside="0.90"), Cell("2.00"), Cell("3.00"), Cell("4.00"))
    section = Section("T = 0", (cells,))
    table = Table("t", "Speed & more.", "Arm", ("x", "y"), ("s", "t"), (section,), ("One note.",), pd.DataFrame())
    page = to_html(table)
    assert rows(page) == [
        [("rowspan=2", "Arm"), ("colspan=2", "x"), ("colspan=2", "y")],
        [("", "s"), ("", "t"), ("", "s"), ("", "t")],
        [("colspan=5", "T = 0")],
        [("", "a < b"), ("", "1.00 (0.90)"), ("", "2.00"), ("", "3.00"), ("", "4.00")],
    ]
    assert "<p>Speed &amp; more.</p>" in page and '<p class="note">One note.</p>' in page
    assert re.findall("<b>(.*?)</b>", page) == ["1.00"]


def test_a_table_without_groups_has_one_line_of_headings():
    section = Section("T = 0", ((Cell("ar"), Cell("1.00")),))
    page = to_html(Table("t", "c", "Arm", (), ("s",), (section,), (), pd.DataFrame()))
    assert rows(page)[0] == [("", "Arm"), ("", "s")]
