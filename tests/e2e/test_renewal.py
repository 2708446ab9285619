"""A machine's host key replaced over the connection that it proved, on a real machine, stopped anywhere."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from orchestrator import hosts
from orchestrator.errors import HostError, HostKeyError
from orchestrator.hosts import hostkeys
from orchestrator.hosts.identity import public_key
from orchestrator.hosts.renewal import renew
from orchestrator.model import Bound, Endpoint, Host, Machine, MachineSpec, Need
from orchestrator.providers.local.provider import LocalProvider

pytestmark = pytest.mark.machine


class Stopped(BaseException):
    """The command was killed here."""


@dataclass
class Door:
    """One machine, what vouches for it, and the point at which whoever calls is killed."""

    machine: Machine
    endpoint: Endpoint
    folder: Path
    vouched: tuple[str, ...]
    stop_at: int = -1
    passed: Iterator[int] = field(default_factory=itertools.count)

    def step(self) -> None:
        if next(self.passed) == self.stop_at:
            raise Stopped

    def open(self, keys: Sequence[str]) -> Host:
        return hosts.connect(
            replace(self.endpoint, host_keys=tuple(keys)),
            identity=self.folder / "identity",
            known_hosts=self.folder / "known_hosts",
            machine_id=self.machine.id,
        )

    def vouch(self, keys: Sequence[str]) -> None:
        self.step()
        self.vouched = tuple(keys)
        self.step()

    def renew(self) -> Host:
        return renew(
            Stepping(self.open(self.vouched), self.step),
            self.vouched[-1],
            machine_id=self.machine.id,
            known_hosts=self.folder / "known_hosts",
            vouch=self.vouch,
            reconnect=lambda key: self.open((key,)),
        )


class Stepping:
    """A host whose user may be killed before and after each of its commands."""

    def __init__(self, host: Host, step: Callable[[], None]) -> None:
        self._host = host
        self._step = step
        self.name = host.name

    def run(self, argv: Sequence[str], **how: object) -> object:
        self._step()
        done = self._host.run(argv, **how)  # type: ignore[arg-type]
        self._step()
        return done

    def __getattr__(self, name: str) -> object:
        return getattr(self._host, name)


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    provider = LocalProvider(tmp_path / "state")
    need = Need("local", cpus=Bound(1), memory=Bound(256 << 20), disk=256 << 20)
    offer = provider.offers(need)[0]
    if provider.survey().tier == "process":
        pytest.skip("such a machine has no /etc/ssh of its own")
    key = public_key(tmp_path / "identity", "test")
    end = datetime.now(UTC) + timedelta(minutes=10)
    machine = provider.create(MachineSpec("renewal", 0, offer, need.disk, end, {}, key))
    try:
        endpoint = None
        while endpoint is None:
            endpoint = provider.endpoint(machine)
        (first,) = hostkeys.parse(endpoint.host_keys)
        yield Door(machine, endpoint, tmp_path, (first.line,))
    finally:
        provider.delete(machine)


def test_the_new_key_serves_and_the_old_one_does_not(door: Door) -> None:
    (old,) = door.vouched
    with_new = door.renew()
    assert with_new.run(("true",)).returncode == 0
    with_new.close()
    (new,) = door.vouched
    assert new != old
    assert hostkeys.pins(door.machine.id, door.folder / "known_hosts") == hostkeys.parse((new,))
    (door.folder / "known_hosts").unlink()
    with pytest.raises(HostKeyError):
        door.open((old,))
    door.open((new,)).close()


@pytest.mark.parametrize("stop_at", range(8))
def test_killed_at_any_step_the_machine_is_still_known_and_the_next_call_ends_it(
    door: Door, stop_at: int
) -> None:
    (travelled,) = door.vouched
    door.stop_at = stop_at
    with pytest.raises(Stopped):
        door.renew()
    door.open(door.vouched).close()  # whatever is vouched for now, with the pin that is there
    door.stop_at = -1
    if len(door.vouched) > 1 or door.vouched == (travelled,):
        door.renew().close()
    assert len(door.vouched) == 1
    assert door.vouched != (travelled,)
    door.open(door.vouched).close()


def test_a_machine_that_does_not_go_along_keeps_its_key(door: Door) -> None:
    host = door.open(door.vouched)
    host.run(("sh", "-c", "rm -f /usr/bin/ssh-keygen; ln -s /bin/false /usr/bin/ssh-keygen"))
    host.close()
    (old,) = door.vouched
    with pytest.raises(HostError, match="did not change its host key"):
        door.renew()
    assert door.vouched == (old,)
    door.open((old,)).close()
