"""Fetching uv, by the hash that a lock pins, from an index on this computer."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import io
import os
import platform
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPTS = Path(__file__).resolve().parents[3] / "scripts"
PROGRAM = b"#!/bin/sh\necho uv 9.8.7\n"


@pytest.fixture(scope="module")
def get_uv() -> ModuleType:
    spec = importlib.util.spec_from_file_location("get_uv", SCRIPTS / "get_uv.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# ---------------------------------------------------------------- an index on this computer


def wheel(program: bytes = PROGRAM) -> bytes:
    """A wheel with the one program that ours takes out of it."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("uv/__init__.py", b"")
        archive.writestr("uv-9.8.7.data/scripts/uv", program)
    return file.getvalue()


def wheel_name() -> str:
    machine = platform.machine()
    tag = f"musllinux_1_1_{machine}" if sys.platform == "linux" else f"macosx_11_0_{machine}"
    return f"uv-9.8.7-py3-none-{tag}.whl"


def write_lock(folder: Path, content: bytes) -> Path:
    path = folder / "some.lock"
    path.write_text(
        "typer==1.0 \\\n    --hash=sha256:" + "1" * 64 + "\nuv==9.8.7 \\\n    --hash=sha256:" + "0" * 64
        + " \\\n    --hash=sha256:" + hashlib.sha256(content).hexdigest() + "\nzipp==1.0\n"
    )  # fmt: skip
    return path


@dataclass
class Served:
    """A loopback HTTP server: path -> answers in turn (the last one stays), and what was asked of it."""

    url: str
    pages: dict[str, list[tuple[int, str, bytes]]] = field(default_factory=dict)
    asked: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)

    def serve(self, path: str, content: bytes, kind: str = "text/html", status: int = 200) -> str:
        self.pages.setdefault(path, []).append((status, kind, content))
        return self.url + path


Serve = Callable[[], Served]


@pytest.fixture
def serve() -> Iterator[Serve]:
    servers = []

    def start() -> Served:
        server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
        served = Served(f"http://127.0.0.1:{server.server_port}")

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                served.asked.append((self.path, dict(self.headers)))
                answers = served.pages.get(self.path) or [(404, "text/plain", b"")]
                status, kind, content = answers.pop(0) if len(answers) > 1 else answers[0]
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None: ...

        server.RequestHandlerClass = Handler
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return served

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def index(serve: Serve) -> Served:
    """An index with the wheel of this computer, as HTML."""
    served = serve()
    served.serve("/files/" + wheel_name(), wheel(), "application/octet-stream")
    served.serve("/simple/uv/", f'<a href="../../files/{wheel_name()}#sha256=0">x</a>'.encode())
    return served


def test_uv_is_fetched_from_the_configured_index(index: Served, tmp_path: Path) -> None:
    lock = write_lock(tmp_path, wheel())
    environ = dict(os.environ, PIP_INDEX_URL=index.url + "/simple", PIP_CONFIG_FILE=os.devnull)
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL"):
        environ.pop(name, None)
    command = [
        sys.executable,
        "-I",
        "-S",
        str(SCRIPTS / "get_uv.py"),
        "get",
        str(lock),
        str(tmp_path / "bin"),
    ]
    said = subprocess.run(command, env=environ, capture_output=True, text=True, check=True, timeout=60).stdout
    program = said.strip()
    assert subprocess.check_output([program], text=True) == "uv 9.8.7\n"
    assert [path.name for path in (tmp_path / "bin").iterdir()] == ["uv"]


def test_an_index_may_speak_json(get_uv: ModuleType, serve: Serve, tmp_path: Path) -> None:
    served = serve()
    page = f'{{"files": [{{"filename": "{wheel_name()}", "url": "/f"}}]}}'.encode()
    served.serve("/s/uv/", page, "application/vnd.pypi.simple.v1+json")
    served.serve("/f", wheel())
    target = get_uv.get(
        write_lock(tmp_path, wheel()), tmp_path / "bin", {"UV_DEFAULT_INDEX": served.url + "/s/"}
    )
    assert target.read_bytes() == PROGRAM


def test_a_folder_may_be_the_index(get_uv: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "uv").mkdir()
    (tmp_path / "uv" / wheel_name()).write_bytes(wheel())
    (tmp_path / "uv/index.html").write_text(f'<a href="{wheel_name()}">x</a>')
    target = get_uv.get(write_lock(tmp_path, wheel()), tmp_path / "bin", {"UV_INDEX_URL": tmp_path.as_uri()})
    assert target.read_bytes() == PROGRAM


def test_another_file_than_the_pinned_one_is_refused(
    get_uv: ModuleType, index: Served, tmp_path: Path
) -> None:
    lock = write_lock(tmp_path, wheel(b"#!/bin/sh\necho the one that was pinned\n"))
    with pytest.raises(get_uv.Refused, match="not the file that the lock pins"):
        get_uv.get(lock, tmp_path / "bin", {"PIP_INDEX_URL": index.url + "/simple"})
    assert list((tmp_path / "bin").iterdir()) == []


def test_credentials_go_to_the_index_alone_and_into_no_message(
    get_uv: ModuleType, serve: Serve, tmp_path: Path
) -> None:
    """The index at 127.0.0.1 needs a password; its files lie on another server."""
    files, served = serve(), serve()
    url = files.serve("/" + wheel_name(), wheel(b"other"))
    served.serve("/uv/", f'<a href="{url}">x</a>'.encode())
    with_password = served.url.replace("://", "://me:s%40cret@")
    with pytest.raises(get_uv.Refused) as refusal:
        get_uv.get(write_lock(tmp_path, wheel()), tmp_path / "bin", {"PIP_INDEX_URL": with_password})
    expected = "Basic " + base64.b64encode(b"me:s@cret").decode()
    assert [headers.get("Authorization") for _, headers in served.asked] == [expected]
    assert [headers.get("Authorization") for _, headers in files.asked] == [None]
    assert "cret" not in str(refusal.value)


def test_an_index_that_stumbles_is_asked_again(get_uv: ModuleType, serve: Serve, tmp_path: Path) -> None:
    served = serve()
    served.serve("/uv/", b"busy", status=503)
    served.serve("/uv/", f'<a href="/{wheel_name()}">x</a>'.encode())
    served.serve("/" + wheel_name(), wheel())
    assert get_uv.get(write_lock(tmp_path, wheel()), tmp_path / "bin", {"PIP_INDEX_URL": served.url}).exists()
    assert [path for path, _ in served.asked] == ["/uv/", "/uv/", "/" + wheel_name()]


@pytest.mark.parametrize(
    ("page", "status", "said"),
    [(b"", 200, "has no uv 9.8.7 for"), (b"", 404, "answered 404"), (b"", 401, "answered 401")],
)
def test_what_is_missing_is_named(
    get_uv: ModuleType, serve: Serve, tmp_path: Path, page: bytes, status: int, said: str
) -> None:
    served = serve()
    served.serve("/uv/", page, status=status)
    with pytest.raises(get_uv.Refused, match=said):
        get_uv.get(write_lock(tmp_path, wheel()), tmp_path / "bin", {"PIP_INDEX_URL": served.url})


# ---------------------------------------------------------------- which file, which settings

GLIBC = ("glibc", "2.36")
MUSL = ("", "")
NAMES = {
    "macosx_11_0_arm64": [("Darwin", "arm64", MUSL)],
    "macosx_10_12_x86_64": [("Darwin", "x86_64", MUSL)],
    "manylinux_2_17_x86_64.manylinux2014_x86_64": [("Linux", "x86_64", GLIBC)],
    "manylinux_2_28_aarch64": [("Linux", "aarch64", GLIBC)],
    "musllinux_1_1_x86_64": [("Linux", "x86_64", GLIBC), ("Linux", "x86_64", MUSL)],
    "manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64": [
        ("Linux", "aarch64", GLIBC),
        ("Linux", "aarch64", MUSL),
        ("Linux", "aarch64", ("glibc", "2.17")),
    ],
    "manylinux_2_99_x86_64": [],
    "win_amd64": [],
}
COMPUTERS = sorted({computer for computers in NAMES.values() for computer in computers})


@pytest.mark.parametrize("tag", NAMES)
def test_a_wheel_is_taken_where_it_runs(get_uv: ModuleType, tag: str) -> None:
    name = f"uv-9.8.7-py3-none-{tag}.whl"
    assert [computer for computer in COMPUTERS if get_uv.fits(name, "9.8.7", *computer)] == sorted(NAMES[tag])
    assert not any(get_uv.fits(name, "9.8", *computer) for computer in COMPUTERS)


def test_settings_of_pip_reach_uv_by_way_of_the_shell(tmp_path: Path) -> None:
    config = tmp_path / "pip.conf"
    config.write_text(
        "[global]\nindex-url = https://i.invalid/it's\ncert = /c/a.pem\nproxy = http://p.invalid:1\n"
    )
    plain = {"PATH": os.environ["PATH"], "PIP_CONFIG_FILE": str(config), "HOME": str(tmp_path)}
    script = f'eval "$({sys.executable} {SCRIPTS}/get_uv.py settings)"; env'

    def variables(**more: str) -> dict[str, str]:
        said = subprocess.check_output(["bash", "-c", script], env={**plain, **more}, text=True)
        names = ("UV_DEFAULT_INDEX", "SSL_CERT_FILE", "HTTPS_PROXY")
        found = dict(line.split("=", 1) for line in said.splitlines() if "=" in line)
        return {name: found[name] for name in names if name in found}

    assert variables() == {
        "UV_DEFAULT_INDEX": "https://i.invalid/it's",
        "SSL_CERT_FILE": "/c/a.pem",
        "HTTPS_PROXY": "http://p.invalid:1",
    }
    assert variables(PIP_INDEX_URL="https://env.invalid")["UV_DEFAULT_INDEX"] == "https://env.invalid"
    assert variables(UV_DEFAULT_INDEX="https://uv.invalid")["UV_DEFAULT_INDEX"] == "https://uv.invalid"
    assert variables(SSL_CERT_FILE="/mine.pem")["SSL_CERT_FILE"] == "/mine.pem"
    assert variables(PIP_CONFIG_FILE=os.devnull) == {}
