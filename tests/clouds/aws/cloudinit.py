"""User-data, carried out as cloud-init does: turned into one shell script that a machine runs at first boot.

Before sshd: boot hooks and bootcmd, write_files, the default user with its keys, the host keys. Beside
sshd: `#!` scripts and runcmd, in the order of their names, then the host keys on the console. What
cannot be understood is said on the console and left out, as there.
"""

from __future__ import annotations

import base64
import binascii
import email
import gzip
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from email.message import Message
from pathlib import Path
from typing import Any

import yaml

from tests.clouds import driver

GUEST = Path(__file__).parent / "guest"
CONSOLE = "/var/lib/orch-cloud/console"
READY = "/run/orch-cloud-ready"
_KEYS = ("rsa", "ecdsa", "ed25519")
_KNOWN = {
    *("bootcmd", "runcmd", "write_files", "ssh_keys", "ssh_authorized_keys", "ssh_deletekeys", "hostname"),
    *("disable_root", "ssh_pwauth", "users", "package_update", "package_upgrade", "ssh_genkeytypes"),
    *("no_ssh_fingerprints", "ssh", "preserve_hostname", "manage_etc_hosts", "output", "final_message"),
}


@dataclass
class Wishes:
    """What the parts of one user-data ask for, together."""

    hooks: list[str] = field(default_factory=list)
    boot: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    host_keys: dict[str, str] = field(default_factory=dict)
    login_keys: list[str] = field(default_factory=list)
    scripts: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    emit_keys: bool = True


@dataclass(frozen=True)
class Host:
    """Whom it is for. `key` is the key pair's OpenSSH line, `nvidia_smi` a program; "" without one."""

    instance: str
    hostname: str
    user: str
    key: str
    nvidia_smi: str = ""


def parse(data: bytes) -> Wishes:
    """What `data` asks for; never fails."""
    wishes = Wishes()
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError) as error:
            wishes.warnings.append(f"Failed to decompress user-data: {error}")
            return wishes
    for number, (kind, text) in enumerate(_parts(data), 1):
        _take(wishes, kind, text, f"part-{number:03d}")
    return wishes


def _parts(data: bytes) -> Iterable[tuple[str, bytes]]:
    head = data.lstrip()[:600].lower()
    if head.startswith((b"content-type: multipart", b"mime-version:")):
        message: Message = email.message_from_bytes(data.lstrip())
        for part in message.walk():
            if part.get_content_maintype() == "multipart":
                continue
            payload = part.get_payload(decode=True)
            body = payload if isinstance(payload, bytes) else b""
            if body[:2] == b"\x1f\x8b":
                body = gzip.decompress(body)
            kind = part.get_content_type()
            yield (kind if kind != "text/plain" else _kind(body)), body
    elif data.strip():
        yield _kind(data), data


def _kind(text: bytes) -> str:
    first = text.partition(b"\n")[0].strip()
    if first.startswith(b"#!"):
        return "text/x-shellscript"
    return {b"#cloud-config": "text/cloud-config", b"#cloud-boothook": "text/cloud-boothook"}.get(first, "")


def _take(wishes: Wishes, kind: str, text: bytes, name: str) -> None:
    if kind == "text/x-shellscript":
        wishes.scripts[name] = _executable(f"/var/lib/cloud/instance/scripts/{name}", text)
    elif kind == "text/cloud-boothook":
        body = text.partition(b"\n")[2] if text.startswith(b"#cloud-boothook") else text
        script = body if body.startswith(b"#!") else b"#!/bin/sh\n" + body
        wishes.hooks.append(_executable(f"/var/lib/cloud/instance/boothooks/{name}", script))
    elif kind == "text/cloud-config":
        try:
            config = yaml.safe_load(text)
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            wishes.warnings.append(f"Failed loading yaml blob: {' '.join(str(error).split())}")
            return
        if isinstance(config, Mapping):
            _configure(wishes, config)
        elif config is not None:
            wishes.warnings.append("Failed loading yaml blob: its root is not a mapping")
    else:
        wishes.warnings.append(f"Unhandled non-multipart (text/x-not-multipart) userdata: {text[:40]!r}...")


def _configure(wishes: Wishes, config: Mapping[str, Any]) -> None:
    for name in sorted(str(name) for name in set(config) - _KNOWN):
        wishes.warnings.append(f"this test cloud does not carry out {name!r} of #cloud-config")
    wishes.boot += [_command(item) for item in config.get("bootcmd") or ()]
    for item in config.get("write_files") or ():
        try:
            wishes.files.append(_file(item))
        except (KeyError, ValueError, TypeError, OSError) as error:
            wishes.warnings.append(f"write_files: {error!r} in {str(item)[:80]!r}")
    for name, text in (config.get("ssh_keys") or {}).items():
        kind, _, half = str(name).rpartition("_")
        if kind in _KEYS and half in ("private", "public"):
            wishes.host_keys[name] = str(text)
        else:
            wishes.warnings.append(f"ssh_keys: unknown key {name!r}")
    keys = config.get("ssh_authorized_keys") or ()
    wishes.login_keys += [keys] if isinstance(keys, str) else [str(key) for key in keys]
    for user in config.get("users") or ():
        if isinstance(user, Mapping):
            wishes.login_keys += [str(key) for key in user.get("ssh_authorized_keys") or ()]
    if config.get("runcmd"):
        lines = "\n".join(_command(item) for item in config["runcmd"])
        wishes.scripts["runcmd"] = _executable(
            "/var/lib/cloud/instance/scripts/runcmd", f"#!/bin/sh\n{lines}\n".encode()
        )
    if (config.get("ssh") or {}).get("emit_keys_to_console") is False:
        wishes.emit_keys = False


def _command(item: Any) -> str:
    if isinstance(item, str):
        return item
    return " ".join(shlex.quote(str(word)) for word in item)


def _file(item: Mapping[str, Any]) -> str:
    content = item.get("content", "")
    data = content if isinstance(content, bytes) else str(content).encode()
    encoding = str(item.get("encoding", "")).lower()
    if encoding in ("b64", "base64", "gz+b64", "gzip+b64", "gz+base64", "gzip+base64"):
        try:
            data = base64.b64decode(data, validate=False)
        except binascii.Error as error:
            raise ValueError(str(error)) from error
    if encoding.startswith(("gz",)):
        data = gzip.decompress(data)
    path = str(item["path"])
    mode = item.get("permissions", "0644")
    mode = mode if isinstance(mode, str) else f"{int(mode):o}"
    return _written(
        path, data, mode, owner=str(item.get("owner", "root:root")), append=bool(item.get("append", False))
    )


def _executable(path: str, data: bytes) -> str:
    """Shell text that writes it; the path is what runs."""
    return _written(path, data, "0700")


def _written(path: str, data: bytes, mode: str, *, owner: str = "root:root", append: bool = False) -> str:
    quoted, encoded = shlex.quote(path), base64.b64encode(data).decode()
    return (
        f'mkdir -p "$(dirname {quoted})"\n'
        f"base64 -d {'>>' if append else '>'}{quoted} <<'END_OF_FILE'\n{encoded}\nEND_OF_FILE\n"
        f"chmod {shlex.quote(mode)} {quoted}\nchown {shlex.quote(owner)} {quoted}"
    )


def script(wishes: Wishes, host: Host) -> str:
    """The machine's first-boot script, for /bin/sh, as root. Returns before sshd starts; the rest goes on."""
    template = (GUEST / "firstboot.sh").read_text()
    paths = [f"/var/lib/cloud/instance/scripts/{name}" for name in sorted(wishes.scripts)]
    hooks = [line.split()[-1] for hook in wishes.hooks for line in [hook.splitlines()[-1]]]
    login = [key.strip() for key in (host.key, *wishes.login_keys) if key.strip()]
    values = {
        "INSTANCE": shlex.quote(host.instance),
        "HOSTNAME": shlex.quote(host.hostname),
        "USER": shlex.quote(host.user),
        "READY": READY,
        "CONSOLE": CONSOLE,
        "WARNINGS": _said(wishes.warnings),
        "DRIVER": _written(driver.PATH, host.nvidia_smi.encode(), "0755") if host.nvidia_smi else ":",
        "SUDO": _executable_from("sudo.sh", "/usr/libexec/orch-cloud/sudo.sh"),
        "HOOKS": _lines([*wishes.hooks, *(f"{shlex.quote(path)} init" for path in hooks)]),
        "BOOT": _lines(f"(\n{command}\n)" for command in wishes.boot),
        "FILES": _lines(wishes.files),
        "LOGIN_KEYS": "\n".join(login),
        "HOST_KEYS": _lines(_host_keys(wishes.host_keys)),
        "SCRIPTS": _lines(wishes.scripts[name] for name in sorted(wishes.scripts)),
        "RUN": _lines(f"run {shlex.quote(path)}" for path in paths),
        "EMIT": "1" if wishes.emit_keys else "",
    }
    for name, value in values.items():
        template = template.replace(f"@{name}@", value)
    return template


def _executable_from(name: str, path: str) -> str:
    return _written(path, (GUEST / name).read_bytes(), "0755")


def _host_keys(keys: Mapping[str, str]) -> Sequence[str]:
    """Those given replace all others, as cloud-init deletes what came with the image."""
    if not keys:
        return ()
    lines = ["rm -f /etc/ssh/ssh_host_*"]
    for name, text in keys.items():
        kind, _, half = name.rpartition("_")
        suffix, mode = (".pub", "0644") if half == "public" else ("", "0600")
        lines.append(_written(f"/etc/ssh/ssh_host_{kind}_key{suffix}", (text.strip() + "\n").encode(), mode))
    return lines


def _said(warnings: Sequence[str]) -> str:
    return _lines(f"say {shlex.quote('cloud-init WARNING: ' + text)}" for text in warnings)


def _lines(lines: Iterable[str]) -> str:
    return "\n".join(lines) or ":"
