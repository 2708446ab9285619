"""Parse a recorded command line: a Python program, or something else that starts one."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import UsageError

_PLAIN = re.compile(r"python(\d+(\.\d+)?)?")
_HARMLESS = frozenset(("-u", "-B", "-s"))


@dataclass(frozen=True)
class Program:
    """`python PROGRAM ARGUMENTS…`, or with `module`, `python -m PROGRAM ARGUMENTS…`."""

    name: str
    arguments: tuple[str, ...]
    module: bool


_PYTHON = re.compile(r"/[^\s'\"=:]*/python(\d+(\.\d+)?)?(?![\w/.-])")
_BARE = re.compile(r"(?<![\w/.-])python(\d+(\.\d+)?)?(?![\w/.=-])")


def normalise(argv: Sequence[str], cwd: Path) -> tuple[str, ...]:
    """Return a command line without the paths of this computer: the working folder's and the
    interpreter's.
    """
    return tuple(_PYTHON.sub("python", word.replace(str(cwd), ".")) for word in argv)


def localise(argv: Sequence[str], cwd: Path, wanted: Sequence[str]) -> tuple[str, ...]:
    """Return the normalised command `wanted` with the paths and the interpreter of `argv`."""
    own = dict(zip(normalise(argv, cwd), argv, strict=True))
    found = next((match[0] for match in map(_PYTHON.search, argv) if match), "python")
    return tuple(own.get(word, _BARE.sub(found, word)) for word in wanted)


def module_beside(module: str, own: str, other: str) -> str:
    """Return the module name of the file `other` in the package of `module`, whose file is `own`."""
    package = (
        module if own == "__main__.py" != f"{module.rpartition('.')[2]}.py" else module.rpartition(".")[0]
    )
    return f"{package}.{other.removesuffix('.py')}".lstrip(".")


def folder_of(argv: Sequence[str], cwd: Path) -> Path | None:
    """Return the folder of a command line's program; None if unknown."""
    program = program_of(argv)
    if program is None:
        return None
    if not program.module:
        return (cwd / program.name).resolve().parent
    place = cwd.joinpath(*program.name.split("."))
    if (place / "__main__.py").is_file():
        return place
    return place.parent if place.with_name(f"{place.name}.py").is_file() else None


def program_of(argv: Sequence[str]) -> Program | None:
    """Return the program of a command line; None if it does not simply run Python."""
    if not argv or not _PLAIN.fullmatch(Path(argv[0]).name):
        return None
    words = list(argv[1:])
    while words and words[0] in _HARMLESS:
        words.pop(0)
    if words[:1] == ["-m"] and len(words) > 1:
        return Program(words[1], tuple(words[2:]), True)
    if not words or words[0].startswith("-"):
        return None
    return Program(words[0], tuple(words[1:]), False)


def command_python(command: Sequence[str]) -> str:
    """Return the absolute path of the interpreter of a command: the command itself, or the first `python`
    on PATH.
    """
    if not command:
        raise UsageError("No command was given.", next_command="orch record -- python train.py")
    found = shutil.which(command[0])
    if found is None:
        raise UsageError(f"{command[0]!r} is not a program that can be found on PATH.")
    found = str(Path.cwd() / found)  # links are not resolved, because an environment's interpreter is one
    if Path(found).name.startswith("python"):
        return found
    beside = Path(found).parent / "python"  # a console script is beside its interpreter
    return str(beside) if beside.exists() else shutil.which("python") or sys.executable
