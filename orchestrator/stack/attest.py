"""Read back what an environment contains, here or on a machine."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from orchestrator.errors import StackError
from orchestrator.hosts.here import HereHost
from orchestrator.model import Agent, Fingerprint, Host
from orchestrator.model.answers import LONG, Malformed, decoded
from orchestrator.model.plain import last_words
from orchestrator.runtime.attest.attest import digest
from orchestrator.runtime.attest.facts import environment as relevant
from orchestrator.stack.runtime_files import lay_out
from orchestrator.stack.wheels import cache_home

_SECONDS = 600.0


def attest_argv(agent: Agent, python: str, *, cache: str | None = None) -> tuple[str, ...]:
    """Return the command with which the environment of `python` describes itself. `cache`: a file for its
    hashes.
    """
    remembered = ("--cache", cache) if cache else ()
    return (python, *agent.argv("attest", *remembered)[1:])


def attest(
    host: Host,
    agent: Agent,
    python: str,
    *,
    cache: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> Fingerprint:
    """Return what is installed for `python` on the machine, every file verified against its package's RECORD.

    `environment`: variables that a job would get, of which those that can change numbers count. Raise
    StackError if the environment cannot be read.
    """
    argv = attest_argv(agent, python, cache=cache)
    if environment:
        argv = ("env", *(f"{name}={value}" for name, value in relevant(environment).items()), *argv)
    done = host.run(argv, timeout=_SECONDS)
    try:
        return parse_fingerprint(done.stdout)
    except Malformed as error:
        why = last_words(done.stderr, 200) or (f"status {done.returncode}" if done.returncode else error)
        raise StackError(
            f"The environment of {python} on {host.name} could not be read back: {why}",
            exists=f"{host.name} may still be running and cost money.",
            next_command="orch up    # reinstalls it",
        ) from None


def attest_here(python: Path, *, environment: Mapping[str, str] | None = None) -> Fingerprint:
    """Return what is installed for `python` on this computer. Variables: those of this process, and
    `environment`.
    """
    base = cache_home()
    agent = Agent(str(python), str(lay_out(base)), str(base))
    remembered = (
        base / "attest" / (hashlib.sha256(str(python.absolute()).encode()).hexdigest()[:24] + ".json")
    )
    return attest(HereHost(), agent, str(python), cache=str(remembered), environment=environment)


def parse_fingerprint(text: bytes) -> Fingerprint:
    """Return the fingerprint in `text`. Raise Malformed if there is none, or its digest does not match
    its packages.
    """
    found = decoded(Fingerprint, text, most=LONG)
    packages = [asdict(distribution) for distribution in found.distributions]
    if found.digest != digest(found.facts.get("implementation", ""), found.python, packages):
        raise Malformed("its digest is not that of its packages")
    return found
