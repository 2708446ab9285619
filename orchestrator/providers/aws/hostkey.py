"""The host key with which an AWS machine proves its identity at first contact.

`injected`: an Ed25519 key that is created here is sent in the user-data, and its public half in a tag of the
same create call. Every process of the machine can read the user-data, so this key is used only once: for the
connection over which the machine creates its next key, which replaces it in the tags. `console`: the machine
prints its own public keys at boot, and EC2 returns what it printed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_BEGIN = "-----BEGIN SSH HOST KEY KEYS-----"
_END = "-----END SSH HOST KEY KEYS-----"
_LINE = re.compile(r"((?:ssh|ecdsa)-[a-z0-9-]+ [A-Za-z0-9+/]+={0,3})(?: \S+)?\s*$")


@dataclass(frozen=True)
class KeyPair:
    """`private` is an OpenSSH file, `public` is "type base64"."""

    private: str
    public: str


def make() -> KeyPair:
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.OpenSSH, form.NoEncryption())
    public = key.public_key().public_bytes(form.Encoding.OpenSSH, form.PublicFormat.OpenSSH)
    return KeyPair(private.decode(), public.decode())


def from_console(text: str) -> tuple[str, ...]:
    """Return the host keys that cloud-init printed to the console; none if there is no complete block, or two
    different ones.

    Programs that run later can print a block too, so two different blocks prove nothing.
    """
    blocks = {_keys(part.partition(_END)[0]) for part in text.split(_BEGIN)[1:] if _END in part}
    return blocks.pop() if len(blocks) == 1 else ()


def _keys(block: str) -> tuple[str, ...]:
    """Parse lines of the console; they may have a prefix, such as a time or the name of a systemd unit."""
    found = (_LINE.search(line) for line in block.splitlines())
    return tuple(sorted({match.group(1) for match in found if match}))
