"""Which wheel a machine gets, and how it comes into the cache."""

from __future__ import annotations

import hashlib
import platform
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from packaging.tags import sys_tags

from orchestrator.errors import StackError
from orchestrator.model import Lock, Pin, Silent
from orchestrator.stack import interpreter, read_lock
from orchestrator.stack.download import cached, collect
from orchestrator.stack.foreign import uv_for
from orchestrator.stack.indexes import authorization
from orchestrator.stack.target import Target, applicable, target_of
from orchestrator.stack.uv import uv_binary
from orchestrator.stack.wheels import Wheel, choose, find_wheels, index_hints, parse_wheels, wheel_tags
from tests.unit.stack_locks import requirements_lock, uv_lock

pytestmark = pytest.mark.registry

BYTES = b"not really a wheel"
DIGEST = hashlib.sha256(BYTES).hexdigest()


@pytest.fixture
def here() -> Target:
    import sys

    return target_of(interpreter(Path(sys.executable)))


def linux(machine: str = "x86_64", libc: str = "glibc 2.36", version: str = "3.11.7") -> Target:
    return Target(version, "", "Linux", machine, libc, {})


def test_the_tags_of_this_interpreter_are_what_packaging_says_of_it(here: Target) -> None:
    expected = list(dict.fromkeys(map(str, sys_tags())))
    assert sorted(here.tags) == sorted(expected)
    # Releases of packaging differ in where they put what was built for one computer alone.
    portable = [tag for tag in expected if "-linux_" not in tag]
    assert [tag for tag in here.tags if "-linux_" not in tag] == portable


def wheel(tags: str, digest: str = "a", build: str = "") -> Wheel:
    return Wheel("foo", "1", f"foo-1-{build}{tags}.whl", "https://example.org/x", digest * 64)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (linux(), "cp311-cp311-manylinux_2_28_x86_64"),
        (linux(libc="glibc 2.27"), "cp311-cp311-manylinux2014_x86_64.manylinux_2_17_x86_64"),
        (linux(libc="glibc 2.12"), "py3-none-any"),
        (linux(version="3.12.1"), "cp37-abi3-manylinux_2_17_x86_64"),
        (linux("aarch64"), "cp311-cp311-manylinux_2_17_aarch64"),
        (linux("riscv64"), "py3-none-any"),
        (linux(libc=""), "cp311-cp311-musllinux_1_2_x86_64"),
    ],
)
def test_the_wheel_that_fits_best(target: Target, expected: str) -> None:
    offered = [
        wheel(tags)
        for tags in (
            "py3-none-any", "cp311-cp311-manylinux_2_28_x86_64", "cp311-cp311-win_amd64",
            "cp311-cp311-manylinux2014_x86_64.manylinux_2_17_x86_64", "cp37-abi3-manylinux_2_17_x86_64",
            "cp311-cp311-manylinux_2_17_aarch64", "cp311-cp311-musllinux_1_2_x86_64",
        )
    ]  # fmt: skip
    chosen = choose(Pin("foo", "1", ("a" * 64,)), offered, target)
    assert chosen and chosen.filename == f"foo-1-{expected}.whl"


def test_a_better_wheel_that_the_lock_does_not_allow_is_not_taken() -> None:
    better, allowed = wheel("cp311-cp311-manylinux_2_28_x86_64", "b"), wheel("py3-none-any", "a")
    pin = Pin("foo", "1", ("a" * 64,))
    assert choose(pin, [better, allowed], linux()) == allowed
    assert choose(pin, [better], linux()) is None
    first, second = wheel("py3-none-any", build="1-"), wheel("py3-none-any", build="2-")
    assert choose(pin, [first, second], linux()) == second
    assert wheel_tags("foo-1.tar.gz") == frozenset()


@pytest.mark.parametrize("make", [requirements_lock, uv_lock])
def test_uv_says_where_the_files_are_and_the_answer_is_kept(
    tmp_path: Path, here: Target, make: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = read_lock(make(tmp_path))  # type: ignore[operator]
    pins = applicable(lock.pins, here.markers)
    found = find_wheels(lock, pins, here, tmp_path / "cache")
    files = ["packaging-24.2-py3-none-any.whl", "six-1.17.0-py2.py3-none-any.whl"]
    assert [w.filename for w in found] == files
    monkeypatch.setenv("PATH", "/nowhere")
    for name in ("UV_DEFAULT_INDEX", "UV_OFFLINE"):
        monkeypatch.setenv(name, "https://127.0.0.1:9/simple" if "INDEX" in name else "1")
    assert find_wheels(lock, pins, here, tmp_path / "cache") == found


def test_a_package_without_a_fitting_wheel_is_named(tmp_path: Path) -> None:
    (tmp_path / "pylock.toml").write_text(
        'lock-version = "1.0"\ncreated-by = "a test"\n[[packages]]\nname = "foo"\nversion = "1"\n'
        f'sdist = {{ url = "https://example.org/foo-1.tar.gz", hashes = {{ sha256 = "{DIGEST}" }} }}\n'
    )
    lock = read_lock(tmp_path / "pylock.toml")
    with pytest.raises(StackError, match=r"No wheel in the lock fits Python 3.11.7 on Linux .*: foo 1\."):
        find_wheels(lock, lock.pins, linux(), tmp_path)


def test_credentials_in_a_lock_are_not_kept(tmp_path: Path) -> None:
    (tmp_path / "pylock.toml").write_text(
        'lock-version = "1.0"\ncreated-by = "a test"\n[[packages]]\nname = "foo"\nversion = "1"\nwheels = [{ '
        'url = "https://me:word@example.org/foo-1-py3-none-any.whl", '
        f'hashes = {{ sha256 = "{DIGEST}" }} }}]\n'
    )
    lock = read_lock(tmp_path / "pylock.toml")
    (found,) = find_wheels(lock, lock.pins, linux(), tmp_path / "cache")
    assert found.url == "https://example.org/foo-1-py3-none-any.whl"
    assert not [p for p in (tmp_path / "cache").rglob("*") if p.is_file() and b"word" in p.read_bytes()]


def test_relative_paths_are_below_the_lock(tmp_path: Path) -> None:
    package = {"name": "Foo", "version": "1", "wheels": [{"path": "w/foo-1-py3-none-any.whl"}]}
    (found,) = parse_wheels({"packages": [package]}, tmp_path)
    assert found.url == (tmp_path / "w/foo-1-py3-none-any.whl").as_uri()


def test_where_a_login_may_be_found(tmp_path: Path) -> None:
    lock = uv_lock(tmp_path)
    with (tmp_path / "pyproject.toml").open("a") as stream:
        stream.write('[[tool.uv.index]]\nname = "own"\nurl = "https://host/simple"\n')
    assert index_hints(Lock(lock, "uv.lock", "", ())) == ("own=https://host/simple",)
    path = tmp_path / "r.txt"
    path.write_text(f"-i https://me:word@host/simple\nfoo==1 --hash=sha256:{DIGEST}\n")
    assert index_hints(Lock(path, "requirements", "", ()))[0] == "-i https://me:word@host/simple"
    signed = tmp_path / "pylock.toml"
    signed.write_text('url = "https://me:word@host/foo.whl"\n')
    hints = index_hints(Lock(signed, "pylock", "", ()))
    assert authorization("https://host/foo.whl", {"HOME": str(tmp_path)}, hints) == "Basic bWU6d29yZA=="


def test_an_answer_with_signed_urls_is_not_kept(tmp_path: Path) -> None:
    (tmp_path / "pylock.toml").write_text(
        'lock-version = "1.0"\ncreated-by = "a test"\n[[packages]]\nname = "foo"\nversion = "1"\nwheels = [{ '
        'url = "https://example.org/foo-1-py3-none-any.whl?signature=word", '
        f'hashes = {{ sha256 = "{DIGEST}" }} }}]\n'
    )
    lock = read_lock(tmp_path / "pylock.toml")
    (found,) = find_wheels(lock, lock.pins, linux(), tmp_path / "cache")
    assert found.filename == "foo-1-py3-none-any.whl"
    assert not (tmp_path / "cache").exists()


# ---------------------------------------------------------------- download


class _Index(ThreadingHTTPServer):
    """Serves BYTES at /ok; 503 the first two times at /flaky; wants a login at /login."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.asked: list[tuple[str, str | None]] = []

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_port}{path}"


class _Answer(BaseHTTPRequestHandler):
    server: _Index

    def do_GET(self) -> None:
        login = self.headers.get("Authorization")
        self.server.asked.append((self.path, login))
        times = [path for path, _ in self.server.asked].count(self.path)
        failing = (self.path == "/flaky" and times < 3) or (self.path == "/login" and not login)
        self.send_response((503 if self.path == "/flaky" else 401) if failing else 200)
        self.send_header("Content-Length", "0" if failing else str(len(BYTES)))
        self.end_headers()
        if not failing:
            self.wfile.write(BYTES)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def index() -> Iterator[_Index]:
    server = _Index()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def at(url: str, digest: str = DIGEST) -> Wheel:
    return Wheel("foo", "1", "foo-1-py3-none-any.whl", url, digest)


def test_a_wheel_is_downloaded_once(tmp_path: Path, index: _Index) -> None:
    found = at(index.url("/ok"))
    for _ in range(2):
        assert [path.read_bytes() for path in collect([found], tmp_path, Silent())] == [BYTES]
    assert index.asked == [("/ok", None)]


class Meter(Silent):
    """Counts how often a transfer was told to be done."""

    def __init__(self) -> None:
        self.ends: list[int] = []

    def transfer(self, label: str, done: int, total: int) -> None:
        if label == "wheels" and done >= total:
            self.ends.append(done)


def test_downloads_whose_sizes_are_learnt_late_are_done_once(tmp_path: Path, index: _Index) -> None:
    names = ("foo", "bar", "baz")
    wheels = [
        replace(at(index.url("/ok")), name=name, filename=f"{name}-1-py3-none-any.whl") for name in names
    ]
    meter = Meter()
    collect(wheels, tmp_path, meter)
    assert meter.ends == [len(BYTES) * len(index.asked)]


def test_a_server_that_is_busy_is_asked_again(tmp_path: Path, index: _Index) -> None:
    collect([at(index.url("/flaky"))], tmp_path, Silent())
    assert len(index.asked) == 3


def test_other_bytes_than_the_locked_ones_never_enter_the_cache(tmp_path: Path, index: _Index) -> None:
    wrong = at(index.url("/ok"), "f" * 64)
    with pytest.raises(StackError, match="is not the file that the lock names"):
        collect([wrong], tmp_path, Silent())
    assert not cached(wrong, tmp_path).exists()
    assert list((tmp_path / "wheels").iterdir()) == []


def test_a_login_comes_from_the_users_settings(tmp_path: Path, index: _Index) -> None:
    url = index.url("/login")
    with pytest.raises(StackError, match="requires a login"):
        collect([at(url)], tmp_path, Silent(), environ={"HOME": str(tmp_path)})
    netrc = tmp_path / ".netrc"
    netrc.write_text("machine 127.0.0.1 login me password word\n")
    collect([at(url)], tmp_path, Silent(), environ={"HOME": str(tmp_path)})
    assert index.asked[-1] == ("/login", "Basic bWU6d29yZA==")
    assert not [p for p in (tmp_path / "wheels").rglob("*") if p.is_file() and b"word" in p.read_bytes()]


def test_a_wheel_from_a_folder(tmp_path: Path) -> None:
    (tmp_path / "foo.whl").write_bytes(BYTES)
    (path,) = collect([at((tmp_path / "foo.whl").as_uri())], tmp_path / "cache", Silent())
    assert path.read_bytes() == BYTES
    with pytest.raises(StackError, match="could not be downloaded"):
        collect([at((tmp_path / "bar.whl").as_uri(), "1" * 64)], tmp_path / "cache", Silent())


def test_no_pins_ask_nobody(tmp_path: Path, here: Target) -> None:
    empty = Lock(tmp_path / "requirements.lock", "requirements", "", ())
    assert find_wheels(empty, (), here, tmp_path) == ()


@pytest.mark.slow
def test_uv_for_another_kind_of_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCH_CACHE_HOME", str(tmp_path))
    image = uv_for("Linux", "aarch64" if platform.machine() != "aarch64" else "x86_64", uv_binary())
    assert isinstance(image, bytes)
    architectures = {b"\xb7\x00": "aarch64", b"\x3e\x00": "x86_64"}
    assert architectures[image[18:20]] != platform.machine()
    assert uv_for(platform.system(), platform.machine(), uv_binary()) == uv_binary()
