#!/bin/sh
# What cloud-init does on an instance of the test cloud; @WORDS@ are filled in for each.
umask 022
console=@CONSOLE@
mkdir -p "${console%/*}" /var/lib/cloud/instance/scripts /var/lib/cloud/data
say() { printf '%s\n' "$*" >>"$console"; }
: >"$console"
say "[    0.000000] Linux version $(uname -r)"
say "Cloud-init v. 25.2 running 'init-local'"
tenths=0
while [ ! -e @READY@ ] && [ $tenths -lt 100 ]; do # until the metadata service answers
    sleep 0.05
    tenths=$((tenths + 1))
done
printf '%s\n' @INSTANCE@ >/var/lib/cloud/data/instance-id
printf '%s\n' @HOSTNAME@ >/etc/hostname
hostname @HOSTNAME@ 2>/dev/null || :
@WARNINGS@

user=@USER@
home=/home/$user
if ! id "$user" >/dev/null 2>&1; then
    uid=1000
    while cut -d: -f3 /etc/passwd /etc/group | grep -qx $uid; do uid=$((uid + 1)); done
    echo "$user:x:$uid:$uid:$user:$home:/bin/bash" >>/etc/passwd
    echo "$user:x:$uid:" >>/etc/group
    echo "$user:*:19000:0:99999:7:::" >>/etc/shadow
fi
mkdir -p "$home/.ssh"
for file in .bashrc .profile; do [ ! -f /etc/skel/$file ] || cp /etc/skel/$file "$home/$file"; done
@SUDO@
@DRIVER@
if [ -x /usr/bin/sudo ]; then
    mkdir -p /etc/sudoers.d
    echo "$user ALL=(ALL) NOPASSWD:ALL" >/etc/sudoers.d/90-cloud-init-users
    chmod 440 /etc/sudoers.d/90-cloud-init-users
else # a way to root for this user alone: setpriv, owned by root, with the set-user-id bit, behind sudo's options
    install -o root -g "$user" -m 4750 "$(command -v setpriv)" /usr/libexec/orch-cloud/become
    ln -sf /usr/libexec/orch-cloud/sudo.sh /usr/local/bin/sudo
    ln -sf /usr/libexec/orch-cloud/sudo.sh /usr/bin/sudo
fi

{ # bootcmd and boot hooks
@HOOKS@
@BOOT@
} >>/var/log/cloud-init-output.log 2>&1 </dev/null

{
@FILES@
} >>/var/log/cloud-init-output.log 2>&1 </dev/null

cat >"$home/.ssh/authorized_keys" <<'END_OF_KEYS'
@LOGIN_KEYS@
END_OF_KEYS
mkdir -p /root/.ssh
{
    refusal="no-port-forwarding,no-agent-forwarding,no-X11-forwarding,command=\"echo 'Please login as the user \\\"$user\\\" rather than the user \\\"root\\\".';echo;sleep 10;exit 142\""
    while read -r key; do [ -z "$key" ] || printf '%s %s\n' "$refusal" "$key"; done <"$home/.ssh/authorized_keys"
} >/root/.ssh/authorized_keys
chown -R "$user:$user" "$home"
chmod 755 "$home"
chmod 700 "$home/.ssh" /root/.ssh
chmod 600 "$home/.ssh/authorized_keys" /root/.ssh/authorized_keys

{
@HOST_KEYS@
} >>/var/log/cloud-init-output.log 2>&1 </dev/null
sed -i '/^HostKey /d' /etc/ssh/sshd_config
for key in /etc/ssh/ssh_host_*_key; do
    [ -s "$key" ] || continue
    [ -s "$key.pub" ] || ssh-keygen -y -f "$key" >"$key.pub"
    echo "HostKey $key" >>/etc/ssh/sshd_config.keys
done
cat /etc/ssh/sshd_config >>/etc/ssh/sshd_config.keys
mv /etc/ssh/sshd_config.keys /etc/ssh/sshd_config

{
@SCRIPTS@
} >>/var/log/cloud-init-output.log 2>&1 </dev/null

final() { # beside sshd, as there
    # shellcheck disable=SC2317 # filled in below
    run() { "$1" || say "cloud-init WARNING: Failed to run $1 [$?]"; }
    (
        cd / || exit
        export HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
@RUN@
    ) >>/var/log/cloud-init-output.log 2>&1 </dev/null
    sed 's/^/[cloud-init output] /' /var/log/cloud-init-output.log >>"$console"
    {
        echo "ci-info: no authorized SSH keys fingerprints found for user root."
        echo "<14>Nov 20 00:00:00 cloud-init: #############################################################"
        echo "<14>Nov 20 00:00:00 cloud-init: -----BEGIN SSH HOST KEY FINGERPRINTS-----"
        for key in /etc/ssh/ssh_host_*_key.pub; do
            [ ! -s "$key" ] || echo "<14>Nov 20 00:00:00 cloud-init: $(ssh-keygen -lf "$key")"
        done
        echo "<14>Nov 20 00:00:00 cloud-init: -----END SSH HOST KEY FINGERPRINTS-----"
        echo "<14>Nov 20 00:00:00 cloud-init: #############################################################"
        # shellcheck disable=SC2157 # filled in
        if [ -n "@EMIT@" ]; then
            echo "-----BEGIN SSH HOST KEY KEYS-----"
            for key in /etc/ssh/ssh_host_*_key.pub; do [ ! -s "$key" ] || cat "$key"; done
            echo "-----END SSH HOST KEY KEYS-----"
        fi
        echo "[    9.000000] cloud-init[1]: Cloud-init v. 25.2 finished. Datasource DataSourceEc2Local."
    } >>"$console" 2>&1
    : >/var/lib/cloud/instance/boot-finished
}
final </dev/null >/dev/null 2>&1 &
