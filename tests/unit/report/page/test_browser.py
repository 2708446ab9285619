"""The page in Debian's chromium: it renders, its script runs under its own policy, and nothing is refused."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from orchestrator.report.page import html_of, page_of
from tests.unit.report.page.runs import HOSTILE, hostile, read_back, record

CHROMIUM = shutil.which("chromium")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not here: apt-get install chromium"),
]


def seen(page: Path, home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Chromium on the page; what it says in its console is on stderr."""
    command = [
        str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        f"--user-data-dir={home}", "--enable-logging=stderr", "--hide-scrollbars", *words, page.as_uri(),
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)


@pytest.mark.parametrize("evil", [False, True], ids=["plain", "hostile"])
def test_it_renders_without_a_word_in_the_console(tmp_path: Path, evil: bool) -> None:
    facts = {
        key: hostile(value)
        for key, value in record().as_json().items()
        if evil and key not in ("schema", "run_id", "exit")
    }
    page = tmp_path / "report.html"
    found = read_back(tmp_path, record(**facts), **({"log": f"{HOSTILE}\nepoch 1 loss: 1\n"} if evil else {}))
    page.write_text(html_of(page_of(found, version="0.2.0", now=0.0)))
    done = seen(page, tmp_path / "home", "--dump-dom")
    assert 'class="cursor"' in done.stdout, "its script ran"
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []


@pytest.mark.parametrize("width", [390, 820, 1440])
def test_it_is_drawn_at_every_width(tmp_path: Path, width: int) -> None:
    page, picture = tmp_path / "report.html", tmp_path / "page.png"
    page.write_text(html_of(page_of(read_back(tmp_path, record()), version="0.2.0", now=0.0)))
    seen(page, tmp_path / "home", f"--screenshot={picture}", f"--window-size={width},2000")
    assert picture.stat().st_size > 10_000
