"""Write a first profile for a project, from the contents of its folder. Deterministic; the result always
loads.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.model import clouds
from orchestrator.profile.edit_data import scalar
from orchestrator.profile.resolve import default_lock, lock_command
from orchestrator.profile.terraform import TerraformOutputs
from orchestrator.profile.values import parse_output, parse_target

_NO_SCRIPTS = ("setup.py", "conftest.py", "__init__.py", "noxfile.py")
_SCRIPTS = ("train.py", "main.py", "run.py", "src/train.py", "src/main.py", "scripts/train.py")
_MAKERS = ("prepare.py", "prepare_data.py", "make_data.py", "download.py", "download_data.py")
_ENVIRONMENTS = (".venv/bin/python", "venv/bin/python", "env/bin/python")
_DATA_NAMES = ("data", "dataset", "datasets", "inputs")
OUTPUT_NAMES = ("out", "output", "outputs", "models", "checkpoints", "artifacts", "results", "logs")
_MAX_SCRIPT = 1 << 20

_TEXT = """\
# What `orch` trains, and where. Every key, with its meaning: orch schema profile
version: 1
name: {name}

{where}
resources:
  cpus: 2                 # exactly 2; `2+` for at least 2
  memory: 4 GiB           # exactly; `4 GiB+` for at least
  disk: 20 GiB            # deleted with the machine
# On a cloud:
{region}# resources:
#   accelerator: T4       # or L4:2, or {{memory: 16 GiB+, count: 1}}
#   spot: true            # cheaper, but may be preempted
# max_price: 1.00         # US dollars an hour

max_duration: 4h          # the machine powers itself off then, whatever happens
idle_duration: 30m        # and after this time without use

stack:
{stack}
code:
  path: .                 # everything is sent, except .gitignore, .orchignore and these patterns:
  ignore: []

{data}
train:
  command: {command}
{env}
{outputs}{checkpoints}
parity:
  steps: 3                # compared in full with the same steps here
  # on_mismatch: stop     # stop for rounding, too; default: DIVERGENT, UNSTABLE and NOT COMPARED stop
"""


_NO_LOCK = """\
  # No lock with hashes was found. Make one: {command}
  # lock: requirements.lock"""
_DATA = """\
data:                     # sent once, shared by all runs; `target:` where the script expects it elsewhere
"""


@dataclass(frozen=True)
class FoundData:
    """Data to declare: `source` as the profile writes it, `target` (None: its default), and `why`."""

    source: str
    target: str | None
    why: str


_REGION = "# region: us-east-1       # default: the cheapest\n"


def starter(
    project: Path,
    ground: TerraformOutputs | None = None,
    data: Sequence[FoundData] = (),
    checkpoints_of: Callable[[str], Sequence[str]] = lambda _: (),
) -> str:
    """Return the text of a profile for the project in `project`, to be written into that folder.

    It uses a machine on this computer; with `ground`, one in the cloud that terraform prepared. `data`: what
    its code was found to read, beside the usual folders. `checkpoints_of`: a function that returns the
    folders from which a script resumes.
    """
    script = _script(project)
    entry = _console_script(project)
    code = _read(project / script if script else entry.module)
    return _TEXT.format(
        name=_name(project),
        where=_where(ground) if ground else _cloud(clouds.LOCAL),
        region="" if ground and ground.region else _REGION,
        stack=_stack(project),
        data=_data(project, code, data),
        command=f"python {shlex.quote(script)}" if script else entry.command,
        env=_env("" if script else entry.below),
        outputs=_outputs(code),
        checkpoints=_checkpoints(checkpoints_of(code)),
    )


def _cloud(name: str) -> str:
    known = ", ".join((clouds.LOCAL, *clouds.elsewhere()))
    cheapest = "the cheaper of both" if len(clouds.elsewhere()) == 2 else "the cheapest of them"
    return f"cloud: {name:<19}# {known} or {clouds.ANY} ({cheapest})"


def _where(ground: TerraformOutputs) -> str:
    lines = [_cloud(ground.cloud)]
    if ground.region:
        lines.append(f"region: {ground.region:<17} # where terraform made the network")
    return "\n".join([*lines, *(f"# The shell that uses this: {export}" for export in ground.exports)])


def _name(project: Path) -> str:
    words = re.sub(r"[^a-z0-9]+", "-", project.resolve().name.lower()).strip("-0123456789")
    return words[:40].strip("-") or "project"


def _stack(project: Path) -> str:
    lock = default_lock(project)
    lines = [f"  lock: {lock.name}" if lock else _NO_LOCK.format(command=lock_command(project))]
    python = next((path for path in _ENVIRONMENTS if (project / path).exists()), None)
    if python:
        lines.append(f"  python: {python}    # the environment in which you work")
    lines.append(
        "  delivery: auto          # push the packages from here, download them there, or what works"
    )
    return "\n".join(lines) + "\n"


def _script(project: Path) -> str | None:
    known = next((name for name in _SCRIPTS if (project / name).is_file()), None)
    if known:
        return known
    here = [path for path in sorted(project.glob("*.py")) if path.name not in _NO_SCRIPTS]
    runnable = [path for path in here if "__main__" in _read(path)] or (here if len(here) == 1 else [])
    named = [path.name for path in runnable if _plain(path.name)]
    return next((name for name in named if "train" in name), next(iter(named), None))


@dataclass(frozen=True)
class _Entry:
    """The command that starts a package. `below`: the folder to add to the import path; "" if none is
    needed.
    """

    command: str
    module: Path
    below: str = ""


_NO_ENTRY = _Entry("python train.py    # no script was found; name yours", Path())


def _console_script(project: Path) -> _Entry:
    """Return what the console scripts of pyproject.toml start: the one named for training, else the only one
    whose module is in the project. The machine has the package's code, but the package is not installed
    there.
    """
    found = {name: entry for name, entry in _console_scripts(project) if entry is not None}
    chosen = next((name for name in found if "train" in name), next(iter(found)) if len(found) == 1 else None)
    return found[chosen] if chosen else _NO_ENTRY


def _console_scripts(project: Path) -> Iterator[tuple[str, _Entry | None]]:
    try:
        scripts = tomllib.loads(_read(project / "pyproject.toml")).get("project", {}).get("scripts", {})
        items = [(str(name), str(target)) for name, target in scripts.items()]
    except (tomllib.TOMLDecodeError, AttributeError):
        return
    for name, target in items:
        yield name, _entry_of(project, *(part.strip() for part in target.partition(":")[::2]))


def _entry_of(project: Path, module: str, function: str) -> _Entry | None:
    """Return how to start `function` of a module of the project; None if it is not there."""
    if not re.fullmatch(r"[A-Za-z_][\w.]*", module) or not re.fullmatch(r"[A-Za-z_][\w.]*", function):
        return None
    for below in ("", "src"):
        file = project / below / (module.replace(".", "/") + ".py")
        if file.is_file():
            runs = "__main__" in _read(file)
            start = f"import sys, {module} as m; sys.exit(m.{function}())"
            return _Entry(f"python -m {module}" if runs else f'python -c "{start}"', file, below)
    return None


def _env(below: str) -> str:
    path = f"PYTHONPATH: {below}" if below else ""
    return f"  env: {'{' + path + '}':<19}# SEED: 1, or for secrets NAME: {{from_env: NAME}}"


def _data(project: Path, code: str, found: Sequence[FoundData]) -> str:
    usual = [(name, _entry(project, name, code)) for name in _DATA_NAMES]
    declared = [name for name, entry in usual if entry]
    entries = [entry for _, entry in usual if entry]
    for each in found:
        if not any(each.source == name or each.source.startswith(f"{name}/") for name in declared):
            target = f"\n    target: {scalar(each.target)}" if each.target else ""
            entries.append(f"  - source: {scalar(each.source)}    # {each.why}{target}\n")
    if not entries:
        return "data: []                  # - {source: ~/images, target: data/images}\n"
    return _DATA + "".join(entries)


def _entry(project: Path, name: str, code: str) -> str | None:
    """Return a data folder that is ignored by git or named in the script, or that can be created."""
    if (project / name).is_dir():
        ignored = {line.strip().strip("/") for line in _read(project / ".gitignore").splitlines()}
        return f"  - source: {name}\n" if name in ignored or _names(code, name) else None
    maker = next((maker for maker in _MAKERS if _names(_read(project / maker), name)), None)
    if maker is None or not _names(code, name):
        return None
    return f"  - source: {name}\n    prepare: python {maker}    # creates it here if it is absent\n"


def _outputs(code: str) -> str:
    found = [name for name in OUTPUT_NAMES if _names(code, name)]
    if not found:
        return "  # outputs: [out]        # files to download; default: all that the run creates\n"
    return f"  outputs: [{', '.join(found)}]\n"


def _checkpoints(found: Sequence[str]) -> str:
    names = [name for name in found if _is_output(name)]
    if not names:
        return "  # checkpoints: [ckpt]   # what it resumes from; copied whenever complete\n"
    listed = ", ".join(scalar(name) for name in names)
    return f"  checkpoints: [{listed}]    # what it resumes from; copied whenever complete\n"


def _names(code: str, folder: str) -> bool:
    """Whether the script has a string that is the folder or a path into it. Keys of mappings do not count."""
    text = rf"""(["'])(\./)?{folder}(/[^"'\n]*)?\1"""
    return re.search(rf"(?<![\w\])]\[)(?<!\.get\(){text}(?!\s*:)", code) is not None


def _is_output(name: str) -> bool:
    """Whether `name` can be written in the profile unchanged as an output."""
    try:
        return name.isprintable() and parse_output(name) == name and not set("*?[") & set(name)
    except ValueError:
        return False


def _plain(name: str) -> bool:
    """Whether `name` needs no quotes in YAML or in a command."""
    return re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name) is not None and parse_target(name) == name


def _read(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(_MAX_SCRIPT).decode("utf-8", "replace")
    except OSError:
        return ""
