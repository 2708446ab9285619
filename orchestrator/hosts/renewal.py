"""Replace a machine's host key by one that is created on the machine, over a connection that its present key
verified. A key that was sent to the machine may have been read by others. If the renewal is killed at any
point, the next call continues where it stopped; at every point the machine has a key that was recorded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from orchestrator.errors import HostError, HostKeyError
from orchestrator.hosts import hostkeys
from orchestrator.model import Completed, Host
from orchestrator.model.plain import last_words

_LONGEST_KEY = 16_384

RESTART_S = 20.0
"""Seconds that the ssh server may take to show its new key."""

_AS_ROOT = 'if [ "$(id -u)" = 0 ]; then exec sh -c "$0" sh "$@"; else exec sudo -n sh -c "$0" sh "$@"; fi'

# $1: the key that was sent to the machine. Prints the key that will replace it, or already has.
_PREPARE = r"""
set -eu
umask 077
cd /etc/ssh
whole=$(ssh-keygen -y -f ssh_host_ed25519_key </dev/null)
present=$(echo "$whole" | cut -d' ' -f1,2)
if [ "$present" != "$1" ]; then echo "$present"; exit; fi
if ! ssh-keygen -y -f orch_next_ed25519_key >orch_next_ed25519_key.pub 2>/dev/null </dev/null; then
  rm -f orch_next_ed25519_key orch_next_ed25519_key.pub
  ssh-keygen -q -t ed25519 -N '' -C '' -f orch_next_ed25519_key </dev/null
fi
sync
cut -d' ' -f1,2 orch_next_ed25519_key.pub
"""

# The private half is moved last: until then the machine has its old key, and `prepare` starts over.
_COMMIT = r"""
set -eu
cd /etc/ssh
if [ -e orch_next_ed25519_key ]; then
  chmod 644 orch_next_ed25519_key.pub
  mv -f orch_next_ed25519_key.pub ssh_host_ed25519_key.pub
  mv -f orch_next_ed25519_key ssh_host_ed25519_key
  ! command -v restorecon >/dev/null || restorecon ssh_host_ed25519_key ssh_host_ed25519_key.pub
  sync
fi
if [ -d /run/systemd/system ]; then
  systemctl reload ssh.service 2>/dev/null || systemctl reload sshd.service
else
  kill -HUP "$(cat /run/sshd.pid 2>/dev/null || cat /var/run/sshd.pid)"
fi
"""


def renew(
    host: Host,
    present: str,
    *,
    machine_id: str,
    known_hosts: Path,
    vouch: Callable[[Sequence[str]], None],
    reconnect: Callable[[str], Host],
) -> Host:
    """Return a connection to the same machine, verified by a key that was created there. Closes `host`.

    `present` is the key ("type base64") that was sent; `vouch(keys)`: let the provider record keys, the new
    one first; `reconnect(key)`: open a connection that only this key verifies. Raises HostError if the
    machine cannot change its key: the old key then stays valid, and this can be called again.
    """
    new = _line(_as_root(host, _PREPARE, present), host)
    vouch((new, present))
    hostkeys.repin(machine_id, hostkeys.parse((new, present)), known_hosts)
    _as_root(host, _COMMIT)
    host.close()
    again = _reconnected(reconnect, new)
    try:
        vouch((new,))
        hostkeys.repin(machine_id, hostkeys.parse((new,)), known_hosts)
    except BaseException:
        again.close()
        raise
    return again


def _as_root(host: Host, script: str, *arguments: str) -> Completed:
    done = host.run(("sh", "-c", _AS_ROOT, script.strip(), *arguments), timeout=60)
    if done.returncode != 0:
        why = last_words(done.stderr) or f"status {done.returncode}"
        raise HostError(
            f"{host.name} did not change its host key: {why}",
            exists=f"{host.name} is still running and costs money.",
            next_command="orch down    # or orch up again",
        )
    return done


def _line(done: Completed, host: Host) -> str:
    line = last_words(done.stdout, _LONGEST_KEY)
    keys = hostkeys.parse((line,))
    if len(keys) != 1 or keys[0].kind != "ssh-ed25519":
        raise HostError(f"{host.name} created no new host key; it answered {line!r}.")
    return keys[0].line


def _reconnected(reconnect: Callable[[str], Host], key: str) -> Host:
    """Reconnect, with retries: the server shows its old key for a moment after the reload."""
    end = time.monotonic() + RESTART_S
    while True:
        try:
            return reconnect(key)
        except HostKeyError:
            if time.monotonic() > end:
                raise
        time.sleep(0.1)
