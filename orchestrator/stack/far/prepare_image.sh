# Leave on a machine only what an image of it may hold: the last command before the image is made, as root.
# Afterwards nobody can log in. Arguments: base folder.
# Of orch's folder, its interpreter, uv with its cache and the environments stay. What checks them (the runtime,
# and hashes that were remembered) goes: it comes from the user's computer each time.
base=$1
set -u
umask 022
if [ ! -e /usr/lib/orch-machine/init.sh ] && [ ! -d /var/lib/orch ]; then
    echo "this is not a machine that orch created" >&2
    exit 1
fi
[ -d "$base/stacks" ] || { echo "there is no stack in $base" >&2; exit 1; }
for entry in "$base"/* "$base"/.[!.]*; do
    case ${entry##*/} in
    python | uv | uv-cache | stacks) ;;
    *) rm -rf "$entry" ;;
    esac
done
rm -rf "$base"/stacks/*.seen.json "$base"/stacks/pylock.*.toml

# What the first boot wrote: deadline, timers, and the rules that take root rights from the login user.
if grep -qs /var/lib/orch/delete-self /usr/local/bin/poweroff; then rm -f /usr/local/bin/poweroff; fi
rm -rf /var/lib/orch /var/lib/orch-first-boot /var/lib/orch-user-data /etc/systemd/system/orch-* \
    /etc/sudoers.d/zz-orch /etc/sudoers.d/90-orch /usr/local/sbin/orch-confine
if command -v cloud-init >/dev/null 2>&1; then cloud-init clean --logs >/dev/null 2>&1; fi
rm -rf /var/lib/cloud/instance /var/lib/cloud/instances /var/lib/cloud/data /var/lib/cloud/sem
rm -f /etc/instance_id /etc/sudoers.d/90-cloud-init-users

# What Google's agent noted: accounts that it made, except the one that owns orch's folder, and who logged in by OS
# Login. With another instance id it makes host keys and boto.cfg again.
owner=${base#/home/}
owner=${owner%%/*}
for user in $(cat /var/lib/google/google_users 2>/dev/null); do
    [ "$user" = "$owner" ] || userdel -f -r "$user" >/dev/null 2>&1
done
[ ! -e /etc/google_instance_id ] || rm -f /etc/google_instance_id /etc/boto.cfg
[ ! -w /etc/hosts ] || sed -i '/# Added by Google/d' /etc/hosts
rm -rf /var/lib/google/* /var/google-sudoers.d/* /var/google-users.d/*

# Who it was, and what it was told.
[ ! -e /etc/machine-id ] || : >/etc/machine-id
rm -f /var/lib/dbus/machine-id /var/lib/systemd/random-seed
find /var/log -type f -exec sh -c 'for log; do : >"$log"; done' sh {} + 2>/dev/null
for home in /root /home/*; do
    rm -rf "$home/.ssh" "$home/.bash_history" "$home/.python_history" "$home/.cache" "$home/.aws" \
        "$home/.config/gcloud"
done
rm -rf /tmp/* /tmp/.[!.]* /var/tmp/* /var/tmp/.[!.]*
rm -f /etc/ssh/ssh_host_*
sync
