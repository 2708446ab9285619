"""The page of a lease, from its ledger."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator import api
from orchestrator.ledger import Event, fold
from orchestrator.report.page import Page, State, html_of, markdown_of, page_of_lease
from orchestrator.report.page.model import Charts, Table
from orchestrator.session.project import Project
from tests.unit.ledger.test_ledger import LIFE
from tests.unit.report.page.runs import HOSTILE, folder_of, hostile, record
from tests.unit.report.page.test_browser import CHROMIUM, seen
from tests.unit.report.page.test_hostile import harmless

GONE = ("run.lost", {"run_id": "r1", "reason": "lost", "detail": "its machine went away"})


def events(life: list[tuple[str, dict[str, Any]]] = LIFE) -> list[Event]:
    return [Event(n, 1000.0 + 600.0 * n, name, data) for n, (name, data) in enumerate(life)]


def page(life: list[tuple[str, dict[str, Any]]] = LIFE) -> Page:
    return page_of_lease(fold(events(life)), events(life), version="1")


def table(made: Page, key: str) -> Table:
    (section,) = [each for each in made.sections if each.key == key]
    (found,) = [block for block in section.blocks if isinstance(block, Table)]
    return found


def test_a_whole_lease() -> None:
    made = page()
    assert made.headline.state is State.OK and "nothing is left" in made.headline.sentence
    assert made.runs == ("r1",)
    what = [row.cells[2] for row in table(made, "course").rows]
    assert what[0] == "opened" and what[-1] == "closed" and len(what) == len(LIFE)
    assert {"request refused", "machine created", "results downloaded"} <= set(what)
    assert [row.cells[3] for row in table(made, "requests").rows] == ["capacity", "accepted"]
    assert [row.cells[2:] for row in table(made, "runs").rows] == [("completed", "", "here")]
    charts = [block for each in made.sections for block in each.blocks if isinstance(block, Charts)]
    assert charts and charts[0].items[0].lines[0].ys[-1] == pytest.approx(fold(events()).cost(9e9))


@pytest.mark.parametrize(
    ("life", "state", "said"),
    [
        (LIFE[:1], State.NOTE, "It never had a machine"),
        (LIFE[:7], State.BUSY, "it costs $3.60 an hour now"),
        ([*LIFE[:7], GONE, *LIFE[9:]], State.BAD, "the results of 1 run went with a machine"),
        ([*LIFE[:3], ("create.intent", {}), *LIFE[3:]], State.NOTE, "as far as can be read"),
    ],
)
def test_the_verdict(life: list[tuple[str, dict[str, Any]]], state: State, said: str) -> None:
    made = page(life)
    assert made.headline.state is state and said in made.headline.sentence


def test_what_is_typed_again_has_the_overrides() -> None:
    opened = {**LIFE[0][1], "profile": {**LIFE[0][1]["profile"], "overrides": ["cloud=aws"]}}
    assert "orch up p.yaml --set cloud=aws" in markdown_of(page([(LIFE[0][0], opened), *LIFE[1:]]))


def test_hostile_texts_make_no_element_and_no_escape() -> None:
    life = [(name, hostile(data) if name == "create.refused" else data) for name, data in LIFE]
    life.append(("run.ended", {"run_id": "r1", "reason": HOSTILE}))
    harmless(html_of(page(life)))
    assert "\x1b" not in markdown_of(page(life))


def test_it_is_written_beside_the_ledger_and_a_run_of_that_name_is_meant_first(tmp_path: Path) -> None:
    ledger = Project(tmp_path).ledger("digits-1")
    ledger.path.parent.mkdir(parents=True)
    for name, data in LIFE:
        ledger.append(name, **data)
    made = api.report("digits-1", folder=tmp_path)
    assert made.path == tmp_path / ".orch/digits-1/report.html"
    assert json.loads(api.report("digits-1", format="json", folder=tmp_path).text)["title"] == "digits-1"
    folder_of(tmp_path, replace(record(), run_id="digits-1"))
    assert api.report("digits-1", folder=tmp_path).path == tmp_path / "runs/digits-1/report.html"


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not here: apt-get install chromium")
def test_it_renders_without_a_word_in_the_console(tmp_path: Path) -> None:
    place = tmp_path / "report.html"
    place.write_text(html_of(page()))
    done = seen(place, tmp_path / "home", "--dump-dom")
    assert "machine created" in done.stdout
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
