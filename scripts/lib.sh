# Sourced by the scripts in this folder: where things are, how to speak, what this computer has.
# shellcheck shell=bash

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)

# Progress, one line each, on stderr; results alone go to stdout.
say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }

# A full sentence with what to do, then the end.
die() {
    say "error: $*"
    exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

# Print a command as it could be typed, then run it.
run() {
    printf '$ %s\n' "$*" >&2
    "$@"
}

# uv reads none of pip's configuration: hand it pip's package index, certificates and proxy.
use_package_index() {
    if have python3; then
        eval "$(python3 -I "$ROOT/scripts/get_uv.py" settings)"
    fi
}
