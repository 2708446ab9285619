"""The user's package indexes: pip's settings as settings of uv, and the credentials for a download.

Credentials are read when they are needed, and sent in a request's header. They are never written anywhere.
"""

from __future__ import annotations

import configparser
import netrc
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

_UV_URLS = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS")
_PIP_KEYS = ("index-url", "extra-index-url", "find-links")


def pip_settings(environ: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return pip's index-url, extra-index-url and find-links: from its files, overridden by PIP_*
    variables.
    """
    found: dict[str, tuple[str, ...]] = {}
    for path in _pip_files(environ):
        parser = configparser.RawConfigParser()
        try:
            parser.read(path, encoding="utf-8")
        except (configparser.Error, OSError, UnicodeDecodeError):
            continue
        for section in ("global", "install", "download"):
            for key in _PIP_KEYS:
                if parser.has_option(section, key):
                    found[key] = tuple(parser.get(section, key).split())
    for key in _PIP_KEYS:
        value = environ.get("PIP_" + key.upper().replace("-", "_"))
        if value is not None:
            found[key] = tuple(value.split())
    return {key: values for key, values in found.items() if values}


def _pip_files(environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield pip's configuration files, those of lowest precedence first."""
    home = Path(environ.get("HOME", "~")).expanduser()
    yield Path("/etc/pip.conf")
    yield home / ".pip/pip.conf"
    yield Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "pip/pip.conf"
    if environ.get("PIP_CONFIG_FILE"):
        yield Path(environ["PIP_CONFIG_FILE"])


def pip_as_uv(environ: Mapping[str, str]) -> dict[str, str]:
    """Return pip's index settings as variables of uv; none if a variable of uv already names an index.

    Local folders that do not exist are left out: pip ignores them, but uv stops.
    """
    settings = {key: tuple(filter(_exists, values)) for key, values in pip_settings(environ).items()}
    wanted = {
        "UV_DEFAULT_INDEX": " ".join(settings.get("index-url", ())[:1]),
        "UV_INDEX": " ".join(settings.get("extra-index-url", ())),
        "UV_FIND_LINKS": ",".join(settings.get("find-links", ())),
    }
    taken = any(environ.get(name) for name in _UV_URLS)
    chosen = {} if taken else {name: value for name, value in wanted.items() if value}
    # pip asks all its indexes; the lock's hashes make that safe.
    return {**chosen, "UV_INDEX_STRATEGY": "unsafe-best-match"} if chosen else {}


def _exists(place: str) -> bool:
    parts = urlsplit(place)
    if parts.scheme in {"http", "https"}:
        return True
    return Path(unquote(parts.path) if parts.scheme == "file" else place).exists()


def has_secret(url: str) -> bool:
    return "@" in urlsplit(url).netloc


def bare(url: str) -> str:
    """Return `url` without user and password."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def without_secrets(text: str) -> str:
    """Return `text` with the credentials in URLs replaced by ***."""
    return re.sub(r"(\w+://)[^\s/@]+@", r"\1***@", text)


def authorization(url: str, environ: Mapping[str, str], lines: tuple[str, ...] = ()) -> str | None:
    """Return the Authorization header for `url`: from the url itself, the configured indexes of its host, or
    ~/.netrc; None if there is none.

    `lines` are what a lock and its project say about indexes: options, URLs, NAME=URL.
    """
    host = urlsplit(bare(url)).netloc
    for candidate in (url, *_configured(environ), *_urls_in(" ".join(lines))):
        parts = urlsplit(candidate)
        if parts.username and parts.netloc.rpartition("@")[2] == host:
            return _basic(unquote(parts.username), unquote(parts.password or ""))
    return _from_names(host, environ, lines) or _from_netrc(urlsplit(url).hostname or "", environ)


def _configured(environ: Mapping[str, str]) -> Iterator[str]:
    yield from _urls_in(" ".join(environ.get(name, "") for name in _UV_URLS))
    for values in pip_settings(environ).values():
        yield from values


def _urls_in(text: str) -> list[str]:
    return re.findall(r"https?://[^\s,]+", text)


def _from_names(host: str, environ: Mapping[str, str], lines: tuple[str, ...]) -> str | None:
    """Return the login in UV_INDEX_<NAME>_USERNAME and _PASSWORD of uv, for an index that is named as
    NAME=URL.
    """
    declared = " ".join((environ.get("UV_INDEX", ""), environ.get("UV_DEFAULT_INDEX", ""), *lines))
    for name, url in re.findall(r"([\w.-]+)=(https?://\S+)", declared):
        prefix = "UV_INDEX_" + re.sub(r"\W", "_", name).upper()
        user = environ.get(prefix + "_USERNAME")
        if user and urlsplit(bare(url)).netloc == host:
            return _basic(user, environ.get(prefix + "_PASSWORD", ""))
    return None


def _from_netrc(hostname: str, environ: Mapping[str, str]) -> str | None:
    path = environ.get("NETRC") or str(Path(environ.get("HOME", "~")).expanduser() / ".netrc")
    try:
        entry = netrc.netrc(path).authenticators(hostname) if Path(path).exists() else None
    except (netrc.NetrcParseError, OSError):
        return None
    return _basic(entry[0], entry[2] or "") if entry else None


def _basic(user: str, password: str) -> str:
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()
