"""End a machine that no client has contacted: shell code for its first boot, which starts a timer at every
boot. Pure.

It counts as contacted while orch's watcher (`runtime.agent.watch`) runs, which then handles idleness and
deadline. A machine that has runs is left to its deadline, because their results may be on it only.
"""

from __future__ import annotations

import shlex

SECONDS = 1800
"""Seconds after a boot for which a machine waits for its first client."""

PROGRAM = "/var/lib/orch/no-contact"

_SCRIPT = r"""
nobody=@PROGRAM@
mkdir -p "${nobody%/*}"
cat >"$nobody" <<'END-OF-NO-CONTACT'
watcher=$(sed -n 's/.*"pid": *\([0-9][0-9]*\).*/\1/p' @BASE@/watcher.json 2>/dev/null)
if [ -n "$watcher" ] && tr '\0' ' ' <"/proc/$watcher/cmdline" | grep -q ' watch '; then exit 0; fi
if [ -n "$(ls -A @BASE@/runs 2>/dev/null)" ]; then exit 0; fi
@BEFORE@
shutdown -h now || poweroff || halt -p
sleep 60
poweroff -f
END-OF-NO-CONTACT
unit=/etc/systemd/system/orch-no-contact armed=
if [ -d /run/systemd/system ]; then
  {
    printf '[Unit]\nDescription=The end of this machine, unless orch comes\nDefaultDependencies=no\n'
    printf '[Service]\nType=oneshot\nTimeoutStartSec=infinity\nExecStart=/bin/sh %s\n' "$nobody"
  } >"$unit.service" && {
    printf '[Unit]\nDescription=The end of this machine, unless orch comes\nDefaultDependencies=no\n'
    printf '[Timer]\nOnActiveSec=@SECONDS@s\nAccuracySec=1s\n'
  } >"$unit.timer" && systemctl daemon-reload && systemctl start --no-block orch-no-contact.timer && armed=1
fi
if [ -z "$armed" ]; then
  ( trap '' HUP; sleep @SECONDS@; sh "$nobody" ) </dev/null >/dev/null 2>&1 &
fi
"""


def script(base: str, *, before: str = ":") -> str:
    """Return shell text that arms the timer. `base`: orch's folder there; `before`: a command to run before
    the machine ends.
    """
    values = {"PROGRAM": PROGRAM, "BASE": shlex.quote(base), "BEFORE": before, "SECONDS": str(SECONDS)}
    text = _SCRIPT
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    return text
