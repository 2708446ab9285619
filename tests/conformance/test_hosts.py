"""One suite for every kind of host."""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.errors import HostError
from orchestrator.hosts.here import HereHost
from orchestrator.model import Host
from tests.conformance.private_sshd import over_ssh

ECHO_ARGUMENTS = "import json, sys; sys.stdout.write(json.dumps(sys.argv[1:]))"
PYTHON = sys.executable


@pytest.fixture(params=["here", "ssh"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Host]:
    made = HereHost() if request.param == "here" else over_ssh(request.getfixturevalue("server"), tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize(
    "arguments",
    [
        ["plain", "two words", "  edges  "],
        ["", "", "x", ""],
        ["it's", 'a "quote"', "`date`", "$HOME", "$(id)", "\\", "a\\nb", "!", "*", "~"],
        ["line\nbreak", "tab\t", "\r\n", "trailing\n"],
        ["grüße", "日本語", "🜁", "e\u0301"],
        ["-n", "--", "-c", "; exit 3", "&& false", "| cat", "> /dev/null", "#x"],
    ],
)
def test_arguments_arrive_as_they_are(host: Host, arguments: list[str]) -> None:
    done = host.run([PYTHON, "-c", ECHO_ARGUMENTS, *arguments])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == arguments
    assert done.argv == (PYTHON, "-c", ECHO_ARGUMENTS, *arguments)


@pytest.mark.parametrize("code", [0, 1, 2, 42, 255])
def test_exit_codes(host: Host, code: int) -> None:
    assert host.run(["sh", "-c", f"exit {code}"]).returncode == code


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV, signal.SIGUSR1])
def test_a_signal_is_128_and_its_number(host: Host, number: int) -> None:
    assert host.run(["sh", "-c", f"kill -{int(number)} $$"]).returncode == 128 + number


def test_a_missing_command_is_127_and_says_so(host: Host) -> None:
    done = host.run(["no-such-command-anywhere", "x"])
    assert done.returncode == 127
    assert b"no-such-command-anywhere" in done.stderr


def test_a_command_that_may_not_run_is_126(host: Host, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("x")
    assert host.run([str(tmp_path / "data")]).returncode == 126


def test_outputs_are_kept_apart(host: Host) -> None:
    done = host.run(["sh", "-c", "printf out; printf err >&2; printf more"])
    assert (done.stdout, done.stderr) == (b"outmore", b"err")


def test_no_stdin_is_an_empty_one(host: Host) -> None:
    assert host.run(["wc", "-c"]).stdout.split() == [b"0"]


def test_ten_mebibytes_both_ways(host: Host) -> None:
    data = os.urandom(10 << 20)
    assert host.run(["cat"], stdin=data).stdout == data


def test_much_on_all_three_streams_at_once(host: Host) -> None:
    script = "import sys\nfor b in iter(lambda: sys.stdin.buffer.read(65536), b''):\n"
    script += "  sys.stdout.buffer.write(b); sys.stderr.buffer.write(b)"
    data = os.urandom(5 << 20)
    done = host.run([PYTHON, "-c", script], stdin=data)
    assert done.stdout == data
    assert done.stderr == data


def test_input_that_nobody_reads_is_dropped(host: Host) -> None:
    done = host.run(["sh", "-c", "exit 7"], stdin=b"x" * (8 << 20))
    assert done.returncode == 7


def test_a_channel_is_a_conversation(host: Host) -> None:
    with host.open(["cat"]) as channel:
        for text in (b"one", b"two", b"three"):
            channel.write(text)
            heard = b""
            while len(heard) < len(text):
                heard += channel.read(2)
            assert heard == text
        channel.close_stdin()
        assert channel.read(10) == b""
        assert channel.wait().returncode == 0


def test_a_channel_read_by_one_thread_and_written_by_another(host: Host) -> None:
    data = os.urandom(6 << 20)
    with host.open(["cat"]) as channel:

        def write() -> None:
            channel.write(data)
            channel.close_stdin()

        writer = threading.Thread(target=write)
        writer.start()
        heard = bytearray()
        while part := channel.read(1 << 16):
            heard += part
        writer.join()
        assert channel.wait().returncode == 0
    assert bytes(heard) == data


def test_wait_holds_what_was_not_read(host: Host) -> None:
    with host.open(["sh", "-c", "printf 123456789"]) as channel:
        assert channel.read(3) == b"123"
        channel.close_stdin()
        assert channel.wait().stdout == b"456789"


def test_put_makes_folders_and_sets_modes(host: Host, tmp_path: Path) -> None:
    target = tmp_path / "new folder" / "it's $HOME" / "file"
    host.put(b"\0bytes\xff", str(target), mode=0o751)
    assert target.read_bytes() == b"\0bytes\xff"
    assert stat.S_IMODE(target.stat().st_mode) == 0o751


def test_put_replaces_in_one_step(host: Host, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(os.urandom(3 << 20))
    target.write_text("old")
    before = os.open(target, os.O_RDONLY)
    host.put(source, str(target))
    assert target.read_bytes() == source.read_bytes()
    assert os.read(before, 10) == b"old"  # another file took its place: readers never saw a mixture
    os.close(before)
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "known_hosts") == [
        "source",
        "target",
    ]


def test_put_onto_a_folder_is_refused(host: Host, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(HostError):
        host.put(b"x", str(tmp_path / "folder"))
    assert list((tmp_path / "folder").iterdir()) == []


def test_get_fetches_whole_files(host: Host, tmp_path: Path) -> None:
    (tmp_path / "a b").write_bytes(os.urandom(3 << 20))
    host.get(str(tmp_path / "a b"), tmp_path / "in" / "copy")
    assert (tmp_path / "in" / "copy").read_bytes() == (tmp_path / "a b").read_bytes()


def test_a_get_that_fails_leaves_the_old_file(host: Host, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "copy").write_text("old")
    with pytest.raises(HostError, match="absent"):
        host.get(str(tmp_path / "absent"), tmp_path / "in" / "copy")
    assert [(path.name, path.read_text()) for path in (tmp_path / "in").iterdir()] == [("copy", "old")]


def test_a_command_out_of_time_is_stopped_with_its_children(host: Host) -> None:
    with host.open(["sh", "-c", "sleep 1000 & echo $! $$; wait"]) as channel:
        pids = [int(word) for word in channel.read(100).split()]
        with pytest.raises(HostError, match="did not end"):
            channel.wait(timeout=0.2)
    assert len(pids) == 2
    for pid in pids:
        await_end(pid)


def test_run_has_a_time_too(host: Host) -> None:
    with pytest.raises(HostError, match=r"did not end|had not begun"):
        host.run(["sleep", "1000"], timeout=0.5)


def test_a_command_that_ignores_the_request_to_end_is_killed(host: Host) -> None:
    with host.open(["sh", "-c", "trap '' TERM; echo $$; while :; do sleep 0.1; done"]) as channel:
        pid = int(channel.read(100))
        with pytest.raises(HostError, match="did not end"):
            channel.wait(timeout=0.2)
    await_end(pid)


def test_a_command_that_does_not_read_is_out_of_time_too(host: Host) -> None:
    with pytest.raises(HostError, match="did not end"):
        host.run(["sleep", "1000"], stdin=b"x" * (16 << 20), timeout=1)


@pytest.mark.parametrize("argv", [[], [""], ["echo", "a\0b"]])
def test_what_is_no_command_is_refused(host: Host, argv: list[str]) -> None:
    with pytest.raises(ValueError):
        host.run(argv)


def await_end(pid: int) -> None:
    """A signal is carried out when the process is next given a processor: on a busy computer, later."""
    patience = time.monotonic() + 60
    while alive(pid):
        assert time.monotonic() < patience, f"{pid} was not ended"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    """Running, and not merely waiting for its parent to notice its end."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
