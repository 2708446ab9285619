"""A page for each kind of error: what happened, what still exists and may cost money, what to do.
docs/errors.md is generated from them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orchestrator.report.explained import calls, runs
from orchestrator.report.explained.page import Explanation

__all__ = ["PAGES", "Explanation", "list_text", "text_of"]

PAGES: Mapping[str, Explanation] = {page.code: page for page in (*calls.PAGES, *runs.PAGES)}
"""By code, in the order of the tree in errors.py."""


def list_text(pages: Sequence[Explanation]) -> str:
    """Return one line for each page."""
    width = max(len(page.code) for page in pages)
    return "\n".join(f"{page.code.ljust(width)}  {page.title}" for page in pages)


def text_of(page: Explanation) -> str:
    """Return a page as text for a terminal."""
    exits = " or ".join(map(str, page.exits))
    return (
        f"{page.code}: {page.title} (exit code {exits})\n\n{page.what}\n\nWhat is left: {page.left}\n\n"
        f"Next: {page.next}"
    )
