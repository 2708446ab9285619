"""Write the pictures of docs/architecture.md anew: the rooms, what each is for, and which rooms it imports.

The layers are those of .importlinter, the arrows those of the import graph, and the words the first sentence
of each room's own docstring.

    python scripts/architecture.py docs/architecture.md
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
WIDTH = 108


def layers(contract: str) -> list[list[str]]:
    """The layers of one contract of .importlinter, highest first; each is the rooms that lie side by side."""
    parser = ConfigParser()
    parser.read(ROOT / ".importlinter")
    lines = parser[f"importlinter:contract:{contract}"]["layers"].split()
    rows = " ".join(lines).replace(" | ", "|").split()
    return [row.split("|") for row in rows]


def purpose(module: str) -> str:
    """The first sentence of a module's docstring, without its full stop."""
    place = ROOT.joinpath(*module.split("."))
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    text = ast.get_docstring(ast.parse(file.read_text("utf-8"))) or ""
    return re.split(r"[.;](?:\s|$)|\n\n", text, maxsplit=1)[0].replace("\n", " ").strip()


def picture(graph: grimp.ImportGraph, contract: str, package: str) -> Iterator[str]:
    """One line a room: its name and purpose; below it the rooms of the same package that it imports."""
    rows = layers(contract)
    order = [room for row in rows for room in row]
    for row in rows:
        for room in row:
            module = f"{package}.{room}"
            uses = sorted(
                (
                    other
                    for other in order
                    if other != room
                    and graph.direct_import_exists(
                        importer=module, imported=f"{package}.{other}", as_packages=True
                    )
                ),
                key=order.index,
            )
            yield f"{room:<12} {purpose(module)}"[:WIDTH]
            if uses:
                yield from _folded(uses)
        yield ""


def _folded(uses: list[str]) -> Iterator[str]:
    line = "             ->"
    for name in uses:
        if len(line) + len(name) + 1 > WIDTH:
            yield line
            line = "               "
        line += f" {name}"
    yield line


def updated(text: str) -> str:
    """`text` with what stands between its markers drawn anew."""
    graph = grimp.build_graph("orchestrator", cache_dir=None)
    for name, contract, package in (
        ("rooms", "layers", "orchestrator"),
        ("runtime", "runtime", "orchestrator.runtime"),
    ):
        drawn = "\n".join(picture(graph, contract, package)).rstrip()
        found = re.compile(rf"(<!-- {name} -->\n```text\n).*?(\n```\n)", re.DOTALL)
        text = found.sub(lambda match, drawn=drawn: match[1] + drawn + match[2], text)  # type: ignore[misc]
    return text


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(updated(path.read_text("utf-8")), "utf-8")
