"""Explain why a model does not load, and what to do about it."""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, Optional

from ..space import is_full

if TYPE_CHECKING:
    from .files import ModelFile


LAMBDA = (
    "Use a layer class in a module of the project, and name that module in train.check_imports of the "
    "profile."
)
IMPORTS = (
    "Register the class with @keras.saving.register_keras_serializable() in a module of the project, and "
    "name that module in train.check_imports of the profile: it is then imported for the check."
)
ROOM = "Free space there, and pull the run again."
_MODULE = re.compile(r"[A-Za-z_][\w.]{0,200}\Z")
_READERS = ("numpy", "h5py")
_DAMAGE = ("UnpicklingError", "EOFError", "DataLossError", "BadZipFile", "BadGzipFile")
_CUT = ("Read less bytes than requested", "data was truncated", "Error -5 while decompressing")


class Cause(Enum):
    """Why a file was not checked. The value is in `not_checked` of a result."""

    WOULD_RUN_CODE = "would-run-code"
    WOULD_USE_FILES = "would-use-files"
    TOO_LARGE = "too-large"
    TIME = "time"
    ENDED = "ended"
    NO_READER = "no-reader"
    TOO_MANY = "too-many"
    NOT_ISOLATED = "not-isolated"
    MACHINE_GONE = "machine-gone"
    DISK_FULL = "disk-full"


_CAUSES = {
    Cause.WOULD_RUN_CODE: "would run code",
    Cause.WOULD_USE_FILES: "would use files other than the run's",
    Cause.TOO_LARGE: "too large",
    Cause.TIME: "out of time",
    Cause.ENDED: "the check was ended",
    Cause.NO_READER: "no reader for its format",
    Cause.TOO_MANY: "too many files",
    Cause.NOT_ISOLATED: "it cannot be isolated here",
    Cause.MACHINE_GONE: "its machine is gone",
    Cause.DISK_FULL: "the disk is full",
}


class Refusal(Exception):
    """Why a file does not load. `reason` is a clause that completes "the model does not load: …"; `way_out`
    is a sentence on what to do.

    With a `cause`, the file was not checked at all, and `detail` names what was refused.
    """

    def __init__(self, detail: str, way_out: str, cause: Optional[Cause] = None) -> None:
        super().__init__(detail)
        self.reason = detail if cause is None else f"not checked: {_CAUSES[cause]} ({detail})"
        self.way_out = way_out
        self.cause = cause


def no_reader(package: str) -> Refusal:
    """Return the refusal of a file that the check reads with a package that is not installed."""
    return Refusal(f"the package {package} is not installed", f"Add {package} to the lock.", Cause.NO_READER)


def way_to_import(module: object, registered: object) -> str:
    """Return what to do for a class of the project. `registered`: its name in the file, which has a package
    and ">" before it if the class is registered with Keras.
    """
    named = isinstance(module, str) and _MODULE.match(module) and module not in ("__main__", "builtins")
    if named and isinstance(registered, str) and ">" in registered:
        return (
            f"Name its module in the profile, train.check_imports: [{module}]. It registers the class, and "
            "is then imported for the check."
        )
    return IMPORTS


def explain(error: BaseException, file: ModelFile) -> Refusal:
    """Convert an exception of the loader to a Refusal. Keras has no error codes, so messages are matched, the
    most certain ones first."""
    if isinstance(error, Refusal):
        return error
    text = re.sub(r"\s+", " ", str(error)).strip()
    if is_full(error):
        return Refusal("no space for its scratch folder", ROOM, Cause.DISK_FULL)
    if isinstance(error, ModuleNotFoundError) and error.name in _READERS:
        return no_reader(str(error.name))
    if isinstance(error, ModuleNotFoundError):
        return Refusal(
            f"the package {error.name} is not installed here",
            "Use the stack of the lock with which it was trained.",
        )
    if isinstance(error, MemoryError) or type(error).__name__ == "ResourceExhaustedError":
        return Refusal(
            "more memory than the check may take", "Load it on a machine with more memory.", Cause.TOO_LARGE
        )
    if type(error).__name__ in _DAMAGE or any(words in text for words in _CUT):
        return Refusal(
            f"{file.path.name} is damaged or cut off ({text[:200]})", "Copy it again and compare its sha256."
        )
    if "safe_mode" in text or "unsafe deserialization" in text:
        return Refusal("a Lambda layer, that is Python code in the file", LAMBDA, Cause.WOULD_RUN_CODE)
    custom = _custom_object(text)
    if custom and _another_major(file):
        return Refusal(
            f"it uses {custom}, which Keras {_here()} does not have: it was saved by Keras "
            f"{file.saved_with}, and the class was dropped since, or is defined in your code",
            f"Load it with keras=={file.saved_with} (tf_keras beside Keras 3), and replace the layer; or "
            f"for a class of your own: {IMPORTS}",
        )
    if custom:
        return Refusal(custom, IMPORTS, Cause.WOULD_RUN_CODE)
    return _by_version(error, text, file)


def _custom_object(text: str) -> str:
    patterns = (
        r"Could not locate (?:class|function|object) '?([\w.>]+)'?",
        r"Unknown (?:layer|loss|metric|optimizer|object|initializer|\w+ function)?"
        r":? ?'?([\w.>]+)'?\. (?:Please )?ensure",
        r"Unknown (?:layer|loss function|metric function|object): ?'?([\w.>]+)",
    )
    for pattern in patterns:
        match = re.search(pattern, text)
        if match:
            return match.group(1).split(">")[-1]
    return ""


def _by_version(error: BaseException, text: str, file: ModelFile) -> Refusal:
    here = _here()
    short = text[:300] + ("…" if len(text) > 300 else "")
    if file.saved_with and here and _release(file.saved_with) != _release(here):
        return Refusal(
            f"it was saved by Keras {file.saved_with}, and here is Keras {here} "
            f"({type(error).__name__}: {short})",
            f"Install keras=={file.saved_with} here, as the lock says, or save it again with Keras {here}.",
        )
    if isinstance(error, OSError):
        return Refusal(
            f"{file.path.name} is damaged or cut off ({short})", "Copy it again and compare its sha256."
        )
    return Refusal(f"{type(error).__name__}: {short}", "Load it in the environment in which it was saved.")


def _here() -> str:
    from .predict import versions

    return str(versions().get("keras_version") or "")


def _another_major(file: ModelFile) -> bool:
    here = _here()
    return bool(file.saved_with and here) and file.saved_with.split(".")[0] != here.split(".")[0]


def _release(version: str) -> str:
    """Return the major and minor number."""
    return ".".join(version.split(".")[:2])
