"""How long a machine is waited for, and what the user reads meanwhile."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.errors import HostError, LoginRefused
from orchestrator.model import Completed, Endpoint, Machine, MachineState
from orchestrator.session import reach, session
from orchestrator.session.reach import Reached, Waiting, boot_limit_s
from tests.said import Said

MACHINE = Machine(
    "gcp", "m", "m", MachineState.RUNNING, {}, "e2-standard-2", "us-central1-a", 0.07, datetime.now(UTC)
)


@pytest.mark.parametrize(
    ("provider", "instance_type", "minutes"),
    [
        ("aws", "m5.large", 10),
        ("aws", "g4dn.metal", 20),
        ("aws", "p4d.24xlarge", 20),
        ("gcp", "a3-highgpu-8g", 20),
        ("gcp", "g2-standard-4", 10),
        ("local", "local", 10),
    ],
)
def test_metal_and_eight_gpus_boot_slowly(provider: str, instance_type: str, minutes: int) -> None:
    """canonical/pycloudlib#192: bare metal took more than 20 minutes; dstack waits longer for 8 GPUs."""
    machine = Machine(
        provider, "m", "m", MachineState.RUNNING, {}, instance_type, "z", 1.0, datetime.now(UTC)
    )
    assert boot_limit_s(machine) == minutes * 60


def test_what_is_waited_for_is_said_once_until_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(reach.time, "monotonic", lambda: clock[0])
    said = Said()
    waiting = Waiting(said)
    for at, awaited in [
        (1, "its start"),
        (3, "its start"),
        (5, "its start"),
        (6, "its ssh server"),
        (70, "its ssh server"),
    ]:
        clock[0] = at
        waiting.say(awaited, 600)
    assert said.lines == [
        "Waiting for the machine to answer: its start (at most 10 min)",
        "Waiting for the machine to answer: its ssh server (at most 10 min)",
        "Waiting for the machine to answer: its ssh server (70 s so far, at most 10 min)",
    ]


def _found(until: float) -> Reached:
    provider: Any = SimpleNamespace()
    return Reached(provider, MACHINE, Endpoint("192.0.2.1", 22, "orch", ("ssh-ed25519 AAAA",)), 600, until)


def test_a_refused_login_is_tried_again_for_a_machine_that_boots(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Any] = [LoginRefused("not yet"), LoginRefused("not yet"), "door"]

    def connect(*_: object) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, LoginRefused):
            raise answer
        return answer

    monkeypatch.setattr(session, "connect_verified", connect)
    monkeypatch.setattr(session, "_PAUSE_SECONDS", 0.0)
    place: Any = Path()
    lease: Any = None
    door: object = session._let_in(place, lease, _found(float("inf")), Waiting(Said()))
    assert door == "door"
    answers[:] = [LoginRefused("never")]
    with pytest.raises(LoginRefused):
        session._let_in(place, lease, _found(0.0), Waiting(Said()))
    answers[:] = [LoginRefused("it was in use before"), "door"]
    with pytest.raises(LoginRefused):
        session._let_in(place, lease, _found(float("inf")), None)


def test_the_first_folder_is_made_again_until_the_boot_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    codes = [1, 1, 0]
    host: Any = SimpleNamespace(run=lambda *_, **__: Completed((), codes.pop(0), b"", b"Permission denied"))
    monkeypatch.setattr(session, "_PAUSE_SECONDS", 0.0)
    session._make_base(host, "/home/orch/orch", _found(float("inf")), Waiting(Said()))
    assert codes == []
    codes[:] = [1]
    with pytest.raises(HostError, match="Permission denied"):
        session._make_base(host, "/home/orch/orch", _found(0.0), Waiting(Said()))
