"""The third cloud as the conformance suite asks it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from orchestrator.model import Bound, Need
from orchestrator.providers import open_provider
from tests.conformance.bed import Bed
from tests.third_cloud.registered import registered


def third_bed(request: pytest.FixtureRequest) -> Iterator[Bed]:
    folder = request.getfixturevalue("tmp_path") / "third"
    with registered(request.getfixturevalue("monkeypatch"), folder) as service:
        yield Bed(
            open_provider("third"),
            Need("third", cpus=Bound(2), memory=Bound(4 << 30)),
            8 << 30,
            time.time,
            lambda: time.sleep(0.02),
            brief_s=1.5,
            unsold="t.huge",
            reaches=lambda machine, address, port: service.reaches(machine.id, address, port),
            groups=lambda: list(service.groups),
        )
