"""Remove the root rights of an AWS image's login user, who could otherwise stop the deadline timer.

The first boot installs a program, `PROGRAM`, that root owns. It runs after the machine has created its own
host key, which takes root, and before any job. From then on the user may end the machine early, with `sudo -n
poweroff`, and nothing else. Pure.
"""

from __future__ import annotations

PROGRAM = "/usr/local/sbin/orch-confine"
COMMAND = ("sudo", "-n", PROGRAM)
"""The path of the program. It may be run again: the user keeps the right to run it."""

# The last rule that matches counts, and files are read in order of their names: one that is called zz comes
# after those of cloud-init. visudo refuses a file that would lock everybody out.
_PROGRAM = """\
#!/bin/sh
set -eu
PATH=/usr/sbin:/usr/bin:/sbin:/bin
umask 027
rules=/etc/sudoers.d/zz-orch
off=$(command -v poweroff)
{
  echo '@USER@ ALL=(ALL:ALL) !ALL'
  echo "@USER@ ALL=(root) NOPASSWD: $off \\"\\", @PROGRAM@ \\"\\""
} >"$rules.new"
chmod 440 "$rules.new"
visudo -cqf "$rules.new"
mv -f "$rules.new" "$rules"
for group in sudo wheel lxd docker; do gpasswd -d '@USER@' "$group" >/dev/null 2>&1 || :; done
"""

INSTALL = f"""
mkdir -p {PROGRAM.rpartition("/")[0]}
printf '%s' "$1" >{PROGRAM}
chmod 755 {PROGRAM}
"""
"""Shell text that installs the program, which is $1. It runs at every boot."""


def program(user: str) -> str:
    """Return the program that takes all rights but one (`sudo -n poweroff`) from `user`, who is not root."""
    return _PROGRAM.replace("@USER@", user).replace("@PROGRAM@", PROGRAM)
