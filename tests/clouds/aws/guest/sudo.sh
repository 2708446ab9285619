#!/bin/sh
# sudo without a password for the image's own user, on a machine that has no sudo: the options that scripts use.
# shellcheck disable=SC2034 # all are used by the eval at the end
become=/usr/libexec/orch-cloud/become
target=root keep='' login='' shell='' chdir='' settings=''
usage() { echo "usage: sudo [-nEHSkKbis] [-u user] [VAR=value] [command]" >&2; exit 1; }
while [ $# -gt 0 ]; do
    case $1 in
    --) shift; break ;;
    -u | --user) target=$2; shift 2 ;;
    --user=*) target=${1#*=}; shift ;;
    -u?*) target=${1#-u}; shift ;;
    -D | --chdir) chdir=$2; shift 2 ;;
    -g | -p | --prompt | -C | -T) shift 2 ;;
    --preserve-env | --preserve-env=*) keep=1; shift ;;
    --login) login=1; shift ;;
    --shell) shell=1; shift ;;
    --non-interactive | --set-home | --stdin) shift ;;
    -v | --validate | -K | -l | --list) exit 0 ;;
    --*) usage ;;
    -?*)
        case $1 in *i*) login=1 ;; esac
        case $1 in *s*) shell=1 ;; esac
        case $1 in *E*) keep=1 ;; esac
        case $1 in *[!nEHSkbis-]*) usage ;; esac
        shift
        ;;
    [A-Za-z_]*=*) settings="$settings $(printf %s "$1" | sed "s/'/'\\\\''/g; s/^/'/; s/\$/'/")"; shift ;;
    *) break ;;
    esac
done
entry=$(getent passwd "$target") || { echo "sudo: unknown user $target" >&2; exit 1; }
uid=$(echo "$entry" | cut -d: -f3) gid=$(echo "$entry" | cut -d: -f4) home=$(echo "$entry" | cut -d: -f6)
own_shell=$(echo "$entry" | cut -d: -f7)
if [ -n "$login$shell" ]; then
    if [ $# -gt 0 ]; then set -- "${own_shell:-/bin/sh}" -c "$*"; else set -- "${own_shell:-/bin/sh}"; fi
    [ -z "$login" ] || chdir=$home
fi
[ $# -gt 0 ] || usage
# shellcheck disable=SC2016 # expanded there, by one who may enter that folder
[ -z "$chdir" ] || set -- sh -c 'cd "$0" && exec "$@"' "$chdir" "$@"
path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
by="SUDO_USER=$(id -un) SUDO_UID=$(id -u) SUDO_GID=$(id -g) USER=$target LOGNAME=$target HOME=$home"
if [ -z "$keep" ]; then clean="-i PATH=$path TERM=${TERM:-dumb} LANG=${LANG:-C.UTF-8}"; else clean="PATH=$path"; fi
as="--reuid $uid --regid $gid --init-groups"
[ "$(id -u)" = 0 ] && become=setpriv
eval 'exec $become $as env $clean $by '"$settings"' "$@"'
