"""ORC731-734: state that is lost when a script resumes from its own checkpoint."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from orchestrator.lint.checkpoints import BACKUP, KEEP, saved_to
from orchestrator.lint.datasets import is_model
from orchestrator.lint.module import Module
from orchestrator.lint.registry import module_check
from orchestrator.lint.rule import Hit, Rule, Severity, hit
from orchestrator.lint.values import (
    UNKNOWN,
    argument,
    calls_in,
    is_none,
    shown,
    source,
    texts,
    truth,
    unclear,
)

WEIGHTS = Rule(
    "ORC731",
    "resumes-weights-only",
    Severity.WARNING,
    "the script resumes from weights that it saved without the optimizer",
    "The resumed run starts with an empty optimizer, so its steps differ from those of an uninterrupted run.",
    "keras.callbacks.BackupAndRestore('ckpt'), or save and load the whole model (.keras).",
)
EPOCH = Rule(
    "ORC732",
    "resumes-at-epoch-0",
    Severity.WARNING,
    "the script resumes from its own checkpoint, but fit gets no initial_epoch",
    "The resumed run trains all epochs again, and schedules by epoch start again.",
    "fit(…, initial_epoch=…) from the checkpoint, or keras.callbacks.BackupAndRestore('ckpt').",
)
BEST = Rule(
    "ORC733",
    "resumes-best-forgotten",
    Severity.WARNING,
    "ModelCheckpoint(save_best_only=True) in a script that resumes, without initial_value_threshold",
    "No callback restores the best value: the first epoch after the interruption replaces the best model.",
    "Save the best value beside the checkpoint, and pass it: ModelCheckpoint(…, initial_value_threshold=…).",
)
SCRATCH = Rule(
    "ORC734",
    "checkpoint-in-scratch",
    Severity.WARNING,
    "checkpoints in /tmp, /dev/shm or a folder of tempfile",
    "They are lost with the machine or at its next boot, when they would be needed.",
    "Save them below the working folder, and name that in the profile: train.checkpoints: [ckpt].",
)

_SCRATCH = re.compile(r"/(tmp|var/tmp|dev/shm)(/|$)")
_SAVES = ("save", "save_weights")
_LOADS = ("keras.models.load_model",)


@module_check(WEIGHTS, EPOCH, BEST)
def check_resume(module: Module) -> Iterator[Hit]:
    fits = [call for call in module.calls if _method(call) == "fit" and is_model(module, _receiver(call))]
    resumes = list(_resumes(module, fits))
    backed_up = any(module.called(call) == BACKUP for call in module.calls)
    for load, fit in [] if backed_up else resumes:
        if _method(load) == "load_weights":
            yield hit(WEIGHTS, module.snippet, load, f"{source(load)} restores no optimizer")
        if argument(fit, -1, "initial_epoch") is None and not unclear(fit):
            yield hit(EPOCH, module.snippet, fit, f"after {source(load)} this trains from epoch 0")
    if backed_up or resumes:
        yield from _forgotten(module)


def _forgotten(module: Module) -> Iterator[Hit]:
    for call in module.calls:
        best = module.called(call) == KEEP and truth(module, argument(call, -1, "save_best_only"))
        threshold = argument(call, -1, "initial_value_threshold")
        if best and (threshold is None or is_none(threshold)) and not unclear(call):
            yield hit(BEST, module.snippet, call, "the best value so far is lost when the script resumes")


def _resumes(module: Module, fits: list[ast.Call]) -> Iterator[tuple[ast.Call, ast.Call]]:
    """Yield (load, first fit) for each load of something that this script saves, before any training in its
    function.
    """
    saved = {place for call in module.calls for place in _saved(module, call)}
    for call in module.calls:
        if not _is_load(module, call) or not saved & _places(module, argument(call, 0, "filepath")):
            continue
        scope = module.scope(call)
        trained = [fit for fit in fits if module.scope(fit) is scope]
        if trained and _at(call) < _at(trained[0]):
            yield call, trained[0]


def _is_load(module: Module, call: ast.Call) -> bool:
    weights = _method(call) == "load_weights" and is_model(module, _receiver(call))
    return weights or module.called(call) in _LOADS


def _saved(module: Module, call: ast.Call) -> set[str]:
    """Return what is saved during training. What is saved after it may be the start of another training."""
    of_model = _method(call) in _SAVES and is_model(module, _receiver(call)) and _is_repeated(module, call)
    return (
        _places(module, argument(call, 0, "filepath")) if of_model or module.called(call) == KEEP else set()
    )


def _is_repeated(module: Module, call: ast.Call) -> bool:
    for above in module.above(call):
        if isinstance(above, ast.For | ast.While):
            return True
        if isinstance(above, ast.FunctionDef):
            return above.name.startswith("on_")
    return False


def _places(module: Module, path: ast.expr | None) -> set[str]:
    """Return the possible values of a path, and the name that holds it: two uses of one name are one file."""
    known = {text for text in texts(module, path) if UNKNOWN not in text}
    return known | ({source(path)} if isinstance(path, ast.Name | ast.Attribute) else set())


def _method(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _receiver(call: ast.Call) -> ast.expr | None:
    return call.func.value if isinstance(call.func, ast.Attribute) else None


def _at(call: ast.Call) -> tuple[int, int]:
    return call.lineno, call.col_offset


@module_check(SCRATCH)
def check_scratch(module: Module) -> Iterator[Hit]:
    for _, call, path in saved_to(module):
        if where := _scratch(module, path):
            yield hit(SCRATCH, module.snippet, call, f"checkpoints go to {where}")


def _scratch(module: Module, path: ast.expr) -> str:
    """Return the temporary folder in a path; "" if there is none."""
    named = next((text for text in texts(module, path) if _SCRATCH.match(text)), "")
    held = [
        path,
        *(value for name in ast.walk(path) if isinstance(name, ast.Name) for value in module.bound(name)),
    ]
    made = (module.called(call) for value in held for call in calls_in(value))
    return shown(named) if named else next((name for name in made if name.startswith("tempfile.")), "")
