"""What the sampler reads of the kernel: cores, swap, pressure, disks, the network; and how much it writes."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from orchestrator.runtime.cadence import DOUBLING, Cadence
from orchestrator.runtime.sampler import cpu, network
from orchestrator.runtime.sampler import disks as sample_disks

linux_only = pytest.mark.skipif(not Path("/proc/diskstats").exists(), reason="needs Linux's /proc")

STAT = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 100 0 50 800 50 0 0 0 0 0\ncpu1 1 2 3 4 5 6 7 8 0 0\nintr 5\n"


def test_cores_are_read_one_by_one() -> None:
    assert cpu.cores(STAT) == {
        0: [100, 0, 50, 800, 50, 0, 0, 0, 0, 0],
        1: [1, 2, 3, 4, 5, 6, 7, 8, 0, 0],
    }


@pytest.mark.parametrize(
    ("before", "after", "busy"),
    [
        ([0] * 10, [60, 0, 15, 20, 5, 0, 0, 0, 0, 0], 75),  # idle and waiting for a disk are not busy
        ([0] * 10, [30, 0, 0, 20, 0, 0, 0, 50, 0, 0], 30),  # nor is what another machine took
        ([5] * 10, [5] * 10, 0),
        (None, [0] * 10, None),
        ([0] * 4, [1] * 4, None),  # a kernel from before steal was counted
    ],
)
def test_how_busy_a_core_was(before: list[int] | None, after: list[int], busy: int | None) -> None:
    assert cpu._busy(before, after) == busy


def test_swap_and_pressure() -> None:
    page = cpu._PAGE
    assert cpu.swapped("pgin 7\npswpin 3\npswpout 5\n") == (3 * page, 5 * page)
    assert cpu.swapped("") == (None, None)
    text = "some avg10=0.00 avg60=0.00 avg300=0.00 total=2500000\nfull avg10=0.00 total=9\n"
    assert cpu.stalled(text) == 2.5 and cpu.stalled("") is None


@linux_only
def test_this_machine_is_told_of() -> None:
    found = cpu.Machine().sample()
    assert len(found["busy"]) >= 1 and all(value is None or 0 <= value <= 100 for value in found["busy"])
    assert found["steal"] is None or found["steal"] >= 0
    assert len(found["pressure"]) == 3


# ---------------------------------------------------------------- disks


def test_disks_by_their_counters() -> None:
    line = "   8       0 sda 100 5 2048 300 40 6 4096 500 0 700 800 0 0 0 0\n   8       1 sda1 1 2\n"
    found = sample_disks.diskstats(line)
    assert set(found) == {"sda"}
    moved = found["sda"]
    assert (moved.reads, moved.read, moved.read_ms) == (100, 2048 * 512, 300)
    assert (moved.writes, moved.written, moved.write_ms, moved.busy_ms) == (40, 4096 * 512, 500, 700)
    assert moved.since(moved) == [0] * 7


@pytest.mark.parametrize(
    ("model", "size", "cap", "limits"),
    [
        ("Amazon Elastic Block Store", 100 << 30, {}, (125 << 20, 3000, "gp3 at its baseline")),
        ("PersistentDisk", 100 << 30, {}, (168 << 20, 3600, "pd-balanced of 100 GiB")),
        ("nvme_card-pd", 100 << 30, {}, (168 << 20, 3600, "pd-balanced of 100 GiB")),
        ("PersistentDisk", 1 << 30, {"bytes": 5, "ops": 7}, (5, 7, "a limit of the control group")),
        ("Samsung SSD 980", 1 << 40, {}, None),
        ("PersistentDisk", None, {}, None),
        (None, None, {}, None),
    ],
)
def test_what_a_disk_gives_at_most(model: str | None, size: int | None, cap: Any, limits: Any) -> None:
    found = sample_disks.limits(model, size, cap)
    assert (found and (found["bytes_s"], found["ops_s"], found["basis"])) == limits


def test_the_tightest_limit_on_the_way_up_counts(tmp_path: Path) -> None:
    own, parent, legacy = (tmp_path / name for name in ("own", "parent", "legacy"))
    for folder in (own, parent, legacy):
        folder.mkdir()
    (own / "io.max").write_text("8:0 rbps=1000 wbps=max riops=max wiops=max\n8:16 rbps=max\n")
    (parent / "io.max").write_text("8:0 rbps=500 riops=20\n")
    (legacy / "blkio.throttle.read_bps_device").write_text("8:0 400\n")
    (legacy / "blkio.throttle.read_iops_device").write_text("8:32 9\n")
    assert sample_disks.caps([str(own), str(parent)]) == {"8:0": {"bytes": 500, "ops": 20}}
    assert sample_disks.caps([str(own), str(legacy)]) == {"8:0": {"bytes": 400}, "8:32": {"ops": 9}}


@linux_only
def test_the_disks_of_this_machine() -> None:
    disks = sample_disks.Disks()
    assert all(len(moved) == 7 and min(moved) >= 0 for moved in disks.sample().values())
    assert all({"model", "size", "rotational", "limits"} == set(fact) for fact in disks.facts().values())


# ---------------------------------------------------------------- network


def test_bytes_over_the_network_without_loopback() -> None:
    text = """Inter-|   Receive                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier
    lo: 900 9 0 0 0 0 0 0 900 9 0 0 0 0 0
  eth0: 100 1 0 0 0 0 0 0 20 2 0 0 0 0 0
  eth1:5 1 0 0 0 0 0 0 6 2 0 0 0 0 0
"""
    assert network.transferred(text) == (105, 26)


def test_segments_that_were_sent_again() -> None:
    text = "Ip: A\nIp: 1\nTcp: RtoAlgorithm RetransSegs OutRsts\nTcp: 1 17 3\n"
    assert network.retransmitted(text) == 17 and network.retransmitted("Ip: A\nIp: 1\n") is None


@linux_only
def test_round_trips_of_open_connections() -> None:
    try:
        probe = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4)
    except OSError:
        pytest.skip("the kernel tells nothing of sockets here")
    probe.close()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as one, listening.accept()[0] as other:
            one.sendall(b"x" * 1000)
            assert other.recv(1000)
            seen = list(network.round_trips(loopback=True))
    if not seen:
        pytest.skip("the kernel tells nothing of sockets here")
    assert all(0 <= milliseconds < 60_000 for milliseconds in seen)


# ---------------------------------------------------------------- how much is written


class Writer:
    """A process that writes lines of some length, when its cadence says so."""

    def __init__(self, cadence: Cadence, length: int) -> None:
        self.cadence, self.length, self.due, self.lines = cadence, length, 0.0, 0

    def write(self, size: int) -> int:
        """The trace's size afterwards, which was `size` before."""
        size += self.length
        self.due += self.cadence.next(size=size)
        self.lines += 1
        return size


def written_in_a_week(*writers: Writer) -> int:
    size = 0
    while True:
        writer = min(writers, key=lambda each: each.due)
        if writer.due > 7 * 24 * 3600:
            return size
        size = writer.write(size)


SAMPLE = len(json.dumps({
    "t": 1795249319.085, "event": "sample", "up": 604800.123, "busy": [100] * 96, "pressure": [604800.1] * 3,
    **{f"a_total_{number:02}": 123456789012 for number in range(30)},
    "disks": {f"nvme{number}n1": [123456789012] * 7 for number in range(4)},
    "gpus": [{f"a_value_{number}": 12345678.9 for number in range(8)}] * 8,
}))  # fmt: skip
"""Of a machine with 96 cores, four disks and eight GPUs."""


@pytest.mark.parametrize("processes", [1, 8, 64])
def test_a_week_is_less_than_fifty_megabytes_however_many_write(processes: int) -> None:
    """The sampler, and of each process of the job the step clock and 32 nodes of tf.data."""
    sampler = Writer(Cadence(doubling=2 * DOUBLING), SAMPLE)
    clocks = [Writer(Cadence(), 400) for _ in range(processes)]
    nodes = [Writer(Cadence(5.0), 32 * 130) for _ in range(processes)]
    size = written_in_a_week(sampler, *clocks, *nodes)
    assert size < 50e6
    assert sampler.lines > 4000  # and still a picture of it
