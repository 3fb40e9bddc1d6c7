"""Tables as pages of their own, for the report of the workflow and for a browser."""

from __future__ import annotations

from html import escape

from dominotree.reporting.layout import Cell, Table

STYLE = (
    "body{font:15px/1.4 sans-serif;margin:1.5em;color:#111;background:#fff}"
    "table{border-collapse:collapse;border-top:2px solid;border-bottom:2px solid;margin:1em 0}"
    "th,td{padding:.2em .7em;text-align:right;white-space:nowrap}"
    "th:first-child,td:first-child{text-align:left}"
    "thead th{font-weight:normal;border-bottom:1px solid}"
    "thead th[colspan]{text-align:center}"
    "tr.title td{border-top:1px solid;font-style:italic;text-align:left}"
    "p.note{font-size:.85em;margin:.3em 0;max-width:60em}"
)


def to_html(table: Table) -> str:
    """A whole page: caption, table, notes."""
    columns = list(table.columns) * max(1, len(table.groups))
    stub = f"<th{' rowspan=2' if table.groups else ''}>{escape(table.stub)}</th>"
    groups = "".join(f"<th colspan={len(table.columns)}>{escape(group)}</th>" for group in table.groups)
    names = "".join(f"<th>{escape(column)}</th>" for column in columns)
    head = f"<tr>{stub}{groups}</tr>\n<tr>{names}</tr>" if groups else f"<tr>{stub}{names}</tr>"
    lines = [
        "<!DOCTYPE html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{escape(table.name)}</title><style>{STYLE}</style></head><body>',
        f"<p>{escape(table.caption)}</p>",
        f"<table><thead>{head}</thead><tbody>",
    ]
    for section in table.sections:
        lines.append(f'<tr class="title"><td colspan={1 + len(columns)}>{escape(section.title)}</td></tr>')
        lines += [f"<tr>{''.join(map(_cell, row))}</tr>" for row in section.rows]
    notes = [f'<p class="note">{escape(note)}</p>' for note in table.notes]
    return "\n".join([*lines, "</tbody></table>", *notes, "</body></html>"]) + "\n"


def _cell(cell: Cell) -> str:
    text = f"<b>{escape(cell.text)}</b>" if cell.bold else escape(cell.text)
    return f"<td>{text}{f' ({escape(cell.beside)})' if cell.beside else ''}</td>"
