"""Remove from a machine what an image of it must not hold."""

from __future__ import annotations

import re

from orchestrator.errors import StackError
from orchestrator.model import Agent, Host
from orchestrator.model.plain import last_words
from orchestrator.stack.bootstrap import far_script

_SECONDS = 600.0
_OWN_BASE = re.compile(r"/opt/orch|/home/[a-z_][a-z0-9_-]*/orch")
"""Orch's folder on machines with a file system of their own."""
_AS_ROOT = 'if [ "$(id -u)" = 0 ]; then exec sh -c "$@"; else exec sudo -n sh -c "$@"; fi'


def prepare_image(host: Host, agent: Agent) -> None:
    """Remove keys, identity, logs, secrets, code and data, and what verifies the stack. Nobody can log in
    afterwards.

    Raise StackError if the machine's user cannot become root, or something resists.
    """
    if not _OWN_BASE.fullmatch(agent.base):
        raise StackError(f"{host.name} has no file system of its own, so no image can be made of it.")
    argv = ("sh", "-c", _AS_ROOT, "sh", far_script("prepare_image"), "prepare_image", agent.base)
    done = host.run(argv, timeout=_SECONDS)
    if done.returncode != 0:
        said = last_words(done.stderr or done.stdout) or f"status {done.returncode}"
        raise StackError(f"{host.name} could not be prepared for an image: {said}")
