"""Check that the machine will have the script or the modules that a profile's command starts."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from orchestrator.errors import UsageError
from orchestrator.profile import Profile
from orchestrator.profile.command import modules_of, script_of, unfilled
from orchestrator.reads.reference import Named
from orchestrator.reads.sent import Sent, sent_of

_SECONDS = 60.0
_FIND = """
import importlib.util, json, sys
def found(name):
    try:
        return importlib.util.find_spec(name) is not None
    except Exception:
        return True
print(json.dumps([name for name in sys.argv[1:] if not found(name)]))
"""


def require_program(profile: Profile, python: Path | None = None) -> None:
    """Raise UsageError if the command begins with a script that is not sent, or a module that does not exist.

    `python`: the interpreter of the local environment, which has the packages of the lock; without it, only
    the project's modules are checked.
    """
    script, modules = script_of(profile.train.command), modules_of(profile.train.command)
    if unfilled(tuple(filter(None, (script, *modules)))):  # a parameter that a sweep gives a value
        return
    if not script and not modules:
        return
    sent = sent_of(profile)
    if script and not _is_sent(sent, script):
        raise _not_sent(profile, script)
    _require_modules(profile, sent, modules, python)


def _require_modules(profile: Profile, sent: Sent, modules: Sequence[str], python: Path | None) -> None:
    elsewhere = []
    for name in modules:
        files = list(_files(sent.project, name))
        if files and not any(_is_sent(sent, each) for each in files):
            raise _not_sent(profile, files[0])
        if not files:
            elsewhere.append(name)
    own = [name for name in elsewhere if (sent.project / name.partition(".")[0] / "__init__.py").is_file()]
    wanted = [top for name in elsewhere if (top := name.partition(".")[0]) not in sys.stdlib_module_names]
    absent = own or (_unknown(profile, python, wanted) if python and wanted else [])
    if absent:
        raise UsageError(
            f"train.command: there is no module {absent[0]}: neither in {sent.project} nor in the packages "
            "of the lock.",
            next_command=f"orch plan {shlex.quote(str(profile.path))}    # once it is there",
        )


def _files(project: Path, module: str) -> Iterator[str]:
    """Yield the files below `project` that are this module, if it has them."""
    path = PurePosixPath(*module.split("."))
    for name in (f"{path}.py", f"{path}/__main__.py", f"{path}/__init__.py"):
        if (project / name).is_file():
            yield name


def _is_sent(sent: Sent, name: str) -> bool:
    """Return whether the machine has the file. Data count as sent, because `prepare` may create them."""
    return sent.has(Named(sent.project / name, os.path.normpath(name))) or any(
        PurePosixPath(name).is_relative_to(tree.target) for tree in sent.data
    )


def _not_sent(profile: Profile, name: str) -> UsageError:
    return UsageError(
        f"train.command: {name} is in {profile.code.path}, and is not sent to the machine.",
        next_command=f"orch skipped {shlex.quote(str(profile.path))}    # says which line leaves it out",
    )


def _unknown(profile: Profile, python: Path, names: Sequence[str]) -> list[str]:
    """Return the top-level modules that this interpreter does not find; none if it cannot be run."""
    command = [str(python), "-c", _FIND, *names]
    environ = {**os.environ, **profile.train.environment()}
    try:
        done = subprocess.run(
            command, cwd=profile.code.path, env=environ, capture_output=True, check=True, timeout=_SECONDS
        )
        found = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return []
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []
