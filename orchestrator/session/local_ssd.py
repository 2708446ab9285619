"""Put packages, data and runs on the machine's local SSD, if its type has one.

The SSD is found, formatted and mounted over orch's folder at the first connection, while that folder is
empty, so that no path changes. Only blank devices are formatted. AWS's Deep Learning images mount the SSD
themselves, at /opt/dlami/nvme; Google's are blank.
"""

from __future__ import annotations

from orchestrator.errors import HostError
from orchestrator.model import Host, Machine, Progress
from orchestrator.model.plain import last_words
from orchestrator.model.progress import notice

_SECONDS = 180.0

DEVICES = (
    "/dev/disk/by-id/nvme-Amazon_EC2_NVMe_Instance_Storage_*",
    "/dev/disk/by-id/google-local-nvme-ssd-*",
    "/dev/disk/by-id/google-local-ssd-*",
)
"""Device names of local SSDs in the clouds' images."""

READY = "/opt/dlami/nvme"
MOUNT = "/mnt/orch-ssd"

SCRIPT = r"""
set -u
base=$1 user=$2 ready=$3 mount=$4
shift 4
mountpoint -q "$base" && exit 0

blank() {
    grep -q "^$1 " /proc/mounts && return 1
    [ -z "$(ls -A "/sys/class/block/${1##*/}/holders" 2>/dev/null)" ] || return 1
    blkid -p "$1" >/dev/null 2>&1
    [ $? -eq 2 ]
}

found=''
for pattern in "$@"; do
    for each in $pattern; do
        case $each in *-part[0-9]*) continue ;; esac
        [ -b "$each" ] || continue
        real=$(readlink -f "$each")
        case " $found " in *" $real "*) ;; *) found="$found $real" ;; esac
    done
done
[ -n "$found" ] || exit 0

place=''
if [ -d "${ready%/*}" ]; then
    tries=0
    until mountpoint -q "$ready" || [ "$tries" -ge 30 ]; do
        tries=$((tries + 1))
        sleep 1
    done
    ! mountpoint -q "$ready" || place=$ready
fi
if [ -z "$place" ]; then
    set --
    for each in $found; do ! blank "$each" || set -- "$@" "$each"; done
    [ $# -gt 0 ] || { echo 'no local SSD is blank' >&2; exit 3; }
    disk=$1 kind='' used=$# blank=$#
    if [ $# -gt 1 ]; then
        # One volume over all of them: by md, else by btrfs; if neither is available, the first SSD alone.
        if command -v mdadm >/dev/null 2>&1 &&
            mdadm --create /dev/md/orch --run --force --level=0 --raid-devices=$# "$@" >&2; then
            disk=/dev/md/orch
        elif command -v mkfs.btrfs >/dev/null 2>&1 && mkfs.btrfs -q -f -K -d raid0 -m raid0 "$@" >&2; then
            kind=btrfs
        else
            used=1
        fi
    fi
    [ -n "$kind" ] || { mkfs.ext4 -q -F -m 0 -E nodiscard "$disk" >&2 && kind=ext4; } || exit 4
    mkdir -p "$mount" && mount -t "$kind" -o noatime "$disk" "$mount" || exit 5
    # After a boot a volume may have another name: it is found by its content.
    echo "UUID=$(blkid -p -s UUID -o value "$disk") $mount $kind noatime,nofail 0 2" >>/etc/fstab
    place=$mount
fi
mkdir -p "$place/orch" && cp -a "$base/." "$place/orch/" && chown "$user" "$place/orch" || exit 6
mount --bind "$place/orch" "$base" || exit 7
echo "$place/orch $base none bind,nofail,x-systemd.requires-mounts-for=$place 0 0" >>/etc/fstab
echo "${used:-} ${blank:-} $place"
"""


def has_one(machine: Machine) -> bool:
    """Whether machines of its type have a local SSD, by the catalog."""
    from orchestrator import catalog

    if machine.provider not in catalog.clouds():
        return False
    kinds = catalog.load(machine.provider).kinds
    return any(kind.instance_type == machine.instance_type and kind.local_ssd for kind in kinds)


def use(host: Host, machine: Machine, base: str, user: str, progress: Progress) -> None:
    """Mount the machine's SSD on `base` unless it is mounted. Failure is not an error: the machine works
    without it.
    """
    if not has_one(machine):
        return
    root = () if user == "root" else ("sudo", "-n")
    argv = (*root, "sh", "-s", "--", base, user, READY, MOUNT, *DEVICES)
    try:
        done = host.run(argv, stdin=SCRIPT.encode(), timeout=_SECONDS)
    except HostError as error:
        notice(progress, f"The local SSD is not used: {error.message}")
        return
    if done.returncode:
        why = last_words(done.stderr) or f"code {done.returncode}"
        notice(progress, f"The local SSD is not used: {why}")
    elif done.stdout.strip():
        progress.say(f"Packages, data and runs are on {_which(done.stdout.decode(errors='replace'))}.")


def _which(told: str) -> str:
    """Return which SSDs are in use, from the script's output: how many of how many, if it formatted them."""
    used, blank, *_ = [*(int(word) for word in told.split() if word.isdigit()), 1, 1]
    if blank == 1:
        return "the machine's local SSD"
    if used == blank:
        return f"the machine's {blank} local SSDs, as one striped volume"
    return f"{used} of the machine's {blank} local SSDs: neither md nor btrfs is installed to combine them"
