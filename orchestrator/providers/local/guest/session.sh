#!/bin/sh
# One session on a machine without a file system of its own: as sshd would start it, but in the machine's HOME.
cd "$HOME" || exit 1
[ -z "${SSH_ORIGINAL_COMMAND-}" ] || exec "${SHELL:-/bin/sh}" -c "$SSH_ORIGINAL_COMMAND"
exec "${SHELL:-/bin/sh}" -i
