"""An entry that must not be written, or changed, keeps no other back; it is named with the reason."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator import sync
from orchestrator.errors import LocalError
from orchestrator.model import Agent, Entry, NotFetched, Refused
from orchestrator.runtime.transfer.confined import Confined
from orchestrator.sync import sift as sifting
from tests.unit.sync.trees import HASH, HOST, picture


def fetch(agent: Agent, source: Path, entries: object, target: Path, *, as_read: bool = False) -> sync.Pulled:
    return sync.pull_possible(HOST, agent, str(source), entries, target, as_read=as_read)  # type: ignore[arg-type]


def reasons(pulled: sync.Pulled) -> dict[str, Refused]:
    return {each.path: each.reason for each in pulled.refused}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    top = tmp_path / "source"
    (top / "d").mkdir(parents=True)
    (top / "d/model").write_text("weights")
    (top / "log").write_text("one\n")
    return top


def listed(agent: Agent, source: Path) -> tuple[Entry, ...]:
    return sync.far_scan(HOST, agent, str(source)).entries


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (Entry("../x", "file", 1, 0o644, HASH), Refused.UNSAFE_PATH),
        (Entry("/etc/x", "file", 1, 0o644, HASH), Refused.UNSAFE_PATH),
        (Entry("l", "link", target="/etc"), Refused.LINK_LEADS_OUT),
        (Entry("l", "link", target="../../x"), Refused.LINK_LEADS_OUT),
        (Entry("p", "special"), Refused.NOT_A_FILE),
        (Entry("u", "unreadable"), Refused.UNREADABLE),
        (Entry("x", "file", 1, 0o644, "no hash"), Refused.INVALID),
        (Entry("d/model/x", "file", 1, 0o644, HASH), Refused.NAME_CLASH),
        (Entry("d/" + "n" * 300, "file", 1, 0o644, HASH), Refused.NAME_TOO_LONG),
        (Entry("gone", "file", 1, 0o644, HASH), Refused.CHANGED),
    ],
)
def test_a_refused_entry_keeps_nothing_else_back(
    agent: Agent, source: Path, tmp_path: Path, bad: Entry, reason: Refused
) -> None:
    pulled = fetch(agent, source, [*listed(agent, source), bad], tmp_path / "target")
    assert reasons(pulled) == {bad.path: reason}
    assert pulled.refused[0].detail
    assert picture(tmp_path / "target") == picture(source)
    assert [entry.path for entry in pulled.entries] == ["d", "d/model", "log"]
    assert not (tmp_path / "target.part").exists()


def test_what_lies_in_a_refused_folder_is_refused_with_it(agent: Agent, source: Path, tmp_path: Path) -> None:
    long = "n" * 300
    entries = [Entry(long, "dir", mode=0o755), Entry(f"{long}/a", "file", 1, 0o644, HASH)]
    pulled = fetch(agent, source, [*listed(agent, source), *entries], tmp_path / "target")
    assert reasons(pulled) == {long: Refused.NAME_TOO_LONG, f"{long}/a": Refused.NAME_TOO_LONG}


def test_a_pair_in_case_only_comes_home_where_the_file_system_can_hold_both(
    agent: Agent, source: Path, tmp_path: Path
) -> None:
    (source / "Case").write_text("upper")
    (source / "case").write_text("lower")
    pulled = fetch(agent, source, listed(agent, source), tmp_path / "target")
    assert pulled.refused == ()
    assert picture(tmp_path / "target") == picture(source)


def test_of_a_pair_in_case_only_one_comes_home_where_names_are_folded(
    agent: Agent, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sifting, "_folds_names", lambda *_: True)
    (source / "Case").mkdir()
    (source / "Case/x").write_text("upper")
    (source / "case").write_text("lower")
    pulled = fetch(agent, source, listed(agent, source), tmp_path / "target")
    assert reasons(pulled) == {"case": Refused.NAME_CLASH}
    assert (tmp_path / "target/Case/x").read_text() == "upper"


def test_a_folder_of_the_users_stays(agent: Agent, source: Path, tmp_path: Path) -> None:
    (tmp_path / "target/log").mkdir(parents=True)
    pulled = fetch(agent, source, listed(agent, source), tmp_path / "target")
    (refused,) = pulled.refused
    assert (refused.path, refused.reason, refused.can_come) == ("log", Refused.FOLDER_HERE, True)
    assert (tmp_path / "target/log").is_dir()
    assert (tmp_path / "target/d/model").read_text() == "weights"


def test_a_changed_file_is_named_and_the_old_one_stays(agent: Agent, source: Path, tmp_path: Path) -> None:
    entries = listed(agent, source)
    (source / "d/model").write_text("WEIGHTS")
    (tmp_path / "target/d").mkdir(parents=True)
    (tmp_path / "target/d/model").write_text("older")
    pulled = fetch(agent, source, entries, tmp_path / "target")
    assert reasons(pulled) == {"d/model": Refused.CHANGED}
    assert (tmp_path / "target/d/model").read_text() == "older"
    assert (tmp_path / "target/log").read_text() == "one\n"


def test_a_file_that_still_grows_comes_as_it_was_listed(agent: Agent, source: Path, tmp_path: Path) -> None:
    entries = listed(agent, source)
    with open(source / "log", "a") as file:
        file.write("two\n" * 100_000)
    pulled = fetch(agent, source, entries, tmp_path / "target")
    assert pulled.refused == ()
    assert (tmp_path / "target/log").read_text() == "one\n"


def test_as_read_a_changed_file_comes_with_the_digest_of_what_came(
    agent: Agent, source: Path, tmp_path: Path
) -> None:
    entries = listed(agent, source)
    (source / "log").write_text("two")
    pulled = fetch(agent, source, entries, tmp_path / "target", as_read=True)
    assert pulled.refused == ()
    assert (tmp_path / "target/log").read_text() == "two"
    (now,) = [entry for entry in listed(agent, source) if entry.path == "log"]
    assert [entry for entry in pulled.entries if entry.path == "log"] == [now]


def test_a_link_planted_there_is_not_read_through(agent: Agent, source: Path, tmp_path: Path) -> None:
    entries = listed(agent, source)
    (tmp_path / "secret").write_text("weights")
    (source / "d/model").unlink()
    (source / "d/model").symlink_to(tmp_path / "secret")
    pulled = fetch(agent, source, entries, tmp_path / "target", as_read=True)
    assert reasons(pulled) == {"d/model": Refused.CHANGED}


def test_only_what_is_fetched_again_is_asked_for_again(agent: Agent, source: Path, tmp_path: Path) -> None:
    bad = Entry("l", "link", target="/etc")
    assert fetch(agent, source, [*listed(agent, source), bad], tmp_path / "target").fetched_files == 2
    assert fetch(agent, source, [*listed(agent, source), bad], tmp_path / "target").fetched_files == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    place = tmp_path / "small"
    place.mkdir()
    if os.geteuid() != 0 or os.system(f"mount -t tmpfs -o size=256k none {place} 2>/dev/null") != 0:
        pytest.skip("a small file system needs root")
    yield place
    os.system(f"umount {place}")


def test_a_disk_that_fills_here_leaves_what_was_and_a_repeated_pull_completes(
    agent: Agent, source: Path, small_disk: Path
) -> None:
    """Room is counted first; this disk is filled by somebody else meanwhile."""
    target = small_disk / "target"
    fetch(agent, source, listed(agent, source), target)
    (source / "d/model").write_bytes(os.urandom(120_000))
    (source / "big").write_bytes(os.urandom(60_000))
    entries = listed(agent, source)
    other = small_disk / "other"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "statvfs", lambda _: os.statvfs_result([1 << 20] * 10))
        other.write_bytes(bytes(150_000))
        with pytest.raises(LocalError) as failed:
            fetch(agent, source, entries, target)
    assert failed.value.exit_code == 1
    assert "pull" in (failed.value.next_command or "")
    assert (target / "d/model").read_text() == "weights"
    other.unlink()
    assert fetch(agent, source, entries, target).refused == ()
    assert picture(target) == picture(source)


def test_a_socket_and_a_pipe_among_the_outputs_are_named(tmp_path: Path) -> None:
    from orchestrator.runtime.transfer import outputs

    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
    kinds = [outputs._entry(str(tmp_path / name), name)["kind"] for name in ("pipe", "socket")]  # type: ignore[index]
    assert kinds == ["special", "special"]


@pytest.mark.parametrize("put", ["pipe", "link"])
def test_an_output_that_is_replaced_while_it_is_listed_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, put: str
) -> None:
    from orchestrator.runtime.transfer import outputs

    place, secret = tmp_path / "weights", tmp_path / "secret"
    for path in (place, secret):
        path.write_bytes(b"12345")
    os.mkfifo(tmp_path / "pipe")
    filled = os.open(tmp_path / "pipe", os.O_RDWR)  # so that who reads the pipe does not wait
    os.write(filled, b"12345")

    def replace(*_: object) -> bool:
        place.unlink()
        if put == "link":
            place.symlink_to(secret)
        else:
            (tmp_path / "pipe").rename(place)
        return False

    monkeypatch.setattr(outputs, "_is_too_large", replace)
    found = outputs._entry(str(place), "weights")
    os.close(filled)
    assert found is not None
    assert (found["kind"], found["digest"]) == ("unreadable", "")


def test_every_reason_of_the_far_side_has_its_word_here() -> None:
    from orchestrator.runtime.transfer import entries

    words = {value for name, value in vars(entries).items() if name.isupper() and isinstance(value, str)}
    assert words <= {str(reason) for reason in Refused}
    assert NotFetched("p", "file", Refused.CHANGED, "").can_come


def test_a_file_that_cannot_be_created_here_is_named_and_the_next_arrive(
    agent: Agent, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = Confined.create_file

    def refusing(inside: Confined, path: str) -> int:
        if path == "d/model":
            raise OSError(errno.EILSEQ, "Invalid or incomplete multibyte or wide character")
        return create(inside, path)

    monkeypatch.setattr(Confined, "create_file", refusing)
    pulled = fetch(agent, source, listed(agent, source), tmp_path / "target")
    assert reasons(pulled) == {"d/model": Refused.NOT_WRITABLE}
    assert (tmp_path / "target" / "log").read_text() == "one\n"
