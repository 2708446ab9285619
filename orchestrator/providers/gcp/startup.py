"""The script of a machine's first boot. Pure; it holds no secret: every process there can read it."""

from __future__ import annotations

import base64
import textwrap

from orchestrator.model import FAR_BASE
from orchestrator.providers.gcp.names import GUEST_NAMESPACE, GUEST_STATE, USER

# Google's agent runs it as root at every boot, while ssh may answer already. So it tells when it is
# done, by a guest attribute: who logs in before would find no folder of his.
_SCRIPT = """\
#!/bin/sh
# First boot of a machine of orch.
umask 022
begun=/var/lib/orch-first-boot
[ ! -e "$begun" ] || exit 0

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

# Google's agent makes the same account at the same time, and locks it out for moments.
tries=0
until id -u {user} >/dev/null 2>&1 || useradd --create-home --shell /bin/bash {user} 2>/dev/null; do
    tries=$((tries + 1))
    [ "$tries" -lt 30 ] || give_up 71
    sleep 1
done
mkdir -p {base} && chmod 755 {base} && chown {user}: {base} || give_up 73

# The idle watch runs as {user}; ending this machine is the one thing for which it needs more.
real=$(command -v poweroff)
if command -v sudo >/dev/null 2>&1 && [ "${{real%/*}}" != /usr/local/bin ]; then
    mkdir -p /etc/sudoers.d
    echo "{user} ALL=(root) NOPASSWD: $real" >/etc/sudoers.d/90-orch
    chmod 440 /etc/sudoers.d/90-orch
    mkdir -p /usr/local/bin
    printf '#!/bin/sh\\nexec sudo -n %s "$@"\\n' "$real" >/usr/local/bin/poweroff
    chmod 755 /usr/local/bin/poweroff
fi
{user_data}{driver}
: >"$begun"
tell {state} ready
exit 0
"""

_USER_DATA = """
base64 -d >/var/lib/orch-user-data <<'END-OF-USER-DATA' || give_up 74
{text}
END-OF-USER-DATA
chmod 700 /var/lib/orch-user-data
/var/lib/orch-user-data || give_up "$?"
chown {user}: {base}
"""

_DRIVER = """
# The image may install its driver at first boot: a run that begins before would not see the GPU.
if grep -qs 0x10de /sys/bus/pci/devices/*/vendor; then
    end=$(($(date +%s) + 240))
    until nvidia-smi >/dev/null 2>&1 || [ "$(date +%s)" -ge "$end" ]; do sleep 2; done
fi
"""


def startup_script(user_data: str, *, gpu: bool) -> str:
    """Makes FAR_BASE the user's, runs `user_data` (a `#!` script or "") once as root, then says ready."""
    return _SCRIPT.format(
        namespace=GUEST_NAMESPACE,
        state=GUEST_STATE,
        user=USER,
        base=FAR_BASE,
        user_data=_embedded(user_data) if user_data else "",
        driver=_DRIVER if gpu else "",
    )


def _embedded(user_data: str) -> str:
    encoded = base64.b64encode(user_data.encode()).decode()
    return _USER_DATA.format(text="\n".join(textwrap.wrap(encoded, 76)), user=USER, base=FAR_BASE)
