"""Prepare a machine that has sh, tar and coreutils: install orch's interpreter, runtime and uv.

If a call is killed at any point, the next one completes it: files are unpacked to a new name and then
renamed.
"""

from __future__ import annotations

import re
import secrets
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

from orchestrator.errors import StackError
from orchestrator.model import Agent, Host, Progress, Silent
from orchestrator.model.answers import SHORT, Malformed, malformed, shown
from orchestrator.model.plain import last_words
from orchestrator.stack.bundle import bundle
from orchestrator.stack.foreign import uv_for
from orchestrator.stack.interpreter import PROBE, Interpreter, parse
from orchestrator.stack.pack import Member, send
from orchestrator.stack.runtime_files import lay_out, runtime_digest, runtime_members
from orchestrator.stack.uv import uv_binary

_FAR = Path(__file__).parent / "far"
_SELF_CHECK_SECONDS = 120.0
_STEP_SECONDS = 3600.0
"""Limit of one step on the machine; building the environment of a large lock takes longest."""

_WORD = re.compile(r"[A-Za-z0-9_.+-]{0,128}\Z")
_PATH = re.compile(r"[^\x00-\x1f\x7f]{0,4096}\Z")
_GLIBC = re.compile(r"glibc ([0-9]{1,3})\.([0-9]{1,3})(?![0-9])")


@dataclass(frozen=True)
class Survey:
    """What a machine has. `python`, `runtime`, `uv`: orch's own are there and complete. `libraries`: by
    file name.
    """

    system: str
    machine: str
    key: str
    python: bool
    runtime: bool
    uv: bool
    gzip: bool
    libc: str
    candidates: tuple[str, ...]
    libraries: frozenset[str]


def far_script(name: str) -> str:
    return (_FAR / f"{name}.sh").read_text("utf-8")


def sh(
    host: Host, script: str, *arguments: str, stdin: bytes | None = None, timeout: float = _STEP_SECONDS
) -> str:
    """Run one of orch's shell scripts on the machine and return its standard output. Raise StackError if
    it fails.
    """
    done = host.run(("sh", "-c", far_script(script), script, *arguments), stdin=stdin, timeout=timeout)
    if done.returncode != 0:
        said = last_words(done.stderr or done.stdout) or f"status {done.returncode}"
        raise StackError(f"On {host.name} the step {script!r} failed: {said}")
    return done.stdout.decode(errors="replace")


def local_agent(base: Path) -> Agent:
    """Return the runtime on this computer, below `base`, with the interpreter that runs this code."""
    return Agent(python=sys.executable, root=str(lay_out(base.absolute())), base=str(base.absolute()))


def bootstrap(
    host: Host,
    *,
    base: str,
    interpreter: Interpreter,
    progress: Progress | None = None,
    use_system_python: bool = True,
) -> Agent:
    """Put interpreter (the same patch version), runtime and uv below `base` on the machine. Quick if they are
    there.

    With `use_system_python=False`, the machine's own Python is never used, even if it has that version. Raise
    StackError if such an interpreter cannot be provided there.
    """
    progress = progress or Silent()
    uv = uv_binary()
    survey = _survey(host, base, interpreter, uv)
    if not survey.runtime:
        _put(host, base, "runtime", runtime_digest(), runtime_members(), survey, progress, "runtime")
    if not survey.uv:
        _put_uv(host, base, survey, uv, progress)
    python = str(PurePosixPath(base) / "python" / survey.key / "bin/python3")
    if not survey.python:
        _provide_python(host, base, interpreter, survey, progress, use_system_python)
    return Agent(python=python, root=f"{base}/runtime/{runtime_digest()}", base=base)


def _survey(host: Host, base: str, interpreter: Interpreter, uv: Path) -> Survey:
    said = sh(
        host,
        "survey",
        base,
        interpreter.key,
        interpreter.name,
        runtime_digest(),
        _edition(uv),
        timeout=60,
    )
    try:
        return parse_survey(said)
    except Malformed as error:
        raise malformed(host.name, "what it has", str(error)) from None


def parse_survey(text: str) -> Survey:
    """Return the survey in the output of the script. Raise Malformed if a value is not a valid name or
    path.
    """
    facts: dict[str, list[str]] = {}
    for name, _, value in (line.partition("=") for line in text.splitlines()):
        facts.setdefault(name, []).append(value)
    first = {name: values[0] for name, values in facts.items()}
    _check(_WORD, first.get("system", ""), first.get("machine", ""), first.get("key", ""))
    _check(_PATH, first.get("libc", ""), *facts.get("candidate", ()))
    return Survey(
        system=first.get("system", ""),
        machine=first.get("machine", ""),
        key=first.get("key", ""),
        python="python" in first,
        runtime="runtime" in first,
        uv="uv" in first,
        gzip="gzip" in first,
        libc=first.get("libc", ""),
        candidates=tuple(facts.get("candidate", ())),
        libraries=frozenset(facts.get("library", ())),
    )


def _check(like: re.Pattern[str], *values: str) -> None:
    wrong = [value for value in values if not like.match(value)]
    if wrong:
        raise Malformed(f"it names {shown(wrong[0])}")


@cache
def _edition(uv: Path) -> str:
    """Return the version and size of uv, to identify it without reading its forty megabytes at every call."""
    from importlib.metadata import version

    return f"{version('uv')}-{uv.stat().st_size}"


def _put(
    host: Host,
    base: str,
    kind: str,
    name: str,
    members: Sequence[Member],
    survey: Survey,
    progress: Progress,
    label: str,
) -> None:
    fresh = _fresh_name()
    send(host, members, f"{base}/{kind}/{fresh}", squeeze=survey.gzip, label=label, progress=progress)
    sh(host, "adopt", base, kind, fresh, name)


def _fresh_name() -> str:
    return f".new-{secrets.token_hex(6)}"


def _put_uv(host: Host, base: str, survey: Survey, uv: Path, progress: Progress) -> None:
    # The edition of this side's binary identifies the version, also for a machine of another kind.
    members = (
        Member("uv", uv_for(survey.system, survey.machine, uv), 0o755),
        Member("edition", _edition(uv).encode()),
    )
    _put(host, base, "uv", "uv", members, survey, progress, "uv")


# ---------------------------------------------------------------- the interpreter


def _provide_python(
    host: Host,
    base: str,
    interpreter: Interpreter,
    survey: Survey,
    progress: Progress,
    use_system_python: bool,
) -> None:
    found = _system_python(host, interpreter, survey) if use_system_python else None
    if found:
        progress.say(f"Using the machine's own Python {interpreter.version}")
        _link(host, base, survey, found)
        return
    obstacle = _push_obstacle(interpreter, survey) or _push_python(host, base, interpreter, survey, progress)
    if obstacle and not _far_install(host, base, interpreter, survey, progress):
        raise StackError(
            f"The machine has no Python {interpreter.version}, and this side's cannot be sent: {obstacle}.",
            exists=f"{host.name} is still running.",
            next_command=f"uv python install {interpreter.version}    # then create the local one with it",
        )


def _system_python(host: Host, interpreter: Interpreter, survey: Survey) -> str | None:
    """Return the real path of a Python there with exactly this version and a complete standard library;
    None if there is none.
    """
    for candidate in dict.fromkeys(survey.candidates):
        found = ask(host, candidate)
        if found and found.key == interpreter.key and not set(found.missing) - set(interpreter.missing):
            return found.base_executable
    return None


def ask(host: Host, python: str) -> Interpreter | None:
    """Return the facts of `python` on the machine; None if it does not run or does not answer."""
    done = host.run((python, "-I", "-c", PROBE), timeout=_SELF_CHECK_SECONDS, most=SHORT)
    try:
        return parse(done.stdout)
    except Malformed:
        return None


def _link(host: Host, base: str, survey: Survey, real: str) -> None:
    fresh = _fresh_name()
    sh(host, "link", base, fresh, real)
    sh(host, "adopt", base, "python", fresh, survey.key)


def _push_obstacle(interpreter: Interpreter, survey: Survey) -> str | None:
    """Return why this side's build cannot run there, as far as can be known before it is sent; None if
    nothing is known.
    """
    if (interpreter.system, interpreter.machine) != (survey.system, survey.machine):
        here, there = f"{interpreter.system} {interpreter.machine}", f"{survey.system} {survey.machine}"
        return f"it is built for {here}, the machine is {there}"
    if interpreter.libc and not survey.libc:
        return f"it needs {interpreter.libc}, and the machine has another C library"
    return None


def _push_python(
    host: Host, base: str, interpreter: Interpreter, survey: Survey, progress: Progress
) -> str | None:
    """Send this side's interpreter. Return why it does not run there; None if it does.

    First without the libraries that the machine has; if these are too old, then with all of them.
    """
    why: str | None = None
    for libraries in (survey.libraries, frozenset[str]()):
        made = bundle(interpreter, libraries)
        if made.glibc > glibc_version(survey.libc):
            return f"it needs glibc {made.glibc[0]}.{made.glibc[1]}, the machine has {survey.libc}"
        fresh = _fresh_name()
        folder = f"{base}/python/{fresh}"
        label = f"Python {interpreter.version}"
        send(host, made.members, folder, squeeze=survey.gzip, label=label, progress=progress)
        why = _does_not_run(host, f"{folder}/bin/python3", interpreter)
        if why is None:
            host.put(f"pushed {interpreter.build}\n".encode(), f"{folder}/complete")
            sh(host, "adopt", base, "python", fresh, survey.key)
            return None
        host.run(("rm", "-rf", folder), timeout=_STEP_SECONDS)
    return why


def glibc_version(libc: str) -> tuple[int, int]:
    """Return (2, 36) for "glibc 2.36"; (0, 0) for anything else."""
    found = _GLIBC.match(libc)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _does_not_run(host: Host, python: str, interpreter: Interpreter) -> str | None:
    done = host.run((python, "-I", "-c", PROBE), timeout=_SELF_CHECK_SECONDS, most=SHORT)
    try:
        found = parse(done.stdout)
    except Malformed:
        return f"there it says: {last_words(done.stderr, 200) or f'status {done.returncode}'}"
    lost = set(found.missing) - set(interpreter.missing)
    if found.key != interpreter.key:
        return f"there it is {found.key}"
    return f"there it lacks {', '.join(sorted(lost))}" if lost else None


def _far_install(host: Host, base: str, interpreter: Interpreter, survey: Survey, progress: Progress) -> bool:
    """Have uv on the machine download that interpreter; return False if it cannot."""
    if interpreter.implementation != "cpython":
        return False
    progress.say(f"Letting the machine download Python {interpreter.version}")
    folder = f"{base}/python/managed"
    environment = ("env", f"UV_CACHE_DIR={base}/uv-cache", "UV_HTTP_RETRIES=0", "UV_NO_CONFIG=1")
    uv = f"{base}/uv/uv"
    argv = (uv, "python", "install", "--no-bin", "--install-dir", folder, interpreter.key)
    if host.run((*environment, *argv), timeout=600).returncode != 0:
        return False
    look = (uv, "python", "find", "--managed-python", "--no-python-downloads", interpreter.key)
    done = host.run((*environment, f"UV_PYTHON_INSTALL_DIR={folder}", *look), timeout=60)
    found = ask(host, last_words(done.stdout, 4096)) if done.returncode == 0 else None
    if not found or found.key != interpreter.key:
        return False
    _link(host, base, survey, found.base_executable)
    return True
