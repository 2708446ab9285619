"""`up` on a ledger of which the line that tells the machine's id is damaged, while lists lag behind.

The machine has outlived its deadline, so that the attempt that made it is not made again.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.histories.world import LASTS, World


@pytest.mark.parametrize("answers", [1, 2])
def test_the_machine_is_found_again_and_no_second_one_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: int
) -> None:
    monkeypatch.setenv("ORCH_STATE_HOME", str(tmp_path / "machines"))
    world = World(tmp_path, monkeypatch)
    world.up(0)
    (ledger,) = world.places[0].ledgers()
    ledger.path.write_bytes(ledger.path.read_bytes().replace(b'"create.accepted"', b'"create.acXepted"'))
    world.cloud.stuck |= {machine.id for machine in world.cloud.alive()}
    world.clock.ahead += LASTS + 700
    world.cloud.list_nothing(answers)
    world.up(0)
    assert len(world.cloud.alive()) == 1
