"""Hook of mkdocs: a page may link to any file of the repository, and the site holds what is linked.

On a code host `../profiles/schema.json` leads to the file. The site gets a copy below `repository/`, so that
the same link works there.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
COPIES = "repository"
LINK = re.compile(r"(?<=\]\()([^)#\s]+)")


def on_files(files: Files, *, config: Any) -> Files:
    for page in files.documentation_pages():
        for target in LINK.findall(page.content_string):
            path = _outside(page.src_uri, target)
            if path and not files.get_file_from_path(_copy(path)):
                files.append(File.generated(config, _copy(path), content=(ROOT / path).read_bytes()))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    def replaced(link: re.Match[str]) -> str:
        path = _outside(page.file.src_uri, link[1])
        return os.path.relpath(_copy(path), Path(page.file.src_uri).parent) if path else link[1]

    return LINK.sub(replaced, markdown)


def _outside(page: str, target: str) -> str | None:
    """Path from the root of the file that a link leads to, None if it is of docs/ or elsewhere."""
    if "://" in target:
        return None
    path = os.path.normpath(Path("docs", page).parent / target)
    return None if path.startswith(("docs/", "..")) or not (ROOT / path).is_file() else path


def _copy(path: str) -> str:
    """Its place in the site. Markdown is copied as text: it is no page of the site."""
    return f"{COPIES}/{path}.txt" if path.endswith((".md", ".py")) else f"{COPIES}/{path}"
