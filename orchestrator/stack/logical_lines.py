"""Split a requirements file into its requirements and options."""

from __future__ import annotations

import re
from collections.abc import Iterator


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each requirement or option: the number of its first line, and its text, joined and without
    comments.
    """
    parts: list[str] = []
    start = 0
    for number, raw in enumerate([*text.splitlines(), ""], 1):
        continued = raw.rstrip().endswith("\\") and not raw.lstrip().startswith("#")
        bare = re.sub(r"(^|\s)#.*$", "", raw.rstrip().removesuffix("\\") if continued else raw).strip()
        start = start if parts else number
        parts += [bare] if bare else []
        # A comment line ends a requirement, even one that ends in a backslash, as in pip.
        if not continued and parts:
            yield start, " ".join(parts)
            parts = []
