"""The environment in which the user works: find it, or build it from the lock."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import NOTHING_CREATED, LocalError, StackError
from orchestrator.hosts.atomic import atomic_write
from orchestrator.model import Agent, Lock, Progress, Silent
from orchestrator.model.counted import counted
from orchestrator.stack import cuda_free
from orchestrator.stack.gpu_lock import is_cuda
from orchestrator.stack.install import stack_digest
from orchestrator.stack.interpreter import Interpreter, interpreter
from orchestrator.stack.lock import export
from orchestrator.stack.pythons import compiled_for, required_python
from orchestrator.stack.runtime_files import lay_out
from orchestrator.stack.target import applicable
from orchestrator.stack.uv import run_uv
from orchestrator.stack.wheels import cache_home

_VERSION = ".".join(map(str, sys.version_info[:3]))


@dataclass(frozen=True)
class LocalStack:
    """`python` of the local environment; `made`: orch built it from the lock."""

    python: Path
    made: bool


def local_environment(
    lock: Lock,
    project: Path,
    python: Path | None = None,
    *,
    progress: Progress | None = None,
    environ: Mapping[str, str] = os.environ,
) -> LocalStack:
    """Return `python` if given, else the project's .venv, else the activated one inside it, else one that is
    built here.

    A built environment is kept in this computer's cache and reused. Raises StackError.
    """
    found = python or _own_environment(project, environ)
    if found:
        interpreter(found)
        return LocalStack(found.absolute(), made=False)
    return LocalStack(_made(lock, project, cache_home(environ), progress or Silent(), environ), made=True)


def existing_environment(
    lock: Lock, project: Path, python: Path | None = None, *, environ: Mapping[str, str] = os.environ
) -> LocalStack | None:
    """Return the environment as `local_environment` does, but build nothing: None if there is none yet.

    Raise StackError if none could be built, because no Python on this computer satisfies the lock.
    """
    found = python or _own_environment(project, environ)
    if found:
        return LocalStack(found.absolute(), made=False)
    name = _name_of(lock, interpreter(base_python(lock, project, environ)))
    folder = cache_home(environ) / "stacks"
    made = folder / name / "bin/python"
    return LocalStack(made, made=True) if _complete(folder / f"{name}.json", made) else None


def local_interpreter(
    lock: Lock, project: Path, python: Path | None = None, *, environ: Mapping[str, str] = os.environ
) -> Interpreter:
    """Return the interpreter of the environment in which the user works, or would work. Builds nothing.
    Raises StackError.
    """
    return interpreter(python or _own_environment(project, environ) or base_python(lock, project, environ))


def _own_environment(project: Path, environ: Mapping[str, str]) -> Path | None:
    active = environ.get("VIRTUAL_ENV")
    places = [project / ".venv"]
    if active and Path(active).resolve().is_relative_to(project.resolve()):
        places.append(Path(active))
    return next((place / "bin/python" for place in places if (place / "bin/python").exists()), None)


def _made(lock: Lock, project: Path, cache: Path, progress: Progress, environ: Mapping[str, str]) -> Path:
    base = interpreter(base_python(lock, project, environ))
    name, idle = _name_of(lock, base), _idle(lock, base)
    folder, marker = cache / "stacks" / name, cache / "stacks" / f"{name}.json"
    python = folder / "bin/python"
    if _complete(marker, python):
        return python
    with alone(cache / "stacks" / f".{name}.lock"):
        if not _complete(marker, python):
            progress.say(_announced(lock, base))
            _build(lock, base, folder, environ, idle)
            atomic_write(marker, json.dumps({"lock": lock.digest, "python": base.version}).encode())
    return python


def _idle(lock: Lock, base: Interpreter) -> frozenset[str]:
    """Return the pins of the lock that are useless on this computer."""
    pins = applicable(lock.pins, base.markers)
    return cuda_free.idle(pins, "loaded" if cuda_free.DRIVER.exists() else None)


def _name_of(lock: Lock, base: Interpreter) -> str:
    digest = stack_digest(lock, base)
    return f"{digest}-cpu" if _idle(lock, base) else digest


def _announced(lock: Lock, base: Interpreter) -> str:
    """Return what to say before the environment is built, with what is left out, or is large and useless
    here.
    """
    said = f"Making the local environment from {lock.path.name} ({counted(len(lock.pins), 'package')}"
    pins = applicable(lock.pins, base.markers)
    idle, cuda = _idle(lock, base), [pin for pin in pins if is_cuda(pin)]
    if idle:
        return f"{said}, without {len(idle)} of CUDA: there is no NVIDIA driver here)"
    if cuda and not cuda_free.DRIVER.exists():
        return (
            f"{said}). {len(cuda)} of them are CUDA libraries, some 3 GB: PyTorch does not load without, "
            "though there is no NVIDIA driver here. To use an environment of your own instead: stack.python"
        )
    return f"{said})"


def _complete(marker: Path, python: Path) -> bool:
    return marker.is_file() and python.exists()


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Hold a lock so that one process builds at a time; the next one then finds the environment built.

    Raise LocalError if the folder cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = path.open("w")
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise
        raise LocalError(
            f"Environments that are built from locks are kept in {path.parent}, which cannot be written: "
            f"{error.strerror}.",
            next_command="export ORCH_CACHE_HOME=DIR    # a writable folder",
        ) from error
    with handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _build(
    lock: Lock, base: Interpreter, folder: Path, environ: Mapping[str, str], idle: frozenset[str]
) -> None:
    """Build the environment without the packages of `idle`. Remains of an interrupted build are removed
    first.
    """
    shutil.rmtree(folder, ignore_errors=True)
    purpose = f"The local environment could not be created from {lock.path}:"
    run_uv(
        ["venv", "--no-project", "--python", base.base_executable, folder], purpose=purpose, environ=environ
    )
    run_uv(
        ["pip", "sync", "--python", folder / "bin/python", "--require-hashes",
         "--allow-empty-requirements", _source(lock, folder, idle)],
        cwd=lock.path.parent,
        purpose=purpose,
        environ=environ,
    )  # fmt: skip
    _compile(base, folder)


def _compile(base: Interpreter, folder: Path) -> None:
    """Compile what no other environment has. Without it the first import is slower, and no more."""
    agent = Agent(
        base.base_executable, root=str(lay_out(folder.parent.parent)), base=str(folder.parent.parent)
    )
    subprocess.run(agent.argv("bytecode", str(folder.parent), folder.name), check=False, capture_output=True)


def _source(lock: Lock, folder: Path, idle: frozenset[str]) -> Path:
    """Return the file that uv reads: the lock itself, or uv's export of a uv.lock; without `idle`."""
    if lock.kind != "uv.lock" and not idle:
        return lock.path.absolute()
    text = export(lock.path, "pylock.toml") if lock.kind == "uv.lock" else lock.path.read_text("utf-8-sig")
    name = f"{folder.name}.txt" if lock.kind == "requirements" else f"pylock.{folder.name}.toml"
    target = folder.parent / name
    atomic_write(target, (cuda_free.without(text, lock.kind, idle) if idle else text).encode())
    return target


def base_python(lock: Lock | None, project: Path, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the Python that the project (.python-version, requires-python) and its lock, if it has one, ask
    for, else this one.

    Raise StackError if no installed Python satisfies them.
    """
    if (project / ".python-version").exists():
        return _find("", project, environ, f"{project / '.python-version'} asks for another")
    asked = ",".join(filter(None, (_requires_python(project), required_python(lock) if lock else "")))
    if not _satisfied(asked):
        asking = f"{project} and {lock.path.name} ask" if lock else f"{project} asks"
        return _find(asked, project, environ, f"{asking} for Python {asked}")
    made_with = compiled_for(lock) if lock else ""
    if made_with and not _satisfied(made_with):
        with contextlib.suppress(StackError):  # the lock may work with another one
            return _find(made_with, project, environ, "")
    return Path(sys.executable)


def python_for(asked: str, project: Path, why: str) -> Path:
    """Return this Python if it satisfies the specifiers `asked`, else an installed one that does.

    Raise StackError, with the reason `why`, if none does.
    """
    return Path(sys.executable) if _satisfied(asked) else _find(asked, project, os.environ, why)


def _find(asked: str, project: Path, environ: Mapping[str, str], why: str) -> Path:
    argv = ["python", "find", "--system", "--no-python-downloads", *([asked] if asked else [])]
    try:
        found = run_uv(argv, cwd=project, environ=environ, purpose="").strip()
    except StackError as error:
        raise _no_python(project, asked, why) from error
    if not found:
        raise _no_python(project, asked, why)
    return Path(found)


def _no_python(project: Path, asked: str, why: str) -> StackError:
    request = shlex.quote(asked) if asked else ""
    return StackError(
        f"No installed Python is a version that {project} asks for: {why}, and this is {_VERSION}.",
        exists=NOTHING_CREATED,
        next_command=f"uv python install {request}".strip() + "    # or name one: stack.python",
    )


def _requires_python(project: Path) -> str:
    try:
        document = tomllib.loads((project / "pyproject.toml").read_text("utf-8"))
    except (OSError, ValueError):
        return ""
    return str(document.get("project", {}).get("requires-python", ""))


def _satisfied(requires: str) -> bool:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        return SpecifierSet(requires).contains(_VERSION)
    except InvalidSpecifier:
        return False
