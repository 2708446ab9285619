"""The user-data: instructions for cloud-init at the machine's boots.

Pure. A `#cloud-config` document, written as JSON, which is valid YAML. `bootcmd` runs at every boot, before
the ssh server starts: first it arms the deadline and the timer that ends a machine without clients. Every
process of the machine can read the document. Its only secret is a host key, which is replaced at first
contact.
"""

from __future__ import annotations

import json
import re
from typing import Any

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import FAR_BASE
from orchestrator.providers import no_contact
from orchestrator.providers.aws import confine
from orchestrator.providers.aws.hostkey import KeyPair
from orchestrator.providers.upgrades import NO_UPGRADES

LARGEST = 16 << 10
"""Maximum bytes that EC2 accepts, before base64."""

NOTE = "/var/lib/orch/deadline"
"""Where the first boot writes the deadline, in seconds since 1970 by the machine's own clock."""

_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}\Z")

# $1: seconds until the deadline, from the first boot on. Then it is written down by this machine's own clock,
# for later boots; within a boot it is counted by clocks that nobody can set. A timer of systemd outlives
# cloud-init and needs no process; --no-block because sysinit.target waits for cloud-init. Where systemd is
# absent or refuses, a process waits. What runs late goes off at once. All of it belongs to root.
_DEADLINE = r"""
end() { shutdown -h now || poweroff || halt -p; sleep 60; poweroff -f; }
up() { read -r up rest </proc/uptime; echo "${up%.*}"; }
note=@NOTE@
left=$1
if due=$(cat "$note" 2>/dev/null) && [ "$due" -gt 0 ] 2>/dev/null; then
  left=$((due - $(date +%s)))
  [ "$left" -le "$1" ] || left=$1
else
  mkdir -p "${note%/*}" && echo $(($(date +%s) + $1)) >"$note"
fi
if [ "$left" -le 0 ]; then end; exit 0; fi
if [ -d /run/systemd/system ]; then
  unit=/etc/systemd/system/orch-deadline
  {
    printf '[Unit]\nDescription=The end of this machine, as leased by orch\n'
    printf 'DefaultDependencies=no\n[Service]\nType=oneshot\nTimeoutStartSec=infinity\n'
    printf 'ExecStart=/bin/sh -c "shutdown -h now || poweroff; sleep 90; poweroff -f -f"\n'
  } > "$unit.service" && {
    printf '[Unit]\nDescription=The end of this machine, as leased by orch\n'
    printf 'DefaultDependencies=no\n[Timer]\nOnActiveSec=%ss\nAccuracySec=1s\n' "$left"
  } > "$unit.timer" && systemctl daemon-reload && systemctl start --no-block orch-deadline.timer && exit 0
fi
stop=$(($(up) + left))
( trap '' HUP
  while [ "$(up)" -lt "$stop" ]; do sleep 1; done
  end ) </dev/null >/dev/null 2>&1 &
""".replace("@NOTE@", NOTE)

# $1: the script of the machine's spec. It runs once, before anybody can log in.
_ONCE = r"""
done=/var/lib/orch/first-boot
[ -e "$done" ] && exit 0
mkdir -p /var/lib/orch
printf '%s' "$1" > "$done.sh" && chmod 700 "$done.sh" && "$done.sh"
echo $? > "$done"
"""


def base_of(user: str) -> str:
    """Return orch's folder on a machine with the login `user`; it belongs to that user."""
    return FAR_BASE if user == "root" else f"/home/{user}/orch"


def user_data(*, lasts: float, user: str, authorized_key: str, script: str, host_key: KeyPair | None) -> str:
    """Return the user-data; `lasts` is in seconds from the first boot.

    Raises ProviderError(INVALID) for a document that EC2 would not accept.
    """
    if not _USER.match(user):
        raise ProviderError(
            Fault.INVALID, f"{user!r} is not a valid user name (ORCH_AWS_USER).", code="BadUser"
        )
    commands = [
        _shell(_DEADLINE, str(max(1, int(lasts)))),
        _shell(no_contact.script(base_of(user))),
        _shell(NO_UPGRADES),
    ]
    if user != "root":
        commands.append(_shell(confine.INSTALL, confine.program(user)))
    if script:
        commands.append(_shell(_ONCE, script))
    document: dict[str, Any] = {
        "bootcmd": commands,
        "ssh_authorized_keys": [authorized_key.strip()],
        "ssh_pwauth": False,
        "disable_root": user != "root",
    }
    if host_key:
        document["ssh_deletekeys"] = True
        document["ssh_keys"] = {"ed25519_private": host_key.private, "ed25519_public": host_key.public}
    text = "#cloud-config\n" + json.dumps(document, ensure_ascii=False, indent=1) + "\n"
    if len(text.encode()) > LARGEST:
        raise ProviderError(
            Fault.INVALID,
            f"The user-data (instructions for the first boot) would have {len(text.encode())} bytes; "
            f"EC2 accepts {LARGEST}.",
            code="UserDataLengthExceeded",
        )
    return text


def _shell(script: str, *arguments: str) -> list[str]:
    return ["sh", "-c", script.strip(), "orch", *arguments]
