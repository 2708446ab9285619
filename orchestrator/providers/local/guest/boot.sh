#!/bin/sh
# Process 1 of a new machine while it still sees this computer's files: builds the machine's own
# root file system out of this computer's system folders, enters it, and becomes its init.
# Every mount is private to this namespace, so that all of them end with the machine.
#
# Standard output tells the supervisor "pid N"; standard input brings "go ADDRESS".
# End of input means that the supervisor died: then nothing is started.
set -eu
umask 022
: "$MACHINE_DIR" "$MACHINE_NAME" "$MACHINE_TIER" "$MACHINE_DISK" "$MACHINE_DISK_BYTES"
: "$MACHINE_LASTS" "$MACHINE_SSHD" "$MACHINE_CGROUPS" "$MACHINE_DEVICES" "$MACHINE_IMAGE" "$MACHINE_BASE"

read -r pid _ </proc/self/stat # this computer's number for us: its /proc is still the one mounted
echo "pid $pid"
read -r _ address || exit 75

disk=$MACHINE_DIR/mnt
root=$disk/root
case $MACHINE_DISK in
loop) mount -o loop,noatime "$MACHINE_DIR/disk.img" "$disk" ;;
tmpfs) mount -t tmpfs -o "size=$MACHINE_DISK_BYTES,mode=755" tmpfs "$disk" ;;
folder) mount --bind "$MACHINE_DIR/disk" "$disk" ;;
esac
cd "$disk"
mkdir -p root upper work mask
cp -R "$MACHINE_DIR/seed/upper/." upper/
cp -R "$MACHINE_DIR/seed/root/." root/
chmod 700 root/root
mount --bind root root
cd "$disk" # relative below: overlay options cannot hold every character of a path

overlay_options=
[ "$MACHINE_TIER" = netns ] || overlay_options=,userxattr
for name in usr etc var opt nix bin sbin lib lib32 lib64 libx32; do
    if [ -L "/$name" ]; then
        cp -P "/$name" "root/$name"
    elif [ -d "/$name" ]; then
        mkdir -p "upper/$name" "work/$name" "root/$name"
        mount -t overlay overlay \
            -o "lowerdir=/$name,upperdir=upper/$name,workdir=work/$name$overlay_options" "root/$name"
    fi
done

# What is on the host under a visible folder and none of the machine's business: an empty folder instead.
mask() { # PATH MODE
    mkdir -p "root$1" "mask$1"
    chmod "$2" "mask$1"
    mount --bind "mask$1" "root$1"
}
mask /var/log 755
mask /var/tmp 1777
for hidden in /opt/orch /var/lib/orch "$MACHINE_STATE"; do
    [ ! -d "root$hidden" ] || mask "$hidden" 755
done

# An image is a layer below orch's folder, which several machines read and none can write.
if [ -n "$MACHINE_IMAGE" ]; then
    mkdir -p image image-upper image-work "root$MACHINE_BASE"
    mount --bind "$MACHINE_IMAGE" image
    mount -t overlay overlay \
        -o "lowerdir=image,upperdir=image-upper,workdir=image-work$overlay_options" "root$MACHINE_BASE"
fi

cd root
mkdir -p proc sys dev run tmp home srv mnt media opt
chmod 1777 tmp
mount -t proc proc proc
if [ "$MACHINE_TIER" = netns ]; then
    mount -t sysfs -o ro sysfs sys
    mount -t tmpfs -o mode=755 tmpfs sys/fs/cgroup
    for pair in $MACHINE_CGROUPS; do # "memory=/sys/fs/cgroup/memory/orch/x ..." or "=/sys/fs/cgroup/orch/x"
        inside=sys/fs/cgroup/${pair%%=*}
        mkdir -p "$inside"
        mount --bind "${pair#*=}" "$inside"
        mount -o remount,bind,ro "$inside"
    done
else
    mount --rbind /sys sys || :
fi
mount -t tmpfs -o mode=755,size=1m tmpfs dev
for node in null zero full random urandom tty fuse $MACHINE_DEVICES; do
    [ -e "/dev/$node" ] || continue
    : >"dev/$node"
    mount --bind "/dev/$node" "dev/$node"
done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
mount -t tmpfs -o mode=1777 tmpfs dev/shm
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
ln -s fd/0 dev/stdin
ln -s fd/1 dev/stdout
ln -s fd/2 dev/stderr
mount -t tmpfs -o mode=755 tmpfs run
mkdir -m 755 run/sshd run/lock

hostname "$MACHINE_NAME" 2>/dev/null || echo "$MACHINE_NAME" >proc/sys/kernel/hostname
if [ "$MACHINE_TIER" = netns ]; then
    ip link set lo up
    ip address add "$address/30" dev eth0
    ip link set eth0 up
    echo "$address $MACHINE_NAME" >>etc/hosts
fi

# Of the kernel, which is this computer's, root in here may read the settings and change none.
if [ "$MACHINE_TIER" = netns ]; then
    for name in bus fs irq sys sysrq-trigger; do
        [ -e "proc/$name" ] || continue
        mount --bind "proc/$name" "proc/$name"
        mount -o remount,bind,ro "proc/$name"
    done
fi

mkdir .old
pivot_root . .old
cd /
umount -l /.old
rmdir /.old

# Root in here is this computer's root: it keeps what a server of its own needs, and gets nothing with which to
# set the clock, make devices, mount, load modules, or open files by their number. The score first, which needs more.
confined=
if [ "$MACHINE_TIER" = netns ]; then
    echo -1000 2>/dev/null >/proc/self/oom_score_adj || :
    kept=+chown,+dac_override,+fowner,+fsetid,+kill,+setgid,+setuid,+setpcap,+net_bind_service
    confined="setpriv --inh-caps=-all --bounding-set=-all,$kept,+net_raw,+sys_chroot,+audit_write,+setfcap"
fi
# shellcheck disable=SC2086
exec $confined /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
    /bin/sh /usr/lib/orch-machine/init.sh "$MACHINE_SSHD" /etc/ssh/sshd_config "$MACHINE_LASTS" \
    /var/lib/orch-machine/user-data /var/log/user-data.log /run/sshd.pid ""
