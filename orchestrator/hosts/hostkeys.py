"""Host keys: the expected ones, the one that was shown, and the pins of each machine.

A pin is a line of a known_hosts file whose first field is the machine's id. So an address that another
machine had before causes no error, and `ssh -o HostKeyAlias=<id>` reads the same file.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import HostKeyError
from orchestrator.hosts.atomic import atomic_file
from orchestrator.model.answers import shown as shown_value

_ALIAS = re.compile(r"[A-Za-z0-9._-]+\Z")


@dataclass(frozen=True)
class HostKey:
    """One public host key: its type (`ssh-ed25519`) and its blob."""

    kind: str
    blob: bytes

    @property
    def fingerprint(self) -> str:
        """Return the fingerprint as `ssh-keygen -lf` prints it."""
        digest = base64.b64encode(hashlib.sha256(self.blob).digest()).decode().rstrip("=")
        return f"SHA256:{digest} ({self.kind})"

    @property
    def line(self) -> str:
        return f"{self.kind} {base64.b64encode(self.blob).decode()}"


def parse(lines: Iterable[str]) -> tuple[HostKey, ...]:
    """Parse OpenSSH lines "type base64 [comment]". Raises HostKeyError for any other line."""
    return tuple(_parse_line(line) for line in lines if line.strip())


def _parse_line(line: str) -> HostKey:
    words = line.split()
    try:
        blob = base64.b64decode(words[1], validate=True)
    except (IndexError, ValueError):  # binascii.Error is one
        raise HostKeyError(f"This is not a host key: {shown_value(line)}. Nothing was sent.") from None
    named = blob[4 : 4 + int.from_bytes(blob[:4], "big")]
    if named != words[0].encode():
        raise HostKeyError(
            f"This host key is not of the type that it names: {shown_value(line)}. Nothing was sent."
        )
    return HostKey(words[0], blob)


def expected_keys(machine_id: str, vouched: Sequence[str], known_hosts: Path) -> tuple[HostKey, ...]:
    """Return the accepted keys: those that the provider reports, restricted to the pinned ones.

    Raises HostKeyError if there is no key, or none in common with the pins.
    """
    if not _ALIAS.match(machine_id):
        raise HostKeyError(f"{machine_id!r} is not a valid name of a machine. Nothing was sent.")
    keys = parse(vouched)
    if not keys:
        raise HostKeyError(
            f"No host key of {machine_id} is known, so it was not contacted.",
            next_command="orch status",
        )
    pinned = pins(machine_id, known_hosts)
    admitted = tuple(key for key in keys if not pinned or key in pinned)
    if not admitted:
        raise HostKeyError(
            f"The provider now reports another host key for {machine_id} than the recorded one.\n"
            f"  recorded: {_list(pinned)}\n  reported: {_list(keys)}\n"
            f"It was not contacted. The recorded key is in {known_hosts}.",
            exists=f"Machine {machine_id} still exists and costs money.",
            next_command="orch down",
        )
    return admitted


def verify(machine_id: str, shown: HostKey, admitted: Sequence[HostKey]) -> None:
    """Raise HostKeyError if the key that the machine showed is not one of `admitted`."""
    if shown in admitted:
        return
    raise HostKeyError(
        f"The server at the address of {machine_id} has another host key. Nothing was sent.\n"
        f"  expected: {_list(admitted)}\n  shown:    {shown.fingerprint}",
        exists=f"Machine {machine_id} may still exist and cost money.",
        next_command="orch status",
    )


def pins(machine_id: str, known_hosts: Path) -> tuple[HostKey, ...]:
    try:
        lines = known_hosts.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return ()
    return parse(line.split(maxsplit=1)[1] for line in lines if line.split(maxsplit=1)[:1] == [machine_id])


def pin(machine_id: str, keys: Sequence[HostKey], known_hosts: Path) -> None:
    """Add `keys` as pins of `machine_id`, keeping the other lines; the file is replaced atomically."""
    if not pins(machine_id, known_hosts):
        repin(machine_id, keys, known_hosts)


def repin(machine_id: str, keys: Sequence[HostKey], known_hosts: Path) -> None:
    """Make `keys` the only pins of `machine_id`; the file is replaced atomically."""
    text = known_hosts.read_text(encoding="utf-8") if known_hosts.exists() else ""
    others = [line for line in text.splitlines() if line.split(maxsplit=1)[:1] != [machine_id]]
    lines = [*others, *(f"{machine_id} {key.line}" for key in keys)]
    with atomic_file(known_hosts) as file:
        file.write("".join(f"{line}\n" for line in lines).encode())


def _list(keys: Sequence[HostKey]) -> str:
    return ", ".join(key.fingerprint for key in keys)
