"""The first steps here and there, compared: before the long run, not after it."""

from __future__ import annotations

import secrets
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from orchestrator import jobs, parity, sync
from orchestrator.api.confirm import Sides, confirm, confirmable, imitated, light_steps
from orchestrator.api.confirm_copy import Staged
from orchestrator.api.confirm_runs import Runs
from orchestrator.api.rerun import Rerun, acting_now, this_host
from orchestrator.api.session import Session
from orchestrator.api.trees import Trees
from orchestrator.errors import RunFailed
from orchestrator.hosts.here import HereHost
from orchestrator.model import Agent, Host, Job, Progress, Verdict
from orchestrator.parity.recording import read
from orchestrator.parity.verdict import sided

_SIDES = ("here", "there")


def prove(session: Session, local: Agent, trees: Trees, run_id: str, there_python: str) -> Verdict:
    """Run the profile's first steps on both sides at once and compare every tensor.

    The recordings stay in `runs/<id>/parity/{here,there}`. Raises RunFailed where a side fails.
    """
    session.progress.say(f"Parity: the first {session.profile.parity.steps} steps, here and there")
    folder = session.place.run(run_id) / "parity"
    observed = f"{run_id}.parity-{secrets.token_hex(3)}"
    with ThreadPoolExecutor(max_workers=2) as both:
        here_python = str(session.local().python)
        here = both.submit(_observe, session, HereHost(), local, trees.here, here_python, observed)
        there = both.submit(
            _observe, session, session.host, session.agent, trees.there, there_python, observed
        )
        try:
            failures = [
                _failure(side, future.result()) for side, future in zip(_SIDES, (here, there), strict=True)
            ]
        except KeyboardInterrupt:
            for host, agent in ((HereHost(), local), (session.host, session.agent)):
                jobs.cancel(host, agent, observed, grace=1.0)
            shutil.rmtree(jobs.run_dir(local, observed), ignore_errors=True)
            raise
    for host, agent, side in ((HereHost(), local, "here"), (session.host, session.agent, "there")):
        _fetch(host, agent, observed, folder / side)
    shutil.rmtree(jobs.run_dir(local, observed), ignore_errors=True)
    verdict = parity.named(_judged(session, local, trees, here_python, folder), "here", "there")
    if any(failures) and verdict.verdict == "NOT COMPARED":
        raise RunFailed(
            "\n".join(filter(None, failures)), next_command="orch train --local-parity    # once mended"
        )
    return verdict


def _judged(session: Session, local: Agent, trees: Trees, python: str, folder: Path) -> Verdict:
    """The verdict on both recordings; of a difference the cause is looked for here, within the budget."""
    here, there = read(folder / "here"), read(folder / "there")
    verdict = parity.judge(here, there)
    profile = session.profile
    if not profile.parity.confirm or not confirmable(verdict, here, there):
        return verdict
    known = Rerun(profile.train.command, Path(local.base), python, acting_now(), host=this_host())
    sides = Sides(here, there, "A", imitated(folder / "there", there))
    with Runs(
        known,
        Staged(trees.here, local.base),
        local,
        here.environment,
        len(here.steps),
        light_steps(verdict, here),
        profile.train.environment(),
    ) as runs:
        return confirm(sides, verdict, runs, profile.parity.budget, _Sided(session.progress))


class _Sided:
    """Progress in which the sides are called by their places."""

    def __init__(self, tell: Progress) -> None:
        self._tell = tell
        self.transfer = tell.transfer

    def say(self, text: str) -> None:
        """Say it with `here` and `there`."""
        self._tell.say(sided(text, *_SIDES))


def _observe(
    session: Session, host: Host, agent: Agent, trees: tuple[Any, ...], python: str, run_id: str
) -> tuple[str, bytes]:
    profile = session.profile
    job = Job(
        run_id=run_id,
        argv=profile.train.command,
        python=python,
        env=profile.train.environment(),
        trees=trees,
        observe_steps=profile.parity.steps,
        observe_light=profile.parity.light_steps,
        stop_after_observed=True,
    )
    jobs.start(host, agent, job)
    log: list[bytes] = []
    jobs.follow(host, agent, job.run_id, 0, log.append)
    ended = jobs.state(host, agent, job.run_id).exit
    return (ended.reason if ended else "lost"), b"".join(log)


def _failure(side: str, ended: tuple[str, bytes]) -> str | None:
    reason, log = ended
    if reason in ("observed", "completed"):
        return None
    tail = "\n".join("    " + line for line in log.decode(errors="replace").strip().splitlines()[-12:])
    place = "on this computer" if side == "here" else "on the machine"
    return f"The script ended with {reason} {place}:\n{tail}"


def _fetch(host: Host, agent: Agent, run_id: str, target: Path) -> None:
    """The recording of one side, replacing what an earlier attempt left."""
    shutil.rmtree(target, ignore_errors=True)
    source = f"{jobs.run_dir(agent, run_id)}/observe"
    entries = sync.far_scan(host, agent, source).entries
    sync.pull(host, agent, source, entries, target / "observe")


def as_json(verdict: Verdict) -> dict[str, Any]:
    """The `parity` object of `run.json`."""
    return verdict.as_json()
