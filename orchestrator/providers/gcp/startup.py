"""The startup script of a machine. Pure. It contains no secret, because every process on the machine can read
it.
"""

from __future__ import annotations

import base64
import shlex
import textwrap

from orchestrator.providers import no_contact
from orchestrator.providers.gcp.names import GUEST_NAMESPACE, GUEST_STATE, USER, base_of
from orchestrator.providers.upgrades import NO_UPGRADES

# Google's agent runs it as root at every boot, long after ssh answers on some images: it waits for
# cloud-init's last stage, which waits for snapd (github.com/GoogleCloudPlatform/guest-agent/issues/84). So it
# tells when it is done, by a guest attribute. Nothing that a login needs is made here.
_SCRIPT = """\
#!/bin/sh
# First boot of a machine of orch.
umask 022
mkdir -p /var/lib/orch
cat >{delete_self} <<'END-OF-DELETE-SELF'
{deletion}END-OF-DELETE-SELF
{no_contact}
begun=/var/lib/orch-first-boot
[ "$(cat "$begun" 2>/dev/null)" != {mark} ] || exit 0

tell() {{
    url=http://metadata.google.internal/computeMetadata/v1/instance/guest-attributes/{namespace}/$1
    if command -v curl >/dev/null 2>&1; then
        curl -sf -m 10 --retry 3 -X PUT -H "Metadata-Flavor: Google" --data "$2" "$url" >/dev/null
    elif command -v python3 >/dev/null 2>&1; then
        python3 -c 'import sys, urllib.request as u
head = {{"Metadata-Flavor": "Google"}}
u.urlopen(u.Request(sys.argv[2], sys.argv[1].encode(), head, method="PUT"), timeout=10)' "$2" "$url"
    fi
}}

give_up() {{
    tell {state} "failed $1"
    exit 1
}}

tell {state} begun

{upgrades}
# The idle watch runs as {user}; ending this machine is the one thing for which it needs more.
real=$(command -v poweroff)
if command -v sudo >/dev/null 2>&1 && [ "${{real%/*}}" != /usr/local/bin ]; then
    mkdir -p /etc/sudoers.d
    echo "{user} ALL=(root) NOPASSWD: $real" >/etc/sudoers.d/90-orch
    chmod 440 /etc/sudoers.d/90-orch
    mkdir -p /usr/local/bin
    printf '#!/bin/sh\\nsh {delete_self}\\nexec sudo -n %s "$@"\\n' "$real" >/usr/local/bin/poweroff
    chmod 755 /usr/local/bin/poweroff
fi
{user_data}{driver}
printf '%s\n' {mark} >"$begun"
tell {state} ready
exit 0
"""

_DELETE_SELF_AT = "/var/lib/orch/delete-self"

# Google keeps a machine that powered itself off, and bills its disk; stopping it also clears Google's timer
# (cloud.google.com/compute/docs/instances/limit-vm-runtime). With an identity that has
# compute.instances.delete the machine deletes itself; without one nothing happens here.
_DELETE_SELF = r"""
ask() {
    curl -sf -m 10 -H "Metadata-Flavor: Google" "http://metadata.google.internal/computeMetadata/v1/instance/$1"
}
token=$(ask service-accounts/default/token | sed -n 's/.*"access_token" *: *"\([^"]*\)".*/\1/p')
if [ -n "$token" ]; then
    printf 'Authorization: Bearer %s' "$token" | curl -sf -m 30 -o /dev/null -X DELETE -H @- \
        "https://compute.googleapis.com/compute/v1/$(ask zone)/instances/$(ask name)"
fi
"""

_USER_DATA = """
base64 -d >/var/lib/orch-user-data <<'END-OF-USER-DATA' || give_up 74
{text}
END-OF-USER-DATA
chmod 700 /var/lib/orch-user-data
/var/lib/orch-user-data || give_up "$?"
"""

_DRIVER = """
# An upgrade that had begun may replace the driver; the image may install it at first boot: a run that begins
# before would not see the GPU.
end=$(($(date +%s) + 600))
while [ "$(systemctl is-active apt-daily-upgrade.service 2>/dev/null)" = activating ] &&
    [ "$(date +%s)" -lt "$end" ]; do sleep 2; done
if grep -qs 0x10de /sys/bus/pci/devices/*/vendor; then
    end=$(($(date +%s) + 240))
    until nvidia-smi >/dev/null 2>&1 || [ "$(date +%s)" -ge "$end" ]; do sleep 2; done
fi
"""


def startup_script(user_data: str, *, gpu: bool, mark: str, user: str = USER) -> str:
    """Return a script that runs `user_data` (a `#!` script or "") once as root, then reports that it is
    ready.

    `mark`: what no other machine has, so that one that boots the image of another has a first boot too.
    `user`: the login account.
    """
    return _SCRIPT.format(
        namespace=GUEST_NAMESPACE,
        state=GUEST_STATE,
        mark=shlex.quote(mark),
        user=user,
        upgrades=NO_UPGRADES,
        delete_self=_DELETE_SELF_AT,
        deletion=_DELETE_SELF.lstrip(),
        no_contact=no_contact.script(base_of(user), before=f"sh {_DELETE_SELF_AT}"),
        user_data=_embedded(user_data) if user_data else "",
        driver=_DRIVER if gpu else "",
    )


def _embedded(user_data: str) -> str:
    encoded = base64.b64encode(user_data.encode()).decode()
    return _USER_DATA.format(text="\n".join(textwrap.wrap(encoded, 76)))
