"""The process that reads the files: it isolates itself, then prints one line of JSON for each file."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Dict, List, Optional, Sequence, TextIO, Tuple

from ..isolation import NEEDED, View, isolate
from . import ahead
from .explain import Cause, Refusal, explain
from .files import ModelFile, identify, shards
from .select import kind_of


def main(argv: Sequence[str]) -> int:
    """Print the isolation, then one answer per path. `argv` is one JSON object: view, layers, paths, imports
    (name -> file or None), and folder.

    If folder is not None, paths are read from a line of standard input while the framework is imported, and a
    line says whether it is ready; the process exits if standard input ends before that.
    """
    ask = json.loads(argv[0])
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # frameworks print, even from compiled code; standard output is for answers
    view = View(**{**ask["view"], "read": tuple(ask["view"]["read"])})
    isolation = isolate(view, tuple(ask["layers"]))
    _say(out, {"isolation": isolation})
    open_ = [name for name in NEEDED if not isolation[name]]
    sys.meta_path.append(Named(ask["imports"]))
    paths = ask["paths"]
    if ask["folder"] is not None:
        paths = ahead.paths_after_import(ask["folder"])
        _say(out, {"ready": paths is not None})
    for path in paths or ():
        refusal = _not_isolated(Path(path), open_)
        _say(out, _answer(path, refusal) if refusal else check(Path(path), tuple(ask["imports"])))
    return 0


def _not_isolated(path: Path, open_: List[str]) -> Optional[Refusal]:
    """Return why a file is not read if the parts `open_` are not isolated. Text files are read anyway,
    because only the standard library reads them."""
    if not open_ or _is_text(path):
        return None
    return Refusal(
        f"this system confines no {' and no '.join(_PARTS[name] for name in open_)}",
        "Check it on Linux with user namespaces, or with kernel 5.13 or newer: orch pull there.",
        Cause.NOT_ISOLATED,
    )


def _is_text(path: Path) -> bool:
    """Whether `identify` would call it a text, without opening it."""
    return kind_of(path.name, lambda _: b"") == "text" and path.is_file() and not shards(path)


_PARTS = {"files": "use of files", "network": "use of the network", "processes": "start of processes"}


def _say(out: TextIO, value: Dict[str, Any]) -> None:
    out.write(json.dumps(value, sort_keys=True) + "\n")
    out.flush()


class Named(importlib.abc.MetaPathFinder):
    """Import finder for the modules that the user named, each from the file that was found for it, and no
    others."""

    def __init__(self, files: Dict[str, Optional[str]]) -> None:
        self._files = {name.partition(".")[0]: file for name, file in files.items() if file}

    def find_spec(
        self,
        name: str,
        path: Optional[Sequence[str]],
        target: Optional[ModuleType] = None,  # noqa: ARG002
    ) -> Optional[importlib.machinery.ModuleSpec]:
        file = self._files.get(name) if path is None else None
        if file is None:
            return None
        inner = [str(Path(file).parent)] if Path(file).name == "__init__.py" else None
        return importlib.util.spec_from_file_location(name, file, submodule_search_locations=inner)


def check(path: Path, trusted: Tuple[str, ...] = ()) -> Dict[str, Any]:
    """Load the file and predict a fixed batch. Never raises: an error is the result's `reason`."""
    result: Dict[str, Any] = {"v": 1, "path": str(path), "loaded": False, "reason": None, "way_out": None}
    try:
        file = identify(path)
        result.update(sha256=file.sha256, kind=file.kind, saved_with=file.saved_with)
        if file.refusal:
            raise file.refusal
    except Refusal as refusal:
        return {**result, **_refused(refusal)}
    except Exception as error:  # a parser's: the content does not match its name or first bytes
        return {**result, **_refused(_broken(path, error))}
    try:
        return {**result, "loaded": True, **_read(file, trusted)}
    except Exception as error:
        return {**result, **_versions(), **_refused(explain(error, file))}


def _broken(path: Path, error: Exception) -> Refusal:
    what = re.sub(r"\s+", " ", f"{type(error).__name__}: {error}")[:200]
    return Refusal(f"{path.name} is damaged or cut off ({what})", "Copy it again and compare its sha256.")


def _answer(path: str, refusal: Refusal) -> Dict[str, Any]:
    return {"v": 1, "path": path, "loaded": False, **_refused(refusal)}


def _refused(refusal: Refusal) -> Dict[str, Any]:
    found: Dict[str, Any] = {"reason": refusal.reason, "way_out": refusal.way_out}
    return {**found, "not_checked": refusal.cause.value} if refusal.cause else found


def _read(file: ModelFile, trusted: Tuple[str, ...]) -> Dict[str, Any]:
    from . import prepare
    from .predict import load_and_predict, versions, weights_in_their_model

    for name in trusted if file.kind != "text" else ():
        _import(name)
    if file.predicts:
        return load_and_predict(file, trusted)
    if file.kind in ("pickle", "text"):
        return {**prepare.read(file, trusted), **versions()}
    return weights_in_their_model(file, trusted)


def _import(name: str) -> None:
    """Import a module that the user named. Raises Refusal if that fails: modules of the project that it
    imports have to be named too."""
    try:
        importlib.import_module(name)
    except Exception as error:
        raise Refusal(
            f"{name}, which train.check_imports names, cannot be imported ({type(error).__name__}: {error})",
            "It sees installed packages and the modules named there alone: name those that it needs as well.",
        ) from error


def _versions() -> Dict[str, Any]:
    from .predict import versions

    return versions()
