"""orch explain: what an error means, what still exists after it, and what to do."""

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
    """Explain an error, an exit code or a lint rule: what it means, what still exists, and what to do."""
    from orchestrator.report.explained import PAGES, list_text, text_of

    if code is None:
        pages = tuple(PAGES.values())
        text = list_text(pages)
    else:
        from orchestrator.api.explaining import explain as pages_of

        pages = pages_of(code)
        text = "\n\n".join(map(text_of, pages))
    emit("explain", {"pages": [page.as_json() for page in pages]}, as_json, text)
