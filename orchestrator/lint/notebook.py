"""The code cells of a Jupyter notebook."""

from __future__ import annotations

import json
from typing import Any


class Unreadable(ValueError):
    """The file is not a notebook."""


def cells(text: str) -> list[tuple[int, str]]:
    """Return (number of the cell from 1, its code) of code cells only. Raises Unreadable."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"it is not a notebook: {error}") from None
    listed = _cells(value)
    if listed is None:
        raise Unreadable("it is not a notebook: it has no cells")
    return [
        (number, _source(cell))
        for number, cell in enumerate(listed, 1)
        if isinstance(cell, dict) and cell.get("cell_type") == "code"
    ]


def _cells(value: Any) -> list[Any] | None:
    """Return the cells of format 4, and of format 3, which keeps them in worksheets."""
    if not isinstance(value, dict):
        return None
    if isinstance(value.get("cells"), list):
        return list(value["cells"])
    sheets = value.get("worksheets")
    if isinstance(sheets, list):
        return [c for sheet in sheets if isinstance(sheet, dict) for c in sheet.get("cells") or ()]
    return None


def _source(cell: dict[str, Any]) -> str:
    source = cell.get("source", cell.get("input", ""))
    text = "".join(str(line) for line in source) if isinstance(source, list) else str(source)
    return text.removesuffix("\n")
