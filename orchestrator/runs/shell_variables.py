"""Variables that are set in the user's shell and that a run does not get."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from orchestrator.model.paths import is_there
from orchestrator.profile import Profile
from orchestrator.reads.undeclared import is_secret
from orchestrator.reads.undeclared_words import source_of
from orchestrator.runtime.acting import acts, looks_secret

_EVERYWHERE = frozenset(
    (
        "PATH", "HOME", "USER", "LOGNAME", "USERNAME", "SHELL", "PWD", "OLDPWD", "TERM", "COLORTERM",
        "HOSTNAME", "TMPDIR", "TEMP", "TMP", "MAIL", "EDITOR", "VISUAL", "PAGER", "DISPLAY",
        "WAYLAND_DISPLAY", "SHLVL", "_", "COLUMNS", "LINES", "PS1", "HOSTTYPE", "OSTYPE", "VIRTUAL_ENV",
        "VIRTUAL_ENV_PROMPT", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME", "PYTHONUNBUFFERED",
    )
)  # fmt: skip
_OF_A_SHELL = ("LC_", "XDG_", "SSH_", "CONDA_", "ORCH_", "DBUS_", "LESS", "BASH_")
"""Beginnings of names that every machine has for itself, or that orch sets."""
_SECRET_NAME = re.compile(r"KEY|AUTH|PASS|PRIVATE|COOKIE|DSN|(^|_)(PAT|PW|PWD)$", re.IGNORECASE)
_SECRET_VALUE = re.compile(
    r"://[^/\s]*@|-----BEGIN|[?&](sig|token|key)=|^(hf_|gh[pousr]_|sk-|AKIA|xox[bap]-)", re.I
)
_OF_THE_SYSTEM = re.compile(r"/(usr|bin|sbin|lib\w*|etc|dev|proc|sys)(/|$)")
"""Places that are no data, and that another machine has too."""


def advice_for_unsent(profile: Profile, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables of `environ` (this process's) that a run does not get, each with what to add to
    the profile.

    Left out are variables that every machine has, that orch sets, or whose values it compares. The advice has
    no value, but for a path that exists here: any other may be a secret, and logs keep the advice.
    """
    given = os.environ if environ is None else environ
    return {
        name: _advice(profile, name, value)
        for name, value in given.items()
        if name not in profile.train.env and not _is_expected(name)
    }


def _is_expected(name: str) -> bool:
    return name in _EVERYWHERE or name.startswith(_OF_A_SHELL) or acts(name)


def _advice(profile: Profile, name: str, value: str) -> str:
    path = None if _may_be_secret(name, value) else _path(value)
    if path is None or is_secret(path.name):
        return f"train.env: {{{name}: {{from_env: {name}}}}}"
    return _advice_for_path(profile, name, path)


def _may_be_secret(name: str, value: str) -> bool:
    return bool(
        looks_secret(name) or is_secret(name) or _SECRET_NAME.search(name) or _SECRET_VALUE.search(value)
    )


def _path(value: str) -> Path | None:
    """Return the file or folder of this computer that a value names by an absolute path."""
    if not value.startswith(("/", "~/")) or not value.isprintable() or _OF_THE_SYSTEM.match(value):
        return None
    path = Path(os.path.normpath(Path(value).expanduser()))
    return path if is_there(path) and (path.is_dir() or path.is_file()) else None


def _advice_for_path(profile: Profile, name: str, path: Path) -> str:
    project = profile.code.path
    if path.is_relative_to(project):
        return _set_to(name, os.path.relpath(path, project))
    for tree in profile.data:
        if tree.source == path:
            return _set_to(name, tree.target)
    if project.is_relative_to(path) or Path.home().is_relative_to(path):
        return f'train.env: {{{name}: "…"}}'
    source = json.dumps(source_of(path, profile.path), ensure_ascii=False)
    target = json.dumps(path.name, ensure_ascii=False)
    return f"data: [{{source: {source}, target: {target}}}]  and  {_set_to(name, path.name)}"


def _set_to(name: str, target: str) -> str:
    return f"train.env: {{{name}: {json.dumps(target, ensure_ascii=False)}}}"
