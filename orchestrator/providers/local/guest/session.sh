#!/bin/sh
# One session on a machine without a file system of its own: as sshd would start it, but in the machine's HOME.
cd "$HOME" || exit 1
command=${SSH_ORIGINAL_COMMAND-}
unset SSH_ORIGINAL_COMMAND
[ -z "$command" ] || exec "${SHELL:-/bin/sh}" -c "$command"
exec "${SHELL:-/bin/sh}" -i
