"""orch explain: what an error means, what it leaves, and what to do."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.options import Json
from orchestrator.cli.output import emit, guarded


@guarded
def explain(
    code: Annotated[
        str | None,
        typer.Argument(
            metavar="[CODE]", help="An error's code or exit code, or a rule of orch lint. Default: list all."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Explain an error, an exit code or a lint rule: what it means, what is left, and what to do."""
    from orchestrator.api.explaining import explain as pages_of
    from orchestrator.report.explained import PAGES, list_text, text_of

    pages = tuple(PAGES.values()) if code is None else pages_of(code)
    text = list_text(pages) if code is None else "\n\n".join(map(text_of, pages))
    emit("explain", {"pages": [page.as_json() for page in pages]}, as_json, text)
