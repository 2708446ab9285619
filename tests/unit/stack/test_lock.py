"""Locks: what is read, and what is refused with file and line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import StackError
from orchestrator.model import Pin
from orchestrator.stack import read_lock
from orchestrator.stack.lock import index_lines, parse_pylock, parse_requirements
from orchestrator.stack.target import applicable
from orchestrator.stack.wheels import requirements
from tests.unit.stack_locks import pylock, requirements_lock, uv_lock

A, B = "a" * 64, "b" * 64
HERE = Path("requirements.lock")


def read(text: str) -> tuple[Pin, ...]:
    return parse_requirements(text, HERE)


@pytest.mark.parametrize("make", [requirements_lock, uv_lock, pylock])
def test_the_three_kinds_say_the_same(tmp_path: Path, make: object) -> None:
    lock = read_lock(make(tmp_path))  # type: ignore[operator]
    assert [(pin.name, pin.version) for pin in lock.pins] == [
        ("colorama", "0.4.6"), ("packaging", "24.2"), ("six", "1.17.0"),
    ]  # fmt: skip
    assert all(len(pin.hashes) == 2 for pin in lock.pins)
    assert [pin.name for pin in applicable(lock.pins, {"sys_platform": "linux"})] == ["packaging", "six"]
    assert len(applicable(lock.pins, {"sys_platform": "win32"})) == 3


def test_the_kind_and_the_digest_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "pylock.gpu.toml"
    path.write_text('lock-version = "1.0"\ncreated-by = "a tool"\npackages = []\n')
    assert read_lock(path).kind == "pylock"
    path = tmp_path / "requirements-gpu.txt"
    path.write_text("")
    lock = read_lock(path)
    assert lock.kind == "requirements"
    assert lock.digest == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_continuations_comments_extras_markers_and_options() -> None:
    text = f"""\ufeff# made by hand
--index-url https://user:word@example.org/simple
-i https://example.org/simple
--require-hashes

Foo.Bar[gpu, extra]==1.0+cpu ; python_version >= '3.9' \\
    --hash=sha256:{B} \\
    --hash=sha512:{"c" * 128} \\
    --hash=sha256:{A.upper()}
    # via something
baz === 2 --hash=sha256:{A}  # a reason
"""
    assert read(text.lstrip("\ufeff")) == (
        Pin("foo-bar", "1.0+cpu", (A, B), "python_version >= '3.9'"),
        Pin("baz", "2", (A,)),
    )
    assert index_lines(text) == (
        "--index-url https://user:word@example.org/simple",
        "-i https://example.org/simple",
    )


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("foo>=1", "is not pinned to one version with =="),
        ("foo", "is not pinned"),
        (f"foo==1.* --hash=sha256:{A}", "is not pinned"),
        ("foo==1", "foo has no SHA-256 hash"),
        (f"foo==1 --hash=sha512:{A}{A}", "foo has no SHA-256 hash"),
        (f"foo @ https://example.org/foo.whl --hash=sha256:{A}", "comes from a URL or a folder"),
        ("git+https://example.org/foo.git", "comes from a URL or a folder"),
        ("./foo", "is a folder"),
        ("-e ./foo", "-e is refused: an editable package has no hash"),
        ("--editable=./foo", "an editable package has no hash"),
        ("-r base.txt", "-r is refused: it includes another file"),
        ("-rbase.txt", "it includes another file"),
        ("--requirement base.txt", "it includes another file"),
        ("-c limits.txt", "constraints are not allowed"),
        ("--frobnicate", "it is not an option of a lock"),
        (f"foo==1 ; python_varsion < '3' --hash=sha256:{A}", "the marker"),
    ],
)
def test_what_pins_too_little_is_refused_by_line(line: str, why: str) -> None:
    text = f"# one\nbar==1 \\\n    --hash=sha256:{A}\n{line}\n"
    with pytest.raises(StackError) as refusal:
        read(text)
    assert refusal.value.message.startswith("requirements.lock:4: ")
    assert why in refusal.value.message


def test_two_versions_at_once_are_refused() -> None:
    pins = read(f"foo==1 --hash=sha256:{A}\nfoo==2 --hash=sha256:{A}\n")
    with pytest.raises(StackError, match="wants foo 1 and 2 at once"):
        applicable(pins, {})


def test_a_lock_that_is_missing_or_no_text(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="cannot be read: No such file"):
        read_lock(tmp_path / "requirements.lock")
    (tmp_path / "requirements.lock").write_bytes(b"\xff\xfe")
    with pytest.raises(StackError, match="not UTF-8"):
        read_lock(tmp_path / "requirements.lock")


PYLOCK = 'lock-version = "1.0"\ncreated-by = "a tool"\n'
WHEEL = 'wheels = [{ url = "https://example.org/foo-1-py3-none-any.whl", hashes = { %s = "1" } }]'


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ('version = "1"\n[packages.vcs]\ntype = "git"\nurl = "x"\ncommit-id = "1"', "foo comes from vcs"),
        ('version = "1"\n[packages.directory]\npath = "."', "foo comes from directory"),
        (WHEEL % "sha256", "foo has no version"),
        ('version = "1"', "Exactly one of vcs, directory, archive must be set"),
        ('version = "1"\n' + WHEEL % "sha512", "a file of foo has no SHA-256"),
        ('version = "2"\n' + WHEEL % "sha256", "is not consistent with package version '2'"),
        ('version = "1"\nwheels = 3', "Unexpected type int"),
        ('version = "1"\nwheels = [3]', "Unexpected type int"),
        (
            'version = "1"\nmarker = "no marker"\n' + WHEEL % "sha256",
            "marker: Expected a marker variable or quoted string.$",
        ),
    ],
)
def test_a_pylock_that_pins_too_little(body: str, why: str) -> None:
    with pytest.raises(StackError, match=f"^pylock.toml:4: .*{why}"):
        parse_pylock(f'{PYLOCK}\n[[packages]]\nname = "foo"\n{body}\n', Path("pylock.toml"))


def test_a_pylock_whose_packages_are_in_one_line() -> None:
    wheel = f'{{ url = "foo-1-py3-none-any.whl", hashes = {{ sha256 = "{A}" }} }}'
    text = f'packages = [{{ name = "foo", version = "1", wheels = [{wheel}] }}]\n'
    assert parse_pylock(PYLOCK + text, Path("pylock.toml")) == (Pin("foo", "1", (A,)),)
    with pytest.raises(StackError, match=r"^pylock.toml: a file of foo has no SHA-256"):
        parse_pylock(PYLOCK + text.replace("sha256", "sha1"), Path("pylock.toml"))


@pytest.mark.parametrize("version", ["2.0", "0.9"])
def test_a_pylock_of_another_format(version: str) -> None:
    with pytest.raises(StackError, match="is not a pylock"):
        parse_pylock(f'lock-version = "{version}"\ncreated-by = ""\npackages = []', Path("pylock.toml"))


def test_a_file_that_is_no_pylock() -> None:
    with pytest.raises(StackError, match=r"^pylock.toml: created-by: Missing required value.$"):
        parse_pylock('lock-version = "1.0"', Path("pylock.toml"))
    with pytest.raises(StackError, match=r"^pylock.toml: Expected '='"):
        parse_pylock("lock-version", Path("pylock.toml"))


def test_an_uv_lock_without_its_project_says_so(tmp_path: Path) -> None:
    (tmp_path / "uv.lock").write_text("version = 1\n")
    with pytest.raises(StackError, match="uv could not read the lock"):
        read_lock(tmp_path / "uv.lock")


_names = st.from_regex(r"[a-z][a-z0-9]{0,8}(-[a-z0-9]{1,4})?", fullmatch=True)
_versions = st.from_regex(r"[0-9]{1,3}(\.[0-9]{1,3}){0,2}(\+[a-z]{1,4})?", fullmatch=True)
_hashes = st.lists(st.text("0123456789abcdef", min_size=64, max_size=64), min_size=1, max_size=4, unique=True)
_pins = st.builds(Pin, _names, _versions, _hashes.map(lambda found: tuple(sorted(found))))


@given(st.lists(_pins, max_size=6))
def test_pins_survive_being_written_and_read(pins: list[Pin]) -> None:
    assert read(requirements(pins)) == tuple(pins)


@given(st.text(st.sampled_from("fo=1 \\\n#;-r[]*@'\t>"), max_size=60))
def test_no_text_is_read_as_anything_but_pins_with_hashes(text: str) -> None:
    try:
        pins = read(text)
    except StackError as refusal:
        assert refusal.message.startswith("requirements.lock:")
    else:
        assert all(pin.hashes for pin in pins)


@pytest.mark.parametrize("name", ["Foo_Bar", "foo.bar", "FOO-BAR", "foo--bar", "foo._.bar"])
def test_names_are_compared_as_pep_503_says(name: str) -> None:
    (pin,) = read(f"{name}==1.0 --hash=sha256:{'a' * 64}\n")
    assert pin.name == "foo-bar"
