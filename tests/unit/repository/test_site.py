"""The documentation site: its navigation has every page, links lead somewhere, examples are accepted."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from orchestrator.cli.app import app
from orchestrator.profile import load
from tests.conftest import ROOT

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
LEADING = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES]
GUIDES = [
    page for page in PAGES if page.parent.name == "how-to" or page.name in ("tutorial.md", "schedule.md")
]
FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


def named(nav: Any) -> Iterator[str]:
    """The pages of a navigation, in its order."""
    if isinstance(nav, str):
        yield nav
    else:
        for inner in nav.values() if isinstance(nav, dict) else nav:
            yield from named(inner)


def test_the_navigation_has_every_page_once() -> None:
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    assert Counter(named(nav)) == Counter(str(page.relative_to(DOCS)) for page in PAGES)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as a code host makes them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading).strip().replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", LEADING, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_and_anchor_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", page.read_text())):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = Path(os.path.normpath(page.parent / path)) if path else page
        assert file.exists(), f"{target} leads nowhere"
        assert not anchor or anchor in anchors(file), f"{target}: {file.name} has no such heading"


def blocks(page: Path, kind: str) -> list[str]:
    """What the page's fenced blocks of one kind hold, without the indentation of a list."""
    found = FENCE.findall(page.read_text())
    return [
        re.sub(rf"^{indent}", "", text, flags=re.MULTILINE) for indent, name, text in found if name == kind
    ]


class Settings(yaml.SafeLoader):
    """YAML as a profile is read: `on` is a word."""


Settings.yaml_implicit_resolvers = {
    first: [(tag, match) for tag, match in rules if tag != "tag:yaml.org,2002:bool" or first in "tTfF"]
    for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
}

SETTINGS = [
    pytest.param(text, id=f"{page.stem}-{n}")
    for page in GUIDES
    for n, text in enumerate(blocks(page, "yaml"))
]


@pytest.mark.parametrize("text", SETTINGS)
def test_every_piece_of_a_profile_is_accepted(text: str, tmp_path: Path) -> None:
    profile = {
        "version": 1,
        "name": "piece",
        "cloud": "any",
        "resources": {"memory": "8 GiB+"},
        "max_duration": "1h",
        "train": {"command": "python train.py", "outputs": ["out"]},
    }
    (tmp_path / "orch.yaml").write_text(yaml.safe_dump(profile | Settings(text).get_data()))
    load(tmp_path / "orch.yaml", environ={"API_KEY": "x", "SLACK_WEBHOOK": "https://example.org"})


def typed(page: Path) -> Iterator[list[str]]:
    """The words of each `orch` command of the page, up to `--` or the shell's next command."""
    for command in re.findall(r"\borch [a-z][^\n`;|&>#]*", page.read_text()):
        words = re.sub(r'"[^"]*"?', "x", command).split()
        yield words[1 : words.index("--")] if "--" in words else words[1:]


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_every_command_has_the_options_that_it_is_given(page: Path) -> None:
    verbs = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for words in typed(page):
        if words[0] not in verbs:  # a sentence about orch
            assert not any(word.startswith("-") for word in words), words
            continue
        known = {flag for option in verbs[words[0]].params for flag in (*option.opts, *option.secondary_opts)}
        assert {word for word in words if word.startswith("--")} <= known, words
