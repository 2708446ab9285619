"""Find how a project's training is started: its script, its package's console script, or its notebook."""

from __future__ import annotations

import ast
import difflib
import enum
import json
import os
import re
import shlex
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from orchestrator.model.syntax import tree_of
from orchestrator.profile.training_code import trains_when_started
from orchestrator.profile.values import parse_target

_NO_SCRIPTS = ("setup.py", "conftest.py", "__init__.py", "noxfile.py")
_SCRIPTS = ("train.py", "main.py", "run.py", "src/train.py", "src/main.py", "scripts/train.py")
_NO_CODE = frozenset(
    ("__pycache__", "node_modules", "site-packages", "build", "dist", "test", "tests", "runs", "env", "venv")
)
"""Folders that contain no script of the project's own."""
_DATA = frozenset(("data", "dataset", "datasets", "images", "inputs"))
"""Folders that are looked at last, because they may have very many files."""
_MOST_FILES = 2000
_MOST_ENTRIES = 200_000
"""Most Python files that are looked at, and most files of all kinds that are listed."""
_MAX_SCRIPT = 1 << 20
_MAX_NOTEBOOK = 1 << 25
_GUARD = re.compile(
    r"""^if\b[ \t(]*(__name__\s*==\s*["']__main__["']|["']__main__["']\s*==\s*__name__)""", re.MULTILINE
)
_TRAINS = re.compile(r"(^|_)train")
_LISTED = 3
NOTEBOOK_OUTPUT = "out"
"""The folder into which the executed notebook is written."""


class StartKind(enum.Enum):
    """What starts the training."""

    SCRIPT = "script"
    NOTEBOOK = "notebook"
    NONE = "none"


@dataclass(frozen=True)
class Start:
    """The command that starts the training, and the file that has its code.

    `below`: the folder to add to the import path; "" if none is needed. `candidates`: commands, the likeliest
    first, if several files may be the script.
    """

    kind: StartKind
    command: str
    file: Path | None = None
    below: str = ""
    candidates: tuple[str, ...] = ()

    @property
    def code(self) -> str:
        """The text of the script, or of the notebook's cells."""
        if self.file is None:
            return ""
        return notebook_code(self.file) if self.kind is StartKind.NOTEBOOK else read_text(self.file)


def find_start(project: Path) -> Start:
    """Return how the project's training is started; of kind NONE with an example if nothing was found."""
    known = next((name for name in _SCRIPTS if (project / name).is_file()), None)
    top = [path.name for path in sorted(project.glob("*.py")) if _may_start(path)]
    runnable = [name for name in top if "__main__" in read_text(project / name)]
    training = [name for name in runnable if _trains(project / name)]
    named = known or next((n for n in runnable if "train" in n), next(iter(training or runnable), None))
    if named:
        return _by_path(project, named)
    deep = tuple(_start_of(project, name) for name in _deep_scripts(project))
    entry = _console_script(project)
    if len(top) == 1 and not deep:
        return _by_path(project, top[0])
    if entry is not None:
        return entry
    if len(deep) == 1:
        return deep[0]
    return (None if deep else _notebook(project)) or _nothing(tuple(each.command for each in deep))


def nearest_scripts(project: Path, name: str) -> list[str]:
    """Return Python files of the project, the ones most like `name` first, relative to it."""
    wanted = PurePosixPath(name).name

    def order(path: str) -> tuple[float, int, str]:
        alike = difflib.SequenceMatcher(None, wanted, PurePosixPath(path).name).ratio()
        return (-alike, path.count("/"), path)

    return sorted(_files(project, ".py"), key=order)[:_LISTED]


def read_text(path: Path, most: int = _MAX_SCRIPT) -> str:
    """Return the first `most` bytes of a file as text; "" if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(most).decode("utf-8", "replace")
    except OSError:
        return ""


def notebook_code(path: Path) -> str:
    """Return the code of a notebook's cells, without magics and shell lines; "" if it is no notebook."""
    try:
        cells = json.loads(read_text(path, _MAX_NOTEBOOK))["cells"]
        code = [cell["source"] for cell in cells if cell.get("cell_type") == "code"]
        text = "\n".join("".join(source) for source in code)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ""
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith(("%", "!")))


def start_of_script(project: Path, name: str) -> str:
    """Return the command that starts the file `name` of the project, by its path or as a module."""
    return _start_of(project, name).command


def _nothing(candidates: tuple[str, ...]) -> Start:
    example = "python train.py    # no script was found; name yours"
    return Start(StartKind.NONE, example, candidates=candidates[:_LISTED])


def _by_path(project: Path, name: str, below: str = "") -> Start:
    return Start(StartKind.SCRIPT, f"python {shlex.quote(name)}", project / name, below)


def _may_start(path: Path) -> bool:
    """Whether a file may be a script whose name needs no quotes in YAML or in a command."""
    return path.name not in _NO_SCRIPTS and _plain(path.name) and not path.name.startswith("test_")


def _plain(name: str) -> bool:
    return re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name) is not None and parse_target(name) == name


# ---------------------------------------------------------------- scripts anywhere in the project


def _files(project: Path, suffix: str) -> Iterator[str]:
    """Yield files that may start something, relative to the project, by folder."""
    entries = found = 0
    for folder, names, files in os.walk(project):
        inside = (name for name in names if _may_contain(Path(folder, name)))
        names[:] = sorted(inside, key=lambda name: (name in _DATA, name))
        entries += len(files)
        for name in sorted(each for each in files if each.endswith(suffix)):
            if _may_start(Path(name)):
                found += 1
                yield Path(folder, name).relative_to(project).as_posix()
        if found > _MOST_FILES or entries > _MOST_ENTRIES:
            return


def _may_contain(folder: Path) -> bool:
    return folder.name not in _NO_CODE and _plain(folder.name) and not (folder / "pyvenv.cfg").exists()


def _deep_scripts(project: Path) -> list[str]:
    """Return the files that may be the script: those named for training, else those with a main guard, of
    which the only one that trains is the script, else those that train without a guard.
    """
    files = list(_files(project, ".py"))
    guarded = [name for name in files if _GUARD.search(read_text(project / name))]
    named = [name for name in files if _TRAINS.search(PurePosixPath(name).stem)]
    if named:
        return [name for name in named if name in guarded] or named
    training = [name for name in guarded or files if _trains(project / name)]
    return training if len(training) == 1 else guarded or training


def _trains(path: Path) -> bool:
    """Whether the file trains something when it is started."""
    return trains_when_started(read_text(path))


def _start_of(project: Path, name: str) -> Start:
    """Return the start that suits the imports of a file: by path if it imports a file beside it by its plain
    name, as a module if it imports by package or lies in one.
    """
    path = PurePosixPath(name)
    tops, is_relative = _imports(read_text(project / name))
    folders = [folder for folder in path.parents if _has(project / folder, tops)]
    root = next((folder for folder in folders if folder != path.parent), None)
    if path.parent in folders or not _as_module(project, path, is_relative or root is not None):
        below = "" if root is None else root.as_posix()
        return _by_path(project, name, below)
    start = root or PurePosixPath()
    module = ".".join(path.relative_to(start).with_suffix("").parts)
    below = "" if start == PurePosixPath() else start.as_posix()
    return Start(StartKind.SCRIPT, f"python -m {module}", project / name, below)


def _as_module(project: Path, path: PurePosixPath, by_package: bool) -> bool:
    is_package = path.parent != PurePosixPath() and (project / path.parent / "__init__.py").is_file()
    return (by_package or is_package) and all(part.isidentifier() for part in path.with_suffix("").parts)


def _has(folder: Path, modules: Sequence[str]) -> bool:
    return any((folder / f"{name}.py").is_file() or _is_package(folder / name) for name in modules)


def _is_package(folder: Path) -> bool:
    return folder.is_dir() and any(folder.rglob("*.py"))


def _imports(code: str) -> tuple[list[str], bool]:
    """Return the first names of the modules that a file imports, and whether it has relative imports."""
    try:
        nodes = list(ast.walk(tree_of(code)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return [], False
    froms = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in froms if node.module and not node.level]
    return [name.partition(".")[0] for name in names], any(node.level for node in froms)


# ---------------------------------------------------------------- notebooks


def _notebook(project: Path) -> Start | None:
    """Return how to execute the only notebook, or the only one named for training."""
    files = list(_files(project, ".ipynb"))
    named = [name for name in files if _TRAINS.search(PurePosixPath(name).stem)]
    found = named if len(named) == 1 else files
    commands = tuple(
        f"python -m nbconvert --to notebook --execute {name} --output-dir {NOTEBOOK_OUTPUT}" for name in found
    )
    if len(found) == 1:
        return Start(StartKind.NOTEBOOK, commands[0], project / found[0])
    return _nothing(commands) if found else None


# ---------------------------------------------------------------- console scripts


def _console_script(project: Path) -> Start | None:
    """Return what the console scripts of pyproject.toml start: the one named for training, else the only one
    whose module is in the project. The machine has the package's code, but the package is not installed
    there.
    """
    found = {name: entry for name, entry in _console_scripts(project) if entry is not None}
    chosen = next((name for name in found if "train" in name), next(iter(found)) if len(found) == 1 else None)
    return found[chosen] if chosen else None


def _console_scripts(project: Path) -> Iterator[tuple[str, Start | None]]:
    try:
        scripts = tomllib.loads(read_text(project / "pyproject.toml")).get("project", {}).get("scripts", {})
        items = [(str(name), str(target)) for name, target in scripts.items()]
    except (tomllib.TOMLDecodeError, AttributeError):
        return
    for name, target in items:
        yield name, _entry_of(project, *(part.strip() for part in target.partition(":")[::2]))


def _entry_of(project: Path, module: str, function: str) -> Start | None:
    """Return how to start `function` of a module of the project; None if it is not there."""
    if not re.fullmatch(r"[A-Za-z_][\w.]*", module) or not re.fullmatch(r"[A-Za-z_][\w.]*", function):
        return None
    for below in ("", "src"):
        file = project / below / (module.replace(".", "/") + ".py")
        if file.is_file():
            runs = "__main__" in read_text(file)
            start = f"import sys, {module} as m; sys.exit(m.{function}())"
            return Start(
                StartKind.SCRIPT, f"python -m {module}" if runs else f'python -c "{start}"', file, below
            )
    return None
