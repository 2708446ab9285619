"""Get uv, the package installer, with nothing but Python's standard library.

    python3 scripts/get_uv.py get LOCK FOLDER     FOLDER/uv: the version that LOCK pins, by hash
    python3 scripts/get_uv.py settings            shell lines: pip's package index and certificates, for uv

The index is the configured one: UV_DEFAULT_INDEX, UV_INDEX_URL, PIP_INDEX_URL or pip's configuration
files; else the public one. Proxies come from the environment, or from pip's configuration. Nothing is
unpacked whose SHA-256 is not in LOCK, whatever the index says.
"""

from __future__ import annotations

import base64
import configparser
import hashlib
import html.parser
import http.client
import json
import os
import platform
import re
import shlex
import ssl
import stat
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

PUBLIC_INDEX = "https://pypi.org/simple"
ATTEMPTS = 3
TIMEOUT = 60.0
SIMPLE = "application/vnd.pypi.simple.v1+json, text/html;q=0.5"


class Refused(Exception):
    """A sentence for the user, with what to do."""


# ---------------------------------------------------------------- what is pinned


def pinned(lock: Path) -> tuple[str, set[str]]:
    """The version of uv in `lock` and the SHA-256 of its files."""
    entry = re.search(r"^uv==(\S+)((?:\s*\\\n\s+--hash=sha256:[0-9a-f]{64})+)", lock.read_text("utf-8"), re.M)
    if not entry:
        raise Refused(f"{lock} pins no uv with hashes. Make it again: scripts/lock")
    return entry.group(1), set(re.findall(r"sha256:([0-9a-f]{64})", entry.group(2)))


def fits(filename: str, version: str, system: str, machine: str, libc: tuple[str, str]) -> bool:
    """Whether the wheel `filename` is uv `version` for this computer. `libc` as platform.libc_ver()."""
    prefix = f"uv-{version}-py3-none-"
    if not (filename.startswith(prefix) and filename.endswith(".whl")):
        return False
    tags = filename[len(prefix) : -len(".whl")].split(".")
    machine = {"arm64": "aarch64", "AMD64": "x86_64"}.get(machine, machine)
    if system == "Darwin":
        machine = {"aarch64": "arm64"}.get(machine, machine)
        return any(tag.startswith("macosx_") and tag.endswith("_" + machine) for tag in tags)
    return system == "Linux" and any(_fits_linux(tag, machine, libc) for tag in tags)


def _fits_linux(tag: str, machine: str, libc: tuple[str, str]) -> bool:
    glibc = re.fullmatch(rf"manylinux_(\d+)_(\d+)_{re.escape(machine)}", tag)
    if glibc and libc[0] == "glibc":
        have = [int(part) for part in re.findall(r"\d+", libc[1])[:2]]
        return have >= [int(glibc.group(1)), int(glibc.group(2))]
    return tag.startswith("musllinux_") and tag.endswith("_" + machine)  # linked statically: runs on any libc


# ---------------------------------------------------------------- what is configured


def pip_files(environ: Mapping[str, str]) -> list[Path]:
    """pip's configuration files, the weakest first."""
    home = Path(environ.get("HOME") or "/nonexistent")
    named = environ.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return []
    usual = [
        Path("/etc/xdg/pip/pip.conf"),
        Path("/Library/Application Support/pip/pip.conf"),
        Path("/etc/pip.conf"),
        home / ".pip/pip.conf",
        home / "Library/Application Support/pip/pip.conf",
        Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "pip/pip.conf",
    ]
    return usual + ([Path(named)] if named else [])


def pip_options(environ: Mapping[str, str]) -> dict[str, str]:
    """index-url, cert and proxy as pip would see them; absent where not configured."""
    found: dict[str, str] = {}
    for path in pip_files(environ):
        parser = configparser.RawConfigParser()
        try:
            parser.read(str(path), encoding="utf-8")
        except (OSError, configparser.Error, UnicodeDecodeError):
            continue  # pip itself will complain of it; we only look
        for section in ("global", "install"):
            if parser.has_section(section):
                found.update(parser.items(section))
    for name in ("index-url", "cert", "proxy"):
        value = environ.get("PIP_" + name.upper().replace("-", "_"))
        if value:
            found[name] = value
    return {name: found[name] for name in ("index-url", "cert", "proxy") if found.get(name)}


def index_url(environ: Mapping[str, str]) -> str:
    """The package index to ask, credentials included where the user put them there."""
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL"):
        if environ.get(name):
            return environ[name]
    return pip_options(environ).get("index-url", PUBLIC_INDEX)


def certificates(environ: Mapping[str, str]) -> str | None:
    """The file of trusted certificates that the user named, or None: the system's."""
    return (
        environ.get("SSL_CERT_FILE") or pip_options(environ).get("cert") or environ.get("REQUESTS_CA_BUNDLE")
    )


def settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Environment variables that let uv, which reads none of pip's configuration, use the same index."""
    pip = pip_options(environ)
    wanted = {"SSL_CERT_FILE": certificates(environ)}
    if not (environ.get("UV_DEFAULT_INDEX") or environ.get("UV_INDEX_URL") or environ.get("UV_CONFIG_FILE")):
        wanted["UV_DEFAULT_INDEX"] = pip.get("index-url")
    if not (environ.get("HTTPS_PROXY") or environ.get("https_proxy")):
        wanted["HTTPS_PROXY"] = pip.get("proxy")
    return {name: value for name, value in wanted.items() if value and environ.get(name) != value}


# ---------------------------------------------------------------- the index


class Links(html.parser.HTMLParser):
    """The links of a simple index page: (file name, absolute URL)."""

    def __init__(self, base: str) -> None:
        super().__init__()
        self.base = base
        self.found: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        href = dict(attrs).get("href")
        if tag == "base" and href:
            self.base = urllib.parse.urljoin(self.base, href)
        if tag == "a" and href:
            url = urllib.parse.urldefrag(urllib.parse.urljoin(self.base, href)).url
            self.found.append((urllib.parse.unquote(urllib.parse.urlsplit(url).path.rsplit("/", 1)[-1]), url))


def links(page: bytes, content_type: str, base: str) -> list[tuple[str, str]]:
    """(file name, absolute URL) of every file on an index page, JSON or HTML."""
    if "json" in content_type:
        files = json.loads(page.decode("utf-8"))["files"]
        return [(file["filename"], urllib.parse.urljoin(base, file["url"])) for file in files]
    parser = Links(base)
    parser.feed(page.decode("utf-8", "replace"))
    return parser.found


class Index:
    """A package index, asked over HTTP(S) or read from a folder (file:). Credentials go to its host alone."""

    def __init__(self, url: str, cafile: str | None, proxy: str | None) -> None:
        parts = urllib.parse.urlsplit(url)
        self._host = parts.netloc.rpartition("@")[2]
        self._credentials = _basic(parts.username, parts.password) if parts.username else None
        self.url = parts._replace(netloc=self._host).geturl().rstrip("/") + "/"
        handlers: list[urllib.request.BaseHandler] = [urllib.request.HTTPSHandler(context=_trust(cafile))]
        if proxy:
            handlers.append(urllib.request.ProxyHandler({"http": proxy, "https": proxy}))
        self._opener = urllib.request.build_opener(*handlers)

    def files(self, project: str) -> list[tuple[str, str]]:
        base = self.url + project + "/"
        if base.startswith("file:") and Path(_local(base)).is_dir():
            base += "index.html"
        with self._open(base) as answer:
            return links(answer.read(), answer.headers.get("Content-Type") or "", answer.geturl())

    def download(self, url: str, target: Path) -> str:
        """Write what `url` holds to `target`; its SHA-256."""
        digest = hashlib.sha256()
        with self._open(url) as answer, open(str(target), "wb") as file:
            for block in iter(lambda: answer.read(1 << 20), b""):
                digest.update(block)
                file.write(block)
            length = answer.headers.get("Content-Length")
            if length and int(length) != file.tell():
                raise OSError(f"{file.tell()} of {length} bytes came, then the connection ended")
        return digest.hexdigest()

    def _open(self, url: str) -> Any:
        request = urllib.request.Request(url, headers={"Accept": SIMPLE, "User-Agent": "orch-setup"})
        if self._credentials and urllib.parse.urlsplit(url).netloc == self._host:
            request.add_unredirected_header("Authorization", self._credentials)
        return self._opener.open(request, timeout=TIMEOUT)


def _trust(cafile: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=cafile)
    except OSError as error:
        raise Refused(
            f"The certificates in {cafile} cannot be read: {error.strerror}. See SSL_CERT_FILE."
        ) from error


def _basic(user: str, password: str | None) -> str:
    pair = f"{urllib.parse.unquote(user)}:{urllib.parse.unquote(password or '')}"
    return "Basic " + base64.b64encode(pair.encode("utf-8")).decode("ascii")


def _local(url: str) -> str:
    return urllib.request.url2pathname(urllib.parse.urlsplit(url).path)


# ---------------------------------------------------------------- getting it


def get(lock: Path, folder: Path, environ: Mapping[str, str]) -> Path:
    """The pinned uv as `folder`/uv, got from the configured index. Refuses what the lock does not know."""
    version, hashes = pinned(lock)
    index = Index(index_url(environ), certificates(environ), pip_options(environ).get("proxy"))
    machine = (platform.system(), platform.machine(), platform.libc_ver())
    for wait in _waits():
        try:
            return _get(index, version, hashes, machine, folder)
        except urllib.error.HTTPError as error:
            if error.code < 500 and error.code != 429:
                raise Refused(
                    f"The package index {index.url} answered {error.code} {error.reason}. {_ADVICE}"
                ) from error
            problem = f"{error.code} {error.reason}"
        except (OSError, ValueError, http.client.HTTPException) as error:
            problem = str(getattr(error, "reason", error))
        if wait is None:
            raise Refused(f"The package index {index.url} cannot be used: {problem}. {_ADVICE}")
        time.sleep(wait)
    raise AssertionError("unreachable")


_ADVICE = (
    "Name the index that this computer may use in PIP_INDEX_URL (its certificates in PIP_CERT, a proxy in "
    "HTTPS_PROXY), or install uv yourself and run this again."
)


def _waits() -> Iterator[float | None]:
    """Seconds to wait after each failed attempt; None after the last."""
    for attempt in range(ATTEMPTS - 1):
        yield 2.0**attempt
    yield None


def _get(
    index: Index, version: str, hashes: set[str], machine: tuple[str, str, tuple[str, str]], folder: Path
) -> Path:
    fitting = [(name, url) for name, url in index.files("uv") if fits(name, version, *machine)]
    if not fitting:
        raise Refused(
            f"{index.url} has no uv {version} for {machine[0]} {machine[1]}. "
            "Install uv yourself and run this again."
        )
    folder.mkdir(parents=True, exist_ok=True)
    name, url = fitting[0]
    with tempfile.TemporaryDirectory(dir=str(folder)) as scratch:
        wheel = Path(scratch) / "uv.whl"
        digest = index.download(url, wheel)
        if digest not in hashes:
            raise Refused(
                f"{name} from {index.url} is not the file that the lock pins (SHA-256 {digest}). Not used."
            )
        return _unpack(wheel, folder)


def _unpack(wheel: Path, folder: Path) -> Path:
    """The one program in `wheel` as `folder`/uv, whole or not at all."""
    target, part = folder / "uv", wheel.with_name("uv")
    with zipfile.ZipFile(str(wheel)) as archive:
        (member,) = [name for name in archive.namelist() if name.endswith(".data/scripts/uv")]
        part.write_bytes(archive.read(member))
    part.chmod(part.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    part.replace(target)
    return target


def main(arguments: list[str]) -> int:
    try:
        if arguments == ["settings"]:
            for name, value in settings(os.environ).items():
                print(f"export {name}={shlex.quote(value)}")
        elif len(arguments) == 3 and arguments[0] == "get":
            print(get(Path(arguments[1]), Path(arguments[2]), os.environ))
        else:
            print(__doc__, file=sys.stderr)
            return 2
    except Refused as refusal:
        print(refusal, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
