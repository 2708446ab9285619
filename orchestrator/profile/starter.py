"""Write a first profile for a project, from the contents of its folder. Deterministic; the result always
loads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.model import clouds
from orchestrator.profile.edit_data import scalar
from orchestrator.profile.resolve import default_lock, lock_command
from orchestrator.profile.start_command import NOTEBOOK_OUTPUT, StartKind, find_start, read_text
from orchestrator.profile.terraform import TerraformOutputs
from orchestrator.profile.values import parse_output

_MAKERS = ("prepare.py", "prepare_data.py", "make_data.py", "download.py", "download_data.py")
_ENVIRONMENTS = (".venv/bin/python", "venv/bin/python", "env/bin/python")
_DATA_NAMES = ("data", "dataset", "datasets", "inputs")
OUTPUT_NAMES = ("out", "output", "outputs", "models", "checkpoints", "artifacts", "results", "logs")

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
    named: Collection[str] = (),
) -> str:
    """Return the text of a profile for the project in `project`, to be written into that folder.

    It uses a machine on this computer; with `ground`, one in the cloud that terraform prepared. `data`: what
    its code was found to read, beside the usual folders. `checkpoints_of`: a function that returns the
    folders from which a script resumes. `named`: files and folders that configuration files of the project
    name.
    """
    start = find_start(project)
    code = start.code
    written = [NOTEBOOK_OUTPUT] if start.kind is StartKind.NOTEBOOK else []
    return _TEXT.format(
        name=_name(project),
        where=_where(ground) if ground else _cloud(clouds.LOCAL),
        region="" if ground and ground.region else _REGION,
        stack=_stack(project),
        data=_data(project, code, data, named),
        command=start.command,
        env=_env(start.below),
        outputs=_outputs(code, written),
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
    words = re.sub(r"[^a-z0-9]+", "-", project.resolve().name.lower()).lstrip("-0123456789")
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


def _env(below: str) -> str:
    path = f"PYTHONPATH: {below}" if below else ""
    return f"  env: {'{' + path + '}':<19}# SEED: 1, or for secrets NAME: {{from_env: NAME}}"


def _data(project: Path, code: str, found: Sequence[FoundData], named: Collection[str]) -> str:
    usual = [(name, _entry(project, name, code, name in named)) for name in _DATA_NAMES]
    declared = [name for name, entry in usual if entry]
    entries = [entry for _, entry in usual if entry]
    for each in found:
        if not any(each.source == name or each.source.startswith(f"{name}/") for name in declared):
            target = f"\n    target: {scalar(each.target)}" if each.target else ""
            entries.append(f"  - source: {scalar(each.source)}    # {each.why}{target}\n")
    if not entries:
        return "data: []                  # - {source: ~/images, target: data/images}\n"
    return _DATA + "".join(entries)


def _entry(project: Path, name: str, code: str, named: bool) -> str | None:
    """Return a data folder that is ignored by git or named in the script or `named` in its settings, or that
    can be created.
    """
    if (project / name).is_dir():
        ignored = {line.strip().strip("/") for line in read_text(project / ".gitignore").splitlines()}
        return f"  - source: {name}\n" if named or name in ignored or _names(code, name) else None
    maker = next((maker for maker in _MAKERS if _names(read_text(project / maker), name)), None)
    if maker is None or not _names(code, name):
        return None
    return f"  - source: {name}\n    prepare: python {maker}    # creates it here if it is absent\n"


def _outputs(code: str, written: Sequence[str]) -> str:
    found = [*written, *(name for name in OUTPUT_NAMES if _names(code, name) and name not in written)]
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
