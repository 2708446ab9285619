"""One key pair per lease: it gives access to one machine and is deleted with it."""

from __future__ import annotations

from pathlib import Path

from orchestrator.hosts.atomic import atomic_write


def public_key(identity: Path, comment: str) -> str:
    """Return the public half of the Ed25519 key at `identity` as one OpenSSH line; the key is created if
    absent.
    """
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    if identity.exists():
        key = form.load_ssh_private_key(identity.read_bytes(), password=None)
    else:
        key = Ed25519PrivateKey.generate()
        secret = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.OpenSSH, form.NoEncryption())
        _write_secret(identity, secret)
    line = key.public_key().public_bytes(form.Encoding.OpenSSH, form.PublicFormat.OpenSSH)
    return f"{line.decode()} {comment}"


def _write_secret(path: Path, secret: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    atomic_write(path, secret, 0o600)


def known_hosts_line(alias: str, key: str) -> str:
    """Return a line of a known_hosts file that pins `key` ("type base64") to `alias`."""
    kind, blob = key.split()[:2]
    return f"{alias} {kind} {blob}\n"
