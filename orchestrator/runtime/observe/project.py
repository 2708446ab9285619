"""Find out which files belong to the project, and give them names that are the same on every machine."""

# ruff: noqa: PTH100, PTH110, PTH111, PTH114, PTH117, PTH118

from __future__ import annotations

import hashlib
import os
import re
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

_SYSTEM = (
    "/proc/", "/sys/", "/dev/", "/etc/", "/usr/", "/lib/", "/lib32/", "/lib64/", "/bin/", "/sbin/", "/run/",
)  # fmt: skip
_GENERATED = "__autograph_generated_file"
_TEMPORARY = ("/tmp/", "/var/tmp/", "/dev/shm/")

Root = Tuple[str, str]
"""Name of a folder (or file), "" for the project's own folders, and its absolute path."""


def script() -> Optional[Path]:
    """Return the program's file; None if there is none (-c, a shell)."""
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    return Path(main).resolve() if main else None


def script_facts() -> Dict[str, str]:
    """Return `name` and `sha256` of the program's file, "" if there is none."""
    path = script()
    return {"name": path.name if path else "", "sha256": sha256(path) if path else ""}


def project_modules() -> Dict[str, Path]:
    """Return path -> file of every imported module that is not part of Python, an installed package or orch.

    For modules in the script's folder or the working folder, paths are relative to it; for others
    (PYTHONPATH, editable installs) they are made from the dotted name, so that they are the same on two
    machines. Installed packages are left out, because the lock pins them.
    """
    main = script()
    folders = [folder for folder in (main and main.parent, Path.cwd()) if folder and folder != Path("/")]
    found: Dict[str, Path] = {}
    for name, file in module_files():
        if not file.endswith((".py", ".so")) or name.startswith(_GENERATED) or of_environment(file):
            continue
        path = Path(file)
        relative = next((path.relative_to(root) for root in folders if root in path.parents), None)
        if relative is None and of_the_system(file):
            continue
        relative = relative or _dotted(name, path)
        if relative.parts[0] != ".venv":
            found[relative.as_posix()] = path
    return dict(sorted(found.items()))


def module_files() -> List[Tuple[str, str]]:
    """Return name and real path of every imported module that has a file: with TensorFlow some thousand."""
    files = [(name, _file_of(module)) for name, module in list(sys.modules.items())]
    return [(name, _real(str(file))) for name, file in files if file]


def _file_of(module: Any) -> Any:
    """Return `__file__` without asking the module: one that loads itself when it is used is not loaded."""
    try:
        return object.__getattribute__(module, "__dict__").get("__file__")
    except AttributeError:
        return None


def _real(path: str) -> str:
    """Return what os.path.realpath does, with the real path of each folder read only once."""
    if os.path.islink(path) or not os.path.isabs(path):
        return os.path.realpath(path)
    folder, name = os.path.split(path)
    return os.path.join(_real_folder(folder), name)


@lru_cache(maxsize=None)
def _real_folder(folder: str) -> str:
    return os.path.realpath(folder)


def _dotted(name: str, path: Path) -> Path:
    """Return the path that a module would have in a folder of its own."""
    place = Path(*name.split("."))
    return place / path.name if path.name == "__init__.py" else place.with_name(path.name)


def roots() -> List[Root]:
    """Return the places of data, the longest path first: what arguments name, the script's folder, the
    working folder, targets of links in these, and the home folder ("~").

    Below a folder given as `--data DIR`, names begin with "--data/", whatever DIR is.
    """
    main = script()
    own = [str(Path.cwd()), *([str(main.parent)] if main else [])]
    found = [("", folder) for folder in own]
    found += [root for root in _of_arguments(sys.argv[1:]) if root[1] not in own]
    for folder in own:
        found += _links(folder)
    found.append(("~", os.path.abspath(Path.home())))
    return sorted(found, key=lambda root: -len(root[1]))


def name_of_file(path: str, known: List[Root]) -> str:
    """Return the name of an absolute path: relative to the first root that contains it, else the path itself.
    A path that leads into the project through a link from outside belongs to the project."""
    found = _within(path, known)
    if found is None or found.startswith("~"):
        found = _within(os.path.realpath(path), [root for root in known if not root[0]]) or found
    return found or path


def _within(path: str, known: List[Root]) -> Optional[str]:
    for name, folder in known:
        if path == folder:
            return name or "."
        if path.startswith(folder.rstrip("/") + "/"):
            return f"{name}/{path[len(folder) :].lstrip('/')}".lstrip("/")
    return None


def of_the_system(path: str) -> bool:
    """Whether a path belongs to a device, the kernel or the system. /dev/shm does not: it holds data."""
    return path.startswith(_SYSTEM) and not path.startswith("/dev/shm/")


def outside(path: str, known: List[Root], *, made: bool) -> bool:
    """Whether a path is in no root (except "~"), and is the system's, or a temporary file that the program
    made."""
    inside = [
        folder for name, folder in known if name != "~" and f"{path}/".startswith(f"{folder.rstrip('/')}/")
    ]
    temporary = (*_TEMPORARY, os.environ.get("TMPDIR", "/tmp").rstrip("/") + "/")
    return not inside and (of_the_system(path) or (made and path.startswith(temporary)))


def library_cache(path: str, known: List[Root]) -> bool:
    """Whether a file lies where libraries keep what they can recreate: compiled functions, lists of fonts,
    notebook state.

    False for files of a project inside such a folder, but not for such a folder inside a project, e.g. if the
    home folder is the project. Also False for data and weights that a hub's library downloaded there.
    """
    if fetched_from(path):
        return False
    own = [folder for name, folder in known if not name and path.startswith(f"{folder.rstrip('/')}/")]
    home = os.path.expanduser("~")
    places = [f"{home}/{place}" for place in _CACHES] + [
        os.environ.get(name, "") for name in _CACHE_VARIABLES
    ]
    caches = [os.path.abspath(place) + "/" for place in places if place]
    return path.endswith((".nbi", ".nbc")) or any(
        path.startswith(cache) and not any(f"{folder}/".startswith(cache) for folder in own)
        for cache in caches
    )


def fetched_from(path: str) -> str:
    """Return the folder of the data set or model that a library downloaded and the file belongs to; "" for
    other files, and for the library's own records: refs, locks, descriptions."""
    for store in _FETCHED:
        found = store.match(path)
        if found and not path.endswith(_ACCOUNTS):
            return found.group(1)
    return ""


_FETCHED = tuple(
    re.compile(f"(.*/{place})(?:/.*)?\\Z")
    for place in (
        "(?:models|datasets|spaces)--[^/]+(?=/(?:snapshots|blobs)/.)",
        r"\.cache/huggingface/datasets/(?!downloads/)[^/]+(?=/.)",
        r"\.cache/huggingface/datasets/downloads",
        r"\.cache/torch/hub/checkpoints",
        r"\.cache/torch/sentence_transformers",
        r"\.cache/kagglehub/(?:datasets|models|competitions|notebooks)(?:/[^/.][^/]*)*(?=/versions/|/[0-9]+/.)",
        r"\.keras/(?:datasets|models)",
    )
)
"""Folders of the Hugging Face hub and its datasets, PyTorch, Kaggle and Keras."""
_ACCOUNTS = (
    ".lock",
    ".incomplete",
    ".complete",
    "/dataset_info.json",
    "/dataset_dict.json",
    "/state.json",
    "/LICENSE",
)

_CACHES = (
    ".cache", ".config/matplotlib", ".matplotlib", ".nv", ".ipython", ".jupyter", ".local/share/jupyter",
)  # fmt: skip
_CACHE_VARIABLES = ("XDG_CACHE_HOME", "MPLCONFIGDIR", "NUMBA_CACHE_DIR", "CUDA_CACHE_PATH", "IPYTHONDIR")


def of_environment(path: str) -> bool:
    """Whether a file belongs to Python, its packages, or orch."""
    return path.startswith(_ENVIRONMENT) or any(part in path for part in _INSTALLED)


def _environment() -> Tuple[str, ...]:
    given = {sys.prefix, sys.base_prefix, str(Path(__file__).resolve().parent.parent)}
    found = {*given, *(os.path.realpath(folder) for folder in given)} - {"/usr", "/usr/local", "/"}
    return tuple(folder + "/" for folder in found)


_ENVIRONMENT = _environment()
_INSTALLED = ("/site-packages/", "/dist-packages/", "/__pycache__/")


def sha256(path: Path) -> str:
    """Return the sha256 of a small file; "" if it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def _of_arguments(arguments: List[str]) -> List[Root]:
    """Return the existing files and folders that arguments name, called by their option, or "@" and their
    position."""
    found, option = [], ""
    for place, argument in enumerate(arguments, 1):
        given, equals, value = argument.partition("=")
        if argument.startswith("-") and not equals:
            option = argument
            continue
        name, text = (given, value) if argument.startswith("-") else (option or f"@{place}", argument)
        option = ""
        path = os.path.abspath(os.path.expanduser(text))
        if text and path != "/" and os.path.exists(path):
            found.append((name, path))
    return found


def _links(folder: str) -> List[Root]:
    """Return the links in a folder: of a file opened through one, the system may know only the target."""
    try:
        entries = [entry for entry in os.scandir(folder) if entry.is_symlink()]
    except OSError:
        return []
    return [(entry.name, os.path.realpath(entry.path)) for entry in entries]
