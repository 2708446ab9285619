"""Trees on their way to and from a machine that lies: an OrchError, and only proven bytes are written."""

from __future__ import annotations

import json
import struct
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from orchestrator import sync
from orchestrator.errors import HostError, MalformedAnswer, OrchError, SyncError
from orchestrator.hosts.here import HereHost
from orchestrator.model import Agent, Entry
from orchestrator.stack.runtime_files import lay_out
from orchestrator.sync import talk
from tests.hostile.machines.lies import DEEP, FLOOD, ONE_LINE, SILENCE, Lying, put, without

BOUND = 60.0
GONE = b"\xff\xff\xff\xff"


def frame(message: Any) -> bytes:
    return piece(message if isinstance(message, bytes) else json.dumps(message).encode())


def piece(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def last(data: bytes) -> bytes:
    return struct.pack(">I", len(data) | 1 << 31) + data


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Agent:
    base = tmp_path_factory.mktemp("base")
    return Agent(sys.executable, str(lay_out(base)), str(base))


@pytest.fixture
def script(tmp_path: Path) -> Any:
    """A command that says `data`, then reads on for ever, or ends."""

    def made(data: bytes, *, ends: bool = True) -> tuple[str, ...]:
        said = tmp_path / "said"
        said.write_bytes(data)
        more = "" if ends else "; exec sleep 1000"
        return ("sh", "-c", f"cat {said}{more}")

    return made


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(talk, "_SILENCE", 0.4)
    monkeypatch.setattr(talk, "_LAST_WORDS_WITHIN", 0.4)


THERE = frame({"digest": "ab" * 32, "rows": ""})
SAME = [THERE, frame({"need": [], "remove": 0})]


def needs(need: Any, remove: int = 0) -> list[bytes]:
    return [THERE, frame({"need": need, "remove": remove})]


ANSWERS: dict[str, Sequence[bytes]] = {
    "nothing": [],
    "prose": [b"hello\n"],
    "half a length": [b"\0\0"],
    "a longer one than comes": [struct.pack(">I", 1000) + b"{}"],
    "a length without end": [struct.pack(">I", 0xFFFFFFF0)],
    "gone": [GONE],
    "gone and gone and gone": [GONE * 10_000],
    "no JSON": [frame(b"\xff\xfe")],
    "depth": [frame(DEEP)],
    "a number": [frame(7)],
    "no word of it": [frame({})],
    "rows that are a list": [frame({"digest": "ab" * 32, "rows": ["ab" * 8]})],
    "rows that are no fingerprints": [frame({"digest": "ab" * 32, "rows": "xyz"})],
    "half a fingerprint": [frame({"digest": "ab" * 32, "rows": "abab"})],
    "rows without a digest": [frame({"rows": ""})],
    "rows, and nothing": [THERE],
    "a refusal that is a list": [frame({"error": ["x"]})],
    "a refusal with a word for a size": [frame({"error": "disk_full", "needed": "much", "free": 1})],
    "a refusal without sizes": [frame({"error": "disk_full"})],
    "a refusal with escapes": [frame({"error": "other", "text": "\x1b]0;x\x07\x1b[2J"})],
    "the same, and no digest": [*SAME, frame({})],
    "the same, and another digest": [*SAME, frame({"digest": "ab" * 32})],
    "the same, and a digest that is none": [*SAME, frame({"digest": "../x"})],
    "asks for none": needs("all"),
    "asks for what is not there": needs([7]),
    "asks backwards": needs([-1]),
    "asks twice": needs([1, 1]),
    "asks for a folder": needs([0]),
    "asks for half a file": needs([0.5]),
    "removes less than nothing": needs([1], -1),
}


@pytest.mark.parametrize("lie", ANSWERS)
@pytest.mark.parametrize("ends", [True, False])
def test_sending_to_a_machine_that_lies(
    agent: Agent, tmp_path: Path, script: Any, lie: str, ends: bool
) -> None:
    source = tmp_path / "project"
    (source / "a").mkdir(parents=True)
    (source / "a" / "train.py").write_text("print('hello')")
    host = Lying("apply", instead=script(b"".join(ANSWERS[lie]), ends=ends))
    begun = time.monotonic()
    with pytest.raises((SyncError, HostError)) as error:
        sync.push(host, agent, sync.scan(source), "code")
    assert time.monotonic() - begun < BOUND
    assert "\x1b" not in error.value.message


@pytest.mark.parametrize("instead", [FLOOD, ONE_LINE, SILENCE, ("sh", "-c", "yes >&2")])
def test_sending_to_one_that_never_ends(agent: Agent, tmp_path: Path, instead: tuple[str, ...]) -> None:
    source = tmp_path / "project"
    source.mkdir()
    (source / "large").write_bytes(bytes(1 << 20))
    begun = time.monotonic()
    with pytest.raises((SyncError, HostError)):
        sync.push(Lying("apply", instead=instead), agent, sync.scan(source), "code")
    assert time.monotonic() - begun < BOUND


BODIES: dict[str, bytes] = {
    "nothing": b"",
    "other bytes": last(b"other"),
    "other bytes in pieces": piece(b"oth") + last(b"er"),
    "fewer bytes": last(b"hel"),
    "no bytes": last(b""),
    "more bytes": last(b"hello and more"),
    "more and more": piece(b"x" * (1 << 20)) * 100 + last(b""),
    "the right bytes and no end": piece(b"hello"),
    "no bytes and no end": piece(b"") * 10_000,
    "a piece without end": struct.pack(">I", 0xFFFFFFF0) + b"x" * 1000,
    "a piece that is long": struct.pack(">I", 0x7FFFFFF0) + b"x" * 1000,
    "gone": GONE + frame("why"),
    "gone for no reason": GONE + b"{",
    "gone and gone": GONE * 10_000,
    "gone, deeply": GONE + frame(DEEP),
    "prose": b"hello\n",
}


def files(top: Path) -> dict[str, int]:
    return {str(path.relative_to(top)): path.lstat().st_size for path in top.rglob("*") if path.is_file()}


@pytest.mark.parametrize("lie", BODIES)
@pytest.mark.parametrize("ends", [True, False])
def test_fetching_from_a_machine_that_lies(
    agent: Agent, tmp_path: Path, script: Any, lie: str, ends: bool
) -> None:
    source, home = tmp_path / "there", tmp_path / "home"
    source.mkdir()
    (source / "f").write_text("hello")
    entries = sync.far_scan(HereHost(), agent, str(source)).entries
    (home / "outputs").mkdir(parents=True)
    (home / "outputs" / "kept").write_text("kept")
    host = Lying("pack", instead=script(BODIES[lie], ends=ends))
    begun = time.monotonic()
    with pytest.raises((SyncError, HostError)):
        sync.pull(host, agent, str(source), entries, home / "outputs")
    assert time.monotonic() - begun < BOUND
    written = files(home)
    assert "outputs/f" not in written and (home / "outputs" / "kept").read_text() == "kept"
    assert all(name.startswith(("outputs/kept", "outputs.part/")) for name in written)
    assert sum(written.values()) < 1 << 16


@pytest.mark.parametrize("size", [10 << 40, (1 << 63) - 1])
def test_sizes_that_no_disk_holds_are_refused_before_a_byte(agent: Agent, tmp_path: Path, size: int) -> None:
    host = Lying("pack", instead=FLOOD)
    with pytest.raises(OrchError, match="bytes") as error:
        sync.pull(host, agent, "/x", [Entry("f", "file", size, 0o644, "ab" * 32)], tmp_path / "outputs")
    assert not host.lies and error.value.exists
    assert not [name for name in files(tmp_path) if "f" in name.split("/")]


SCANS: dict[str, Any] = {
    "no entries": without("entries"),
    "entries of text": put("entries", to=["a", "b"]),
    "entries that are too short": put("entries", to=[["a", "file"]]),
    "entries that are too long": put("entries", to=[["a", "file", 1, 420, "", "", ""]]),
    "a negative size": put("entries", to=[["a", "file", -1, 420, "ab" * 32, ""]]),
    "a size of text": put("entries", to=[["a", "file", "1", 420, "ab" * 32, ""]]),
    "an unreadable number": put("unreadable", to=[[1, 2]]),
    "unreadable escapes": put("unreadable", to=[["\x1b[2J", "\x1b]0;x\x07"]]),
    "a path that cannot be bytes": put("entries", to=[["\ud800", "dir", 0, 0, "", ""]]),
}


@pytest.mark.parametrize("lie", SCANS)
def test_a_listing_that_lies(agent: Agent, tmp_path: Path, lie: str) -> None:
    (tmp_path / "f").write_text("hello")
    with pytest.raises(SyncError):
        sync.far_scan(Lying("scan", alter=SCANS[lie]), agent, str(tmp_path))


@pytest.mark.parametrize("instead", [b"", b"null", DEEP, FLOOD, ONE_LINE])
def test_a_listing_that_is_none(agent: Agent, tmp_path: Path, instead: Any) -> None:
    with pytest.raises((SyncError, MalformedAnswer)):
        sync.far_scan(Lying("scan", instead=instead), agent, str(tmp_path))


@pytest.mark.parametrize(
    "path", ["../x", "/etc/x", "a/../../x", "a\0b", "C:\\x", "", "./x", "a//b", "x" * 300]
)
def test_a_listing_that_leads_out_writes_nothing(agent: Agent, tmp_path: Path, path: str) -> None:
    host = Lying("scan", alter=put("entries", to=[[path, "dir", 0, 0o755, "", ""]]))
    entries = sync.far_scan(host, agent, str(tmp_path)).entries
    home = tmp_path / "runs" / "r" / "outputs"
    with pytest.raises(OrchError):
        sync.pull(host, agent, str(tmp_path), entries, home)
    assert not list(tmp_path.rglob("x*"))
