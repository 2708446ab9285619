"""Two computers of a team as two processes, each with a home and a folder, at an emulated bucket."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.stores import new_store
from tests.e2e.project import HELLO, Project, tiny

pytestmark = [pytest.mark.machine, pytest.mark.timeout(600)]


@dataclass(frozen=True)
class Pair:
    """Two computers, a machine of either seen by both, as if it were in a cloud."""

    url: str
    one: Project
    other: Project


@pytest.fixture(params=["s3", "gs"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    url = new_store(request, tmp_path).url
    made = []
    for name in ("one", "other"):
        project = tiny(tmp_path / name, tmp_path / "machines", HELLO)
        home = {"HOME": str(tmp_path / f"home of {name}"), "USER": name, "LOGNAME": name}
        Path(home["HOME"]).mkdir()
        made.append(replace(project, environ={**home, "ORCH_LEDGER": url}))
    yield Pair(url, *made)
    made[0].orch("down", "--all", "--discard", "--yes")


def test_two_at_once_make_one_machine_that_both_see_and_either_ends(pair: Pair, tmp_path: Path) -> None:
    both = [project.start("up", "orch.yaml", "--yes", "--json") for project in (pair.one, pair.other)]
    said = [(process.communicate(timeout=400), process.returncode) for process in both]
    made = [number for number, (_, code) in enumerate(said) if code == 0]
    assert len(made) == 1, said
    maker, guest = (pair.one, pair.other) if made == [0] else (pair.other, pair.one)
    refused = json.loads(said[1 - made[0]][0][0])["error"]
    assert "not on this one" in refused["message"]
    held: dict[str, Any] = json.loads(said[made[0]][0][0])
    assert len(list((tmp_path / "machines/machines").glob("m-*"))) == 1
    (seen,) = guest.json("status", "--team")["leases"]
    assert (seen["lease"], seen["machine"], seen["owner"]) == (held["lease"], held["machine"], held["owner"])
    run = maker.json("train", "--run-id", "first")
    assert run["exit"]["reason"] == "completed"
    (far,) = guest.json("runs")["runs"]
    assert (far["run_id"], far["reason"], far["where"]) == ("first", "completed", "elsewhere")
    assert far["place"] == held["owner"] == far["owner"]
    (near,) = maker.json("runs")["runs"]
    assert near["where"] == "here"
    assert guest.json("down")["machines"] == [held["machine"]]
    assert maker.json("status")["leases"] == []
    (ended,) = maker.json("status", "--team")["leases"]
    assert ended["state"] == "closed"
