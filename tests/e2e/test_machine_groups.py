"""Groups of machines on this computer: what breaks them, what is left of them, and who cannot get in."""

from __future__ import annotations

import subprocess
import sys
import time
from io import TextIOWrapper
from pathlib import Path

import pytest

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import Machine
from orchestrator.providers.local import group as local_group
from tests.conformance.reach import Reach
from tests.e2e.machine_bench import Bench, links, until

pytestmark = pytest.mark.machine

GROUP = "digits-a1b2c3"
PORTS = range(20_000, 28_000)
SERVE = "import socket; s = socket.create_server(('0.0.0.0', 20000)); print('listening')\n" + (
    "c = s.accept()[0]\nwhile data := c.recv(99): print(len(data))"
)
GREET = "import socket; s = socket.create_server(('0.0.0.0', 20000))\n" + (
    "while True: s.accept()[0].send(b'hello')"
)
TALK = "import socket, time\nc = socket.create_connection(('{}', 20000))\n" + (
    "while True: c.send(b'x'); time.sleep(0.02)"
)


def reach(bench: Bench) -> Reach:
    return Reach(bench.folder / "state/machines")


def test_an_isolated_machine_keeps_its_session_and_loses_its_group(bench: Bench) -> None:
    one, other = bench.up("one"), bench.up("other")
    _, there = bench.provider.join(GROUP, [one, other], PORTS)
    heard = bench.folder / "heard"
    with heard.open("w") as output:
        server = started(bench, other, SERVE, output)
    until(lambda: "listening" in heard.read_text())
    client = started(bench, one, TALK.format(there))
    try:
        until(lambda: len(heard.read_text().splitlines()) > 1)
        bench.provider.isolate(one)
        time.sleep(0.3)
        cut = heard.stat().st_size
        assert bench.says(one, "hostname") == one.name
        assert not reach(bench)(other, bench.provider.join(GROUP, [one, other], PORTS)[0], 20_001)
        assert heard.stat().st_size == cut
        bench.provider.rejoin(one)
        until(lambda: heard.stat().st_size > cut)
    finally:
        for process in (client, server):
            process.kill()
            process.wait()
        bench.provider.separate(GROUP)


def started(
    bench: Bench, machine: Machine, program: str, output: TextIOWrapper | None = None
) -> subprocess.Popen[bytes]:
    inside = ["nsenter", "--target", str(bench.guest(machine)), "--net"]
    return subprocess.Popen([*inside, sys.executable, "-u", "-c", program], stdout=output)


def test_this_computer_and_its_other_machines_have_no_way_in(bench: Bench) -> None:
    """Whoever answers says so: behind some networks, every address seems to be there."""
    one, other = bench.up("one"), bench.up("other")
    (here,) = bench.provider.join(GROUP, [one], PORTS)
    server = started(bench, one, GREET)
    dial = f"import socket; print(socket.create_connection(('{here}', 20000), timeout=1).recv(5))"
    try:
        until(lambda: b"hello" in own(bench, one, dial).stdout)
        away = subprocess.run([sys.executable, "-c", dial], capture_output=True, timeout=30, check=False)
        assert b"hello" not in away.stdout
        assert not reach(bench)(other, here, 20_001)
        _, there = bench.provider.join(GROUP, [one, other], PORTS)
        assert not reach(bench)(one, there, 22)
    finally:
        server.kill()
        server.wait()
        bench.provider.separate(GROUP)


def own(bench: Bench, machine: Machine, program: str) -> subprocess.CompletedProcess[bytes]:
    inside = ["nsenter", "--target", str(bench.guest(machine)), "--net"]
    return subprocess.run([*inside, sys.executable, "-c", program], capture_output=True, check=False)


def test_a_machine_without_a_group_cannot_be_isolated(bench: Bench) -> None:
    with pytest.raises(ProviderError) as refused:
        bench.provider.isolate(bench.up("alone"))
    assert refused.value.fault is Fault.INVALID


def test_the_network_goes_with_the_last_machine(bench: Bench) -> None:
    one, other = bench.up("one"), bench.up("other")
    bench.provider.join(GROUP, [one, other], PORTS)
    (bridge,) = local_group.bridges(bench.folder / "state/machines")
    assert Path("/sys/class/net", bridge, "ifalias").read_text().startswith(f"{GROUP}/10.78.")
    assert len(bridge) <= 15
    for machine in (one, other):
        bench.listed()
        assert bridge in links()
        bench.provider.kill(machine)
        until(lambda gone=machine: bench.provider.find(gone) is None)  # type: ignore[misc]
    until(lambda: not bench.listed() and bridge not in links())
    bench.await_nothing()
