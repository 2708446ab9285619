"""Answers about interpreter, packages and disk are decoded to facts, or raise one typed error."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.errors import HostKeyError, OrchError, StackError
from orchestrator.hosts import hostkeys
from orchestrator.hosts.here import HereHost
from orchestrator.model import Agent, Fingerprint, Pin
from orchestrator.model.answers import Malformed
from orchestrator.runtime.attest.attest import digest
from orchestrator.stack.attest import attest, parse_fingerprint
from orchestrator.stack.bootstrap import Survey, ask, glibc_version, parse_survey
from orchestrator.stack.compare import differences, read_back
from orchestrator.stack.interpreter import PROBE, interpreter, parse
from orchestrator.stack.lock import Lock
from orchestrator.stack.push import free_bytes
from orchestrator.stack.runtime_files import lay_out
from orchestrator.stack.target import applies, target_of
from tests.hostile.machines.lies import DEEP, FLOOD, ONE_LINE, Lying, put, without


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Agent:
    base = tmp_path_factory.mktemp("base")
    return Agent(sys.executable, str(lay_out(base)), str(base))


FINGERPRINTS: dict[str, Any] = {
    "no digest": without("digest"),
    "another digest": put("digest", to="ab" * 32),
    "another version of a package": put("distributions", 0, "version", to="0.0.1"),
    "a package that is text": put("distributions", 0, to="six"),
    "a package without a name": put("distributions", 0, to={"version": "1", "record": "", "altered": []}),
    "altered files that are a number": put("distributions", 0, "altered", to=3),
    "facts that are a list": put("facts", to=[]),
    "a fact that is an object": put("facts", "kernel", to={"a": 1}),
    "a fact without end": put("facts", "kernel", to="x" * 1_000_000),
    "an environment of numbers": put("environment", to={"A": 1}),
}


def true() -> dict[str, Any]:
    """A fingerprint as the runtime gives it."""
    packages = [{"name": "six", "version": "1.17.0", "record": "ab" * 32, "altered": ["six.py"]}]
    return {
        "digest": digest("cpython", "3.11.7", packages),
        "python": "3.11.7",
        "distributions": packages,
        "facts": {"implementation": "cpython", "python": "3.11.7", "kernel": "6.1"},
        "environment": {"TZ": "UTC"},
    }


def test_a_true_fingerprint_is_understood() -> None:
    assert parse_fingerprint(json.dumps(true()).encode()).distributions[0].altered == ("six.py",)


@pytest.mark.parametrize("lie", FINGERPRINTS)
def test_a_fingerprint_that_lies(agent: Agent, lie: str) -> None:
    said = json.dumps(FINGERPRINTS[lie](true())).encode()
    with pytest.raises(StackError) as error:
        attest(Lying("attest", instead=said), agent, sys.executable)
    assert error.value.exists and error.value.next_command and len(error.value.message) < 1000


@pytest.mark.parametrize("instead", [b"", b"null", b"\xff", DEEP, FLOOD, ONE_LINE, ("sh", "-c", "yes >&2")])
def test_a_fingerprint_that_is_none(agent: Agent, instead: Any) -> None:
    with pytest.raises(OrchError) as error:
        attest(Lying("attest", instead=instead), agent, sys.executable)
    assert "\x1b" not in error.value.message and len(error.value.message) < 1000


def real() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(HereHost().run((sys.executable, "-I", "-c", PROBE)).stdout)
    return found


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("version", "x"),
        ("version", "9" * 5000),
        ("implementation", "../../x"),
        ("machine", "a b; rm -rf /"),
        ("system", "\x1b[2J"),
        ("libc", "\x00"),
        ("missing", "ssl"),
        ("markers", {"a": 1}),
        ("base_executable", 7),
    ],
)
def test_an_interpreter_that_cannot_be(key: str, value: Any) -> None:
    with pytest.raises(Malformed):
        parse(json.dumps({**real(), key: value}).encode())


@pytest.mark.parametrize("libc", ["glibc 2", "glibc x.y", "glibc 2." + "9" * 70, "glibc -1.-2", "musl", ""])
def test_a_c_library_of_any_name_chooses_wheels_in_bounded_time(libc: str) -> None:
    there = parse(json.dumps({**real(), "libc": libc}).encode())
    assert len(target_of(there).tags) < 100_000
    assert isinstance(glibc_version(libc), tuple)


def test_markers_that_are_no_versions_give_one_short_error() -> None:
    pin = Pin("six", "1.0", (), 'python_full_version >= "3.8" and platform_release >= "5"')
    for value in ("x", "", "9" * 5000, "\x1b[2J"):
        try:
            applies(pin, {"python_full_version": value, "platform_release": value})
        except StackError as error:
            assert "\x1b" not in error.message and len(error.message) < 500


@pytest.mark.parametrize("answer", [b"", b"x", b"{}", b"\xff", DEEP])
def test_a_python_that_does_not_say_what_it_is(answer: bytes) -> None:
    assert ask(Lying("-I", instead=answer), sys.executable) is None


NAMED = st.tuples(st.sampled_from(["key", "libc", "machine", "candidate"]), st.text()).map("=".join)


@settings(max_examples=100)
@given(st.text() | st.lists(NAMED).map("\n".join))
def test_any_survey_is_one_or_malformed(text: str) -> None:
    try:
        found = parse_survey(text)
    except Malformed as error:
        assert str(error).isprintable()
        return
    assert isinstance(found, Survey) and not set(found.key + found.machine) & set("/\0 \n;")
    assert not any("\0" in path for path in found.candidates)


FINGERPRINT = Fingerprint("ab" * 32, "3.11.7", (), {"implementation": "cpython"}, {})


@settings(max_examples=60)
@given(
    facts=st.dictionaries(
        st.sampled_from(
            ["driver", "tensorflow.cuda_version", "cpu_flags", "projects", "strays", "marker.os_name"]
        ),
        st.text(max_size=8) | st.sampled_from(["9" * 5000, "²", "12.x", "550.54"]),
    )
)
def test_facts_of_any_content_can_be_compared(facts: dict[str, str]) -> None:
    there = Fingerprint("ab" * 32, "3.11.7", (), {"implementation": "cpython", **facts}, {})
    lock = Lock(Path("x"), "requirements", "", ())
    assert isinstance(differences(lock, FINGERPRINT, there), tuple) and read_back(lock, there) == []


@pytest.mark.parametrize(
    "said", [b"", b"\xff\xff", b"a b c d e", b"x\n/ 1 2 " + b"9" * 5000 + b" 5", b"-\n" * 9]
)
def test_a_disk_that_says_nothing_sensible(said: bytes) -> None:
    assert free_bytes(Lying("df", instead=said), "/") is None


@settings(max_examples=60)
@given(st.text(max_size=40) | st.text(max_size=30).map(lambda text: f"ssh-ed25519 {text}"))
def test_any_host_key_is_one_or_refused(line: str) -> None:
    try:
        hostkeys.parse((line,))
    except HostKeyError as error:
        assert not set(error.message) & {"\x1b", "\x00"}


def test_this_interpreter_is_understood() -> None:
    assert interpreter(Path(sys.executable)).version == parse(json.dumps(real()).encode()).version
