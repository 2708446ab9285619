"""Run the first steps of a recorded command again with an intervention, and record them."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from orchestrator import jobs
from orchestrator.errors import OrchError
from orchestrator.hosts.disk import FULL
from orchestrator.hosts.here import HereHost
from orchestrator.model import Agent, Job
from orchestrator.model.files import first_bytes, first_line, last_bytes
from orchestrator.model.plain import plain
from orchestrator.parity.explain import Unseeded
from orchestrator.parity.intervention import Intervention
from orchestrator.parity.recording import Recording, read
from orchestrator.replay.command_line import localise, module_beside, program_of
from orchestrator.replay.ending import end_of_fork, end_of_job
from orchestrator.replay.fork_server import ForkServer, ForkServerLost, ForkServers
from orchestrator.replay.recipe import Recipe
from orchestrator.replay.replay import Replay, cores, started_in
from orchestrator.replay.sandbox import Copy, Layout, Unplaceable
from orchestrator.runtime.acting import acts
from orchestrator.runtime.agent.command import environment as job_environment
from orchestrator.runtime.replay.fork_server import BROKEN, REFUSED
from orchestrator.runtime.rundir import RunDir, open_run
from orchestrator.runtime.temporary import own_temporary

_LAST = 16 << 10
"""Bytes at the end of a run's output that are read."""

LATE = frozenset(
    ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS",
     "TF_DETERMINISTIC_OPS", "TZ")
)  # fmt: skip
"""Variables that take effect after the imports: measured to act in a fork as from the start."""

_BEFORE_PYTHON = ("PYTHON", "LD_", "ORCH_", "PATH")
"""Prefixes of variables that Python, or orch's hook, has already used when the program runs."""

_IMPORTS_SECONDS = 15.0


class Replayer:
    """Repeat one command, once for each intervention. Leaving this context manager removes what it created.

    `facts` are those of the run that is repeated (environment.json), `steps` how many steps it observed in
    full, and `light` how many further ones to fingerprint. `servers`: the caller's fork servers; own ones if
    None.
    """

    def __init__(
        self,
        rerun: Recipe,
        layout: Layout,
        agent: Agent,
        facts: Mapping[str, Any],
        steps: int,
        light: int = 0,
        profile_environment: Mapping[str, str] | None = None,
        servers: ForkServers | None = None,
    ) -> None:
        self.rerun = rerun
        self.program = program_of(rerun.argv)
        self.forks = self.program is not None and sys.platform == "linux"
        self.import_seconds = _IMPORTS_SECONDS
        self._seconds: list[float] = []
        self._waited = 0.0
        self._fault = False
        self.always = Intervention()
        """Imposed on every run; the run's own intervention takes precedence."""
        self._place = layout
        self._agent = agent
        self._facts = facts
        self._steps = steps
        self._light = light
        self._profile_environment = dict(profile_environment or {})
        self._name = f"confirm-{secrets.token_hex(4)}"
        self._count = 0
        self._shared = servers is not None
        self._servers = servers or ForkServers()
        self._known: dict[tuple[str, bool, int], Replay] = {}

    def __enter__(self) -> Replayer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove the files of repeated runs, and end the fork servers that this object started."""
        if not self._shared:
            self._servers.close()
        for number in range(self._count + 1):
            shutil.rmtree(self._run(number).root, ignore_errors=True)

    @property
    def original(self) -> Path | None:
        """Return the folder of the recorded run; None if it must not be used again."""
        return self._place.original

    @property
    def run_seconds(self) -> float | None:
        """Return the average duration of a run without imports; None before the first run."""
        return sum(self._seconds) / len(self._seconds) if self._seconds else None

    def warm(self, imposed: Intervention) -> None:
        """Start the imports for a run with `imposed` in the background, if there is room."""
        if self.forks and self._servers.room:
            imposed = self.always | imposed
            self._start(self._environment(self._run(0), imposed, {}), imposed)

    def estimate(self, imposed: Intervention, again: int = 0) -> float:
        """Return the estimated seconds of a run with `imposed`."""
        imposed = self.always | imposed
        if (imposed.key, self.forks, again) in self._known:
            return 0.0
        once = self.run_seconds or 5.0
        if not self.forks:
            return once
        key = self._key(self._environment(self._run(0), imposed, {}))
        return once + self._servers.left(key, self.import_seconds)

    def run(self, imposed: Intervention, until: float, *, again: int = 0) -> Replay:
        """Run with `imposed` until `until` (time.monotonic()) at most; another `again` makes a further
        run."""
        imposed = self.always | imposed
        key = imposed.key, self.forks, again
        if key not in self._known:
            trial = self._trial(imposed, until)
            if not trial.recording.steps:
                return trial
            self._known[key] = trial
        return self._known[key]

    # ------------------------------------------------------------ inside

    def _trial(self, imposed: Intervention, until: float) -> Replay:
        begun = time.monotonic()
        self._waited = 0.0
        self._count += 1
        run = self._run(self._count)
        Path(run.root).mkdir(parents=True)
        self._fault = False
        try:
            ending = self._ended(run, imposed, until)
        except Unplaceable as where:
            ending = f"a file cannot be put in its place: {where}"
        except OSError as error:
            self._fault = error.errno not in FULL
            ending = f"the copy of the folder could not be laid out: {error}"
        seconds = time.monotonic() - begun
        recording = read(Path(run.root))
        if recording.steps:
            self._seconds.append(seconds - self._waited)
            unseeded = tuple(dict.fromkeys(map(_unseeded, _lines(Path(run.path("unseeded"))))))
            return Replay(recording, seconds, unseeded=unseeded)
        return Replay(recording, seconds, self._why(run, ending, recording), fault=self._fault)

    def _ended(self, run: RunDir, imposed: Intervention, until: float) -> str:
        """Run in a copy at the same path each time, since a program may depend on it. Returns how it
        ended."""
        root = Path(self._run(0).root)
        root.mkdir(parents=True, exist_ok=True)
        copy = self._place.lay_out(root, imposed, Path(self._agent.base))
        try:
            if copy.mounts and not self.forks:
                return "only what is simply a Python program can be given mounts of its own"
            if imposed.start and not (self.forks and copy.moved):
                return "only what is simply a Python program can be started from another folder"
            if imposed.program and self.program is None:
                return "only what is simply a Python program can be replaced by one of another name"
            if imposed.arguments is not None and self.program is None:
                return "only what is simply a Python program can be given other arguments"
            return (self._fork if self.forks else self._job)(run, copy, imposed, until)
        finally:
            for folder in copy.removable:
                shutil.rmtree(folder, ignore_errors=True)

    def _run(self, number: int) -> RunDir:
        return open_run(self._agent.base, f"{self._name}-{number}")

    def _environment(self, run: RunDir, imposed: Intervention, plan: Mapping[str, Any]) -> dict[str, str]:
        """Return the complete environment of a repeated run, with the hook and the intervention."""
        inherited = self.rerun.environment(os.environ)
        own = {**self._profile_environment}
        for name, value in imposed.env.items():
            inherited.pop(name, None)
            own.pop(name, None)
            if value is not None:
                own[name] = value
        if plan:
            own["ORCH_IMPOSE"] = json.dumps(plan)
        if self._light:
            own["ORCH_OBSERVE_LIGHT"] = str(self._light)
        spec = {
            "python": imposed.python or self.rerun.python,
            "env": own,
            "observe_steps": self._steps,
            "stop_after_observed": True,
        }
        return job_environment(run, spec, str(self.rerun.cwd), inherited)

    def _plan(self, run: RunDir, copy: Copy, imposed: Intervention) -> dict[str, Any]:
        had = int((self._facts.get("cpu") or {}).get("count") or 0)
        plan: dict[str, Any] = {"cpus": had} if 0 < had < cores() else {}
        plan |= imposed.plan
        if self.program is None:  # a shell script may set variables before it starts Python
            late = {n: v for n, v in imposed.env.items() if not n.startswith(_BEFORE_PYTHON)}
            plan |= {"env": late} if late else {}
        if plan.get("generators"):
            plan["unseeded"] = run.path("unseeded")
        seats = [(seat.original.resolve(), seat.seen.resolve()) for seat in copy.seats]
        if seats:
            plan["mirror"] = [[str(seen), str(copy.reach(original))] for original, seen in seats]
            kept = [str(copy.reach(original)) for original, _ in seats]
            free = [run.root, self._run(0).root, *(str(seen) for _, seen in seats)]
            plan["guard"] = {"kept": kept, "free": free, "refusals": run.path("refused")}
        return plan

    def _fork(self, run: RunDir, copy: Copy, imposed: Intervention, until: float) -> str:
        assert self.program
        environment = self._environment(run, imposed, self._plan(run, copy, imposed))
        name, cwd = self.program.name, copy.cwd
        if not self.program.module:
            name = self._program_there(copy, imposed)
        elif imposed.program:
            own = str((self._facts.get("program") or {}).get("name") or "")
            name = module_beside(name, own, imposed.program)
        if imposed.start:
            program = Path(os.path.normpath(copy.cwd / name))
            place = started_in(program, imposed.start, copy)
            if place is None:
                return "the folder to start it from is not one that is copied for a repeated run"
            name, cwd = os.path.relpath(program, place), place
        environment["PWD"] = str(cwd)
        arguments = self.program.arguments if imposed.arguments is None else imposed.arguments
        request = {
            "program": name,
            "module": self.program.module,
            "arguments": list(arguments),
            "cwd": str(cwd),
            "moved": [[str(original), str(seen)] for original, seen in copy.moved],
            "mounts": [[str(source), str(target)] for source, target in copy.mounts],
            "log": run.log,
            "stdin": self._stdin(imposed),
        }
        try:
            with own_temporary(environment) as given:
                ended = self._server(environment, imposed, until).run({**request, "env": given}, until)
        except ForkServerLost as lost:
            self._servers.forget(self._key(environment))
            return f"the process that imports the frameworks was lost: {lost}"
        if ended["timed_out"]:
            return "it took longer than the budget allows"
        self._fault = ended["code"] == BROKEN
        if ended["code"] == REFUSED:
            return "this system lets no program have mounts of its own"
        return end_of_fork(ended["code"], ended["signal"])

    def _stdin(self, imposed: Intervention) -> str:
        given = imposed.stdin or self.rerun.stdin
        return str(given.resolve()) if given else ""

    def _program_there(self, copy: Copy, imposed: Intervention) -> str:
        """Return the program's path: relative if it was relative and is in the copy."""
        assert self.program
        name = self.program.name
        if imposed.program:
            name = os.path.join(os.path.dirname(name), imposed.program)  # noqa: PTH118, PTH120
        original = Path(name)
        if not copy.moved:
            return name
        if original.is_absolute():
            return str(copy.at(original))
        there = copy.at(Path(os.path.normpath(self.rerun.cwd / name)))
        inside = any(there.is_relative_to(seen) for _, seen in copy.moved)
        return os.path.relpath(there, copy.cwd) if inside else str(there)

    def _server(self, environment: Mapping[str, str], imposed: Intervention, until: float) -> ForkServer:
        server = self._start(environment, imposed)
        begun = time.monotonic()
        server.ready(until)
        self._waited = time.monotonic() - begun
        if server.import_seconds:
            self.import_seconds = server.import_seconds
        return server

    def _start(self, environment: Mapping[str, str], imposed: Intervention) -> ForkServer:
        python = imposed.python or self.rerun.python
        seen = self._at_import(environment)
        return self._servers.get(self._key(environment), self._agent, python, self._modules(), seen)

    def _modules(self) -> list[str]:
        """Return the modules that the recorded run imported, frameworks first."""
        known = self._facts.get("versions", {})
        return [
            name
            for name in ("numpy", "tensorflow", "keras", "tf_keras", "sklearn", "pandas")
            if name in known
        ]

    def _at_import(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the environment during imports: without orch's variables and what the program sets first."""
        kept = {name: value for name, value in environment.items() if not name.startswith("ORCH_")}
        kept["PYTHONPATH"] = _without_hook(environment["PYTHONPATH"])
        if not kept["PYTHONPATH"]:
            del kept["PYTHONPATH"]
        late = set(self._facts.get("set_late") or ())
        own = {n: v for n, v in self._facts.get("environment", {}).items() if n not in late and n not in kept}
        started = {**self.rerun.variables, **self._profile_environment}
        return {**{n: v for n, v in own.items() if n not in started}, **kept}

    def _key(self, environment: Mapping[str, str]) -> str:
        seen = self._at_import(environment)
        chosen = {
            n: v for n, v in seen.items() if (acts(n) or n.startswith(("PYTHON", "LD_"))) and n not in LATE
        }
        return json.dumps([environment.get("PATH", ""), self._modules(), chosen], sort_keys=True)

    def _job(self, run: RunDir, copy: Copy, imposed: Intervention, until: float) -> str:
        """Run the command as a separate process, as for a recording."""
        environment = self._environment(run, imposed, self._plan(run, copy, imposed))
        argv = self._argv(copy, imposed)
        dropped = [word for name, value in imposed.env.items() if value is None for word in ("-u", name)]
        missing = [word for name in self.rerun.unset for word in ("-u", name)]
        own = {
            n: v
            for n, v in environment.items()
            if not n.startswith(("ORCH_OBSERVE_D", "ORCH_OBSERVE_S", "ORCH_TRACE"))
        }
        own = {n: v for n, v in own.items() if n not in ("PATH", "PWD", "VIRTUAL_ENV")}
        own["PYTHONPATH"] = _without_hook(environment["PYTHONPATH"])
        job = Job(
            run_id=run.run_id,
            argv=("env", *dropped, *missing, *argv),
            python=imposed.python or self.rerun.python,
            cwd=str(copy.cwd),
            env=own,
            observe_steps=self._steps,
            stop_after_observed=True,
            stdin=self._stdin(imposed),
        )
        host = HereHost()
        try:
            jobs.start(host, self._agent, job)
            while (state := jobs.state(host, self._agent, run.run_id)).state == "running":
                if time.monotonic() > until:
                    jobs.cancel(host, self._agent, run.run_id, grace=0.5)
                    return "it took longer than the budget allows"
                time.sleep(0.2)
        except OrchError as error:
            return error.message
        return end_of_job(state.exit)

    def _argv(self, copy: Copy, imposed: Intervention) -> tuple[str, ...]:
        python = imposed.python or self.rerun.python
        if self.program is None:
            argv = self.rerun.argv
            argv = argv if imposed.command is None else localise(argv, self.rerun.cwd, imposed.command)
            return tuple(str(copy.at(Path(word))) if word.startswith("/") else word for word in argv)
        arguments = self.program.arguments if imposed.arguments is None else imposed.arguments
        if self.program.module:
            return (python, "-m", self.program.name, *arguments)
        return (python, self._program_there(copy, imposed), *arguments)

    def _why(self, run: RunDir, ended: str, recording: Recording) -> str:
        refused = first_line(Path(run.path("refused")))
        if refused:
            return f"it writes to {refused}, which a repeated run may not change"
        said = plain(last_bytes(Path(run.log), _LAST).decode("utf-8", "replace"))
        lines = [line for line in said.splitlines() if line.strip()]
        return f"{ended}; {lines[-1].strip()[:200]}" if lines else f"{ended}; {recording.why}"


def _unseeded(line: str) -> Unseeded:
    """One line of the file that runtime.replay.interventions writes."""
    generator, _, place = line.partition("\t")
    return Unseeded(generator, place)


def _lines(path: Path) -> list[str]:
    return first_bytes(path, 1 << 20).decode("utf-8", "replace").splitlines()


def _without_hook(path: str) -> str:
    """Return a run's PYTHONPATH without the entry of orch's hook."""
    return path.partition(os.pathsep)[2]
