"""A lock installed on a host: exactly, once, again when something changed, and after any interruption."""

from __future__ import annotations

import os
import shutil
import sys
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from orchestrator.errors import HostError, StackError
from orchestrator.hosts.here import HereHost
from orchestrator.model import Agent
from orchestrator.stack import (
    Installed,
    Interpreter,
    bootstrap,
    install,
    interpreter,
    read_lock,
    stack_digest,
)
from orchestrator.stack.bootstrap import glibc_version, parse_survey
from orchestrator.stack.push import check_disk
from tests.unit.stack_hosts import Dying, Plain, Recording, Spoiling, Tearing
from tests.unit.stack_locks import pylock, requirements_lock, uv_lock

pytestmark = pytest.mark.registry


@pytest.fixture(scope="session")
def wheel_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _own_cache(wheel_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCH_CACHE_HOME", str(wheel_cache))


@pytest.fixture(scope="session")
def python() -> Interpreter:
    return interpreter(Path(sys.executable))


@pytest.fixture(scope="session")
def lock_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return requirements_lock(tmp_path_factory.mktemp("lock"))


@pytest.fixture
def agent(tmp_path: Path, python: Interpreter) -> Agent:
    return bootstrap(HereHost(), base=str(tmp_path / "far"), interpreter=python)


def names(installed: Installed) -> list[tuple[str, str]]:
    return [(d.name, d.version) for d in installed.fingerprint.distributions]


@pytest.mark.parametrize("make", [requirements_lock, uv_lock, pylock])
def test_every_kind_of_lock_is_installed_exactly(
    tmp_path: Path, agent: Agent, python: Interpreter, make: object
) -> None:
    lock = read_lock(make(tmp_path))  # type: ignore[operator]
    made = install(HereHost(), agent, lock, python, delivery="push")
    assert names(made) == [("packaging", "24.2"), ("six", "1.17.0")]
    assert not made.skipped
    assert made.python == f"{agent.base}/stacks/{stack_digest(lock, python)}/bin/python"
    program = "import six, packaging, sys; print(six.__file__); print(sys.prefix)"
    said = HereHost().run((made.python, "-I", "-c", program)).stdout.decode()
    assert all(line.startswith(f"{agent.base}/stacks/") for line in said.splitlines())


def test_the_same_lock_again_is_skipped(agent: Agent, python: Interpreter, lock_file: Path) -> None:
    lock = read_lock(lock_file)
    first = install(HereHost(), agent, lock, python, delivery="push")
    recording = Recording()
    again = install(recording, agent, lock, python, delivery="push")
    assert again.skipped
    assert again.fingerprint == first.fingerprint
    assert len(recording.commands) == 1


def test_a_comment_in_the_lock_makes_no_other_stack(
    python: Interpreter, lock_file: Path, tmp_path: Path
) -> None:
    commented = tmp_path / "requirements.lock"
    commented.write_text(f"# a remark\n{lock_file.read_text()}")
    assert stack_digest(read_lock(commented), python) == stack_digest(read_lock(lock_file), python)
    commented.write_text(lock_file.read_text().replace("24.2", "24.1"))
    assert stack_digest(read_lock(commented), python) != stack_digest(read_lock(lock_file), python)


def _module(installed: Installed) -> Path:
    return next(Path(installed.python).parent.parent.glob("lib/python*/site-packages/six.py"))


def _change_one_byte(path: Path) -> None:
    """In a file of its own, and with the old times: only the content tells."""
    facts, content = path.stat(), bytearray(path.read_bytes())
    content[100] ^= 1
    path.unlink()
    path.write_bytes(content)
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))


def test_one_changed_byte_is_found_and_repaired(agent: Agent, python: Interpreter, lock_file: Path) -> None:
    lock = read_lock(lock_file)
    first = install(HereHost(), agent, lock, python, delivery="push")
    _change_one_byte(_module(first))
    again = install(HereHost(), agent, lock, python, delivery="push")
    assert not again.skipped
    assert again.fingerprint.digest == first.fingerprint.digest
    assert install(HereHost(), agent, lock, python, delivery="push").skipped


@pytest.mark.parametrize("harm", ["interpreter", "package", "stranger", "marker"])
def test_a_damaged_stack_is_repaired(agent: Agent, python: Interpreter, lock_file: Path, harm: str) -> None:
    lock = read_lock(lock_file)
    first = install(HereHost(), agent, lock, python, delivery="push")
    packages = _module(first).parent
    if harm == "interpreter":
        Path(first.python).unlink()
    elif harm == "package":
        shutil.rmtree(packages / "six-1.17.0.dist-info")
    elif harm == "stranger":
        (packages / "stranger-1.dist-info").mkdir()
        (packages / "stranger-1.dist-info/METADATA").write_text(
            "Metadata-Version: 2.1\nName: stranger\nVersion: 1\n"
        )
    else:
        Path(f"{Path(first.python).parent.parent}.json").write_text("{}")
    again = install(HereHost(), agent, lock, python, delivery="push")
    assert not again.skipped
    assert names(again) == names(first)


def test_only_missing_wheels_travel(
    agent: Agent, python: Interpreter, lock_file: Path, tmp_path: Path
) -> None:
    install(HereHost(), agent, read_lock(lock_file), python, delivery="push")
    other = requirements_lock(tmp_path, "six==1.17.0\npackaging==24.1\n")
    recording = Recording()
    install(recording, agent, read_lock(other), python, delivery="push")
    assert [command for command in recording.commands if "tar -xf" in command[2]] != []
    kept = sorted(path.name for path in Path(agent.base, "wheels").glob("*/*.whl"))
    assert kept == [
        "packaging-24.1-py3-none-any.whl",
        "packaging-24.2-py3-none-any.whl",
        "six-1.17.0-py2.py3-none-any.whl",
    ]
    assert (
        recording.sent < 2 * Path(next(Path(agent.base, "wheels").glob("*/packaging-24.1*"))).stat().st_size
    )


def test_a_changed_package_leaves_the_bytecode_of_the_others(
    agent: Agent, python: Interpreter, lock_file: Path, tmp_path: Path
) -> None:
    first = install(HereHost(), agent, read_lock(lock_file), python, delivery="push")
    other = requirements_lock(tmp_path, "six==1.17.0\npackaging==24.1\n")
    second = install(HereHost(), agent, read_lock(other), python, delivery="push")
    old, new = (_module(made).parent for made in (first, second))
    same = {
        name: _bytecode(old / name).samefile(_bytecode(new / name))
        for name in ("six.py", "packaging/tags.py")
    }
    assert same == {"six.py": True, "packaging/tags.py": False}


def _bytecode(module: Path) -> Path:
    return Path(cache_from_source(str(module)))


def test_wheels_that_are_there_do_not_travel_again(
    agent: Agent, python: Interpreter, lock_file: Path
) -> None:
    lock = read_lock(lock_file)
    made = install(HereHost(), agent, lock, python, delivery="push")
    shutil.rmtree(Path(made.python).parent.parent)
    recording = Recording()
    install(recording, agent, lock, python, delivery="push")
    assert recording.sent == 0


def test_a_wheel_that_was_spoilt_on_the_way_is_refused(
    agent: Agent, python: Interpreter, lock_file: Path
) -> None:
    with pytest.raises(
        StackError, match=r"were changed on their way to the machine: packaging-24\.2-py3-none-any\.whl\.$"
    ):
        install(Spoiling(), agent, read_lock(lock_file), python, delivery="push")
    assert [path.name for path in Path(agent.base, "wheels").rglob("*.whl")] == [
        "six-1.17.0-py2.py3-none-any.whl"
    ]
    assert not install(HereHost(), agent, read_lock(lock_file), python, delivery="push").skipped


def test_a_machine_with_a_network_downloads_itself(
    agent: Agent, python: Interpreter, lock_file: Path
) -> None:
    made = install(HereHost(), agent, read_lock(lock_file), python, delivery="download")
    assert names(made) == [("packaging", "24.2"), ("six", "1.17.0")]
    assert not Path(agent.base, "wheels").exists()


@pytest.mark.parametrize("delivery", ["auto", "download"])
def test_a_machine_without_a_way_to_the_index(
    agent: Agent, python: Interpreter, tmp_path: Path, delivery: str
) -> None:
    """Its wheels come from this computer's files: nothing that it could download."""
    lock = read_lock(_local_pylock(tmp_path))
    if delivery == "download":
        with pytest.raises(StackError, match="cannot download the stack: some packages come from files"):
            install(HereHost(), agent, lock, python, delivery=delivery)
    else:
        assert names(install(HereHost(), agent, lock, python, delivery=delivery)) == [("six", "1.17.0")]


def _local_pylock(folder: Path) -> Path:
    path = pylock(folder)
    lock = read_lock(path)
    from orchestrator.model import Silent
    from orchestrator.stack.download import collect
    from orchestrator.stack.target import target_of
    from orchestrator.stack.wheels import find_wheels

    pins = [pin for pin in lock.pins if pin.name == "six"]
    (wheel,) = find_wheels(lock, pins, target_of(interpreter(Path(sys.executable))), folder / "cache")
    (file,) = collect([wheel], folder / "cache", Silent())
    shutil.copy(file, folder)
    path.write_text(
        'lock-version = "1.0"\ncreated-by = "a test"\n[[packages]]\nname = "six"\nversion = "1.17.0"\n'
        f'wheels = [{{ path = "{wheel.filename}", hashes = {{ sha256 = "{wheel.sha256}" }} }}]\n'
    )
    return path


def test_an_empty_lock_is_an_empty_environment(agent: Agent, python: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "requirements.lock").write_text("# nothing yet\n")
    made = install(HereHost(), agent, read_lock(tmp_path / "requirements.lock"), python, delivery="push")
    assert names(made) == []


def test_a_disk_that_is_too_small_is_named_before_anything_is_sent(tmp_path: Path) -> None:
    with pytest.raises(
        StackError, match=r"disk is too small for the stack: it needs [\d,]+ MiB, and .* MiB free"
    ):
        check_disk(HereHost(), str(tmp_path), 1 << 60)
    check_disk(HereHost(), str(tmp_path), 1)


def test_another_interpreter_over_there_is_refused(agent: Agent, lock_file: Path) -> None:
    system = Path("/usr/bin/python3")
    if not system.exists() or interpreter(system).key == interpreter(Path(sys.executable)).key:
        pytest.skip("needs a second interpreter")
    with pytest.raises(StackError, match="The machine's interpreter is cpython-"):
        install(HereHost(), agent, read_lock(lock_file), interpreter(system), delivery="push")


def test_an_unknown_delivery(agent: Agent, python: Interpreter, lock_file: Path) -> None:
    with pytest.raises(StackError, match="delivery 'pigeon' is not one of auto, push, download"):
        install(HereHost(), agent, read_lock(lock_file), python, delivery="pigeon")


def test_files_that_their_index_moved_are_looked_for_again(
    agent: Agent, python: Interpreter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kept answer names a file that is gone; the index knows the new place."""
    monkeypatch.setenv("ORCH_CACHE_HOME", str(tmp_path / "cache"))
    lock = read_lock(_local_pylock(tmp_path))
    made = install(HereHost(), agent, lock, python, delivery="push")
    shutil.rmtree(Path(agent.base, "wheels"))
    shutil.rmtree(Path(made.python).parent.parent)
    shutil.rmtree(tmp_path / "cache/wheels")
    moved = tmp_path / "moved"
    moved.mkdir()
    wheel = next(tmp_path.glob("*.whl"))
    wheel.rename(moved / wheel.name)
    lock.path.write_text(lock.path.read_text().replace('path = "', 'path = "moved/'))
    assert names(install(HereHost(), agent, lock, python, delivery="push")) == [("six", "1.17.0")]


def test_the_machines_own_python_is_used_where_it_is_the_same(tmp_path: Path, lock_file: Path) -> None:
    system = Path("/usr/bin/python3")
    if not system.exists() or interpreter(system).missing:
        pytest.skip("needs a whole Python of the system")
    python = interpreter(system)
    there = bootstrap(Plain(), base=str(tmp_path / "far"), interpreter=python)
    assert there.python.startswith(str(tmp_path / "far/python/"))
    assert str(Path(there.python).resolve()) == python.base_executable
    made = install(HereHost(), there, read_lock(lock_file), python, delivery="push")
    assert made.fingerprint.python == python.version
    sent = bootstrap(Plain(), base=str(tmp_path / "x"), interpreter=python, use_system_python=False)
    assert str(Path(sent.python).resolve()).startswith(str(tmp_path / "x"))


@pytest.mark.slow
def test_cut_off_before_any_command_the_next_one_converges(
    tmp_path: Path, python: Interpreter, lock_file: Path
) -> None:
    """Every command there is a place to die; after each the same two calls lead to the same stack."""
    lock, base = read_lock(lock_file), tmp_path / "far"

    def both(host: HereHost) -> Installed:
        there = bootstrap(host, base=str(base), interpreter=python)
        return install(host, there, lock, python, delivery="push")

    recording = Recording()
    expected = both(recording).fingerprint
    assert len(recording.commands) > 8
    for deaths in range(len(recording.commands)):
        shutil.rmtree(base)
        with pytest.raises(HostError, match="cut off"):
            both(Dying(deaths))
        assert both(HereHost()).fingerprint.digest == expected.digest
        assert both(HereHost()).skipped


def test_a_stream_that_tears_leaves_nothing_that_counts(
    tmp_path: Path, python: Interpreter, lock_file: Path
) -> None:
    """Each of the streams (runtime, uv, interpreter, wheels) is torn in the middle, one after the other."""
    lock, base = read_lock(lock_file), str(tmp_path / "far")
    streams = 3 if _has_python_of(python) else 4
    for _ in range(streams - 1):  # each time the first stream goes through, and the next one tears
        host = Tearing(whole=1)
        with pytest.raises(HostError, match="torn"):
            install(host, bootstrap(host, base=base, interpreter=python), lock, python, delivery="push")
    host = Tearing(whole=1)
    made = install(host, bootstrap(host, base=base, interpreter=python), lock, python, delivery="push")
    assert names(made) == [("packaging", "24.2"), ("six", "1.17.0")]


def _has_python_of(python: Interpreter) -> bool:
    """Whether bootstrap takes an interpreter of this computer's PATH instead of sending one."""
    found = [shutil.which(name) for name in (python.name, "python3")]
    return any(interpreter(Path(path)).key == python.key for path in found if path)


def test_what_a_machine_says_of_itself() -> None:
    survey = parse_survey(
        "system=Linux\nmachine=x86_64\nkey=cpython-3.11.7-Linux-x86_64\nuv=1\nlibc=glibc 2.36\n"
        "candidate=/usr/bin/python3\nlibrary=libz.so.1\nlibrary=libc.so.6\n"
    )
    assert (survey.python, survey.runtime, survey.uv, survey.gzip) == (False, False, True, False)
    assert survey.libraries == {"libz.so.1", "libc.so.6"}
    assert survey.candidates == ("/usr/bin/python3",)


@pytest.mark.parametrize(("said", "version"), [("glibc 2.36", (2, 36)), ("", (0, 0)), ("musl 1.2", (0, 0))])
def test_the_c_librarys_version(said: str, version: tuple[int, int]) -> None:
    assert glibc_version(said) == version


def test_a_pythons_own_word_decides_whether_it_is_used(tmp_path: Path) -> None:
    (tmp_path / "python3").write_text("#!/bin/sh\necho hello\n")
    (tmp_path / "python3").chmod(0o755)
    with pytest.raises(StackError, match="is not a usable Python interpreter: hello"):
        interpreter(tmp_path / "python3")
    with pytest.raises(StackError, match="does not run"):
        interpreter(tmp_path / "absent")
