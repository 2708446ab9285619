# Sourced by setup: the programs with which `cloud: local` makes a machine on this computer.
# shellcheck shell=bash

# command:package, by the names of Debian and Ubuntu
MACHINE_PROGRAMS='sshd:openssh-server ssh-keygen:openssh-client ip:iproute2 unshare:util-linux mount:mount mkfs.ext4:e2fsprogs'

# The packages whose programs are missing here, one line, in a fixed order.
missing_packages() {
    local pair packages=''
    [ "$(uname -s)" = Linux ] || return 0
    for pair in $MACHINE_PROGRAMS; do
        PATH="$PATH:/usr/sbin:/sbin" command -v "${pair%%:*}" >/dev/null 2>&1 || packages="$packages ${pair##*:}"
    done
    # A bare system trusts nobody: no package index can be asked.
    if [ ! -e /etc/ssl/certs/ca-certificates.crt ] && [ -z "${SSL_CERT_FILE-}" ] && have apt-get; then
        packages="$packages ca-certificates"
    fi
    printf '%s' "${packages# }"
}

# Run as root: directly, or by sudo where that asks nothing.
as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

may_be_root() { [ "$(id -u)" = 0 ] || { have sudo && sudo -n true 2>/dev/null; }; }

# Install what is missing, or say what to type. Never an error: a lower tier may do.
offer_machine_packages() {
    local missing
    missing=$(missing_packages)
    [ -n "$missing" ] || return 0
    if [ "${ORCH_SETUP_PACKAGES-1}" != 0 ] && have apt-get && may_be_root; then
        say "machine packages: installing $missing with apt-get (ORCH_SETUP_PACKAGES=0 leaves them out)"
        # shellcheck disable=SC2086 # a list of words
        apt_install $missing && return 0
    fi
    say "machine packages: missing $missing. Isolated machines here need them; to install:"
    if have apt-get; then
        printf '    sudo apt-get install -y --no-install-recommends %s\n' "$missing" >&2
    else
        printf '    (names of Debian packages; your distribution has the same programs)\n' >&2
    fi
}

apt_install() {
    local log status=0
    log=$(mktemp)
    hold_services
    { apt_get install "$@" || { apt_get update && apt_get install "$@"; }; } >"$log" 2>&1 </dev/null || status=$?
    release_services "$@"
    [ "$status" = 0 ] || tail -n 15 "$log" >&2
    rm -f "$log"
    return "$status"
}

apt_get() {
    as_root env DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 \
        apt-get -y -q -o DPkg::Lock::Timeout=300 --no-install-recommends "$@"
}

# The packages bring an ssh server of the system's own: it must neither start now nor at the next boot.
POLICY=/usr/sbin/policy-rc.d
HELD=''
hold_services() {
    if [ ! -e "$POLICY" ]; then
        printf '#!/bin/sh\nexit 101\n' | as_root tee "$POLICY" >/dev/null && as_root chmod 755 "$POLICY" && HELD=1
    fi
}

release_services() {
    [ -z "$HELD" ] || as_root rm -f "$POLICY"
    HELD=''
    case " $* " in
    *' openssh-server '*)
        as_root update-rc.d ssh disable >/dev/null 2>&1 || true
        as_root systemctl --quiet disable ssh.service ssh.socket >/dev/null 2>&1 || true
        ;;
    esac
}
