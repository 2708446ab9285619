"""docs/tutorial.md, typed into a shell as it stands: each command, and the output that the page promises."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from orchestrator.providers.local.survey import survey
from tests.conftest import ROOT

pytestmark = [pytest.mark.machine, pytest.mark.registry, pytest.mark.slow]

PAGE = ROOT / "docs/tutorial.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def steps(page: str) -> Iterator[tuple[str, list[str]]]:
    """Each block of commands, with the lines that the block of text after it promises."""
    blocks = [*BLOCK.findall(page), ("", "")]
    assert {kind for kind, _ in blocks} == {"sh", "text", ""}
    for (kind, commands), (after, text) in pairwise(blocks):
        if kind == "sh":
            yield commands, text.splitlines() if after == "text" else []


def is_promised(line: str, printed: str) -> bool:
    """Whether a printed line is one of the page, where … stands for anything."""
    pattern = ".*".join(re.escape(part) for part in line.strip().split("…"))
    return re.fullmatch(pattern, printed.strip()) is not None


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A shell that finds `orch` and `uv`, which asks the package index of this computer."""
    settings = subprocess.run(
        ["bash", "-c", '. "$0" && use_package_index && env -0', str(ROOT / "scripts/lib.sh")],
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    index = dict(pair.split("=", 1) for pair in settings.split("\0") if pair.startswith(("UV_", "SSL_")))
    path = f"{ROOT / '.venv/bin'}:{os.environ['PATH']}"
    state = {"ORCH_STATE_HOME": str(tmp_path / "state"), "NO_COLOR": "1", "PATH": path}
    return {**os.environ, **index, **state}


def test_every_command_prints_what_the_page_says(tmp_path: Path, environ: dict[str, str]) -> None:
    if survey().tier != "netns":
        pytest.skip(f"the page's numbers are of an isolated machine; here: {survey().missing}")
    folder = tmp_path
    for commands, promised in steps(PAGE.read_text()):
        script = f"set -eo pipefail\n{commands}\npwd > {tmp_path / 'cwd'}\n"
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=240,
        )
        assert done.returncode == 0, f"{commands}\nended with {done.returncode}:\n{done.stdout}"
        printed = done.stdout.splitlines()
        for line in promised:
            assert any(is_promised(line, each) for each in printed), (
                f"{commands}\ndoes not print\n{line}\nbut\n{done.stdout}"
            )
        folder = Path((tmp_path / "cwd").read_text().strip())
