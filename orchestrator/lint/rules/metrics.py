"""ORC721: metrics that are selected by their position."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from orchestrator.lint.module import Module
from orchestrator.lint.program import Program
from orchestrator.lint.registry import Project, program_check
from orchestrator.lint.rule import Hit, Rule, Severity, hit
from orchestrator.lint.values import argument, source, truth

UNPACKED = Rule(
    "ORC721",
    "unpacked-metrics",
    Severity.WARNING,
    "loss, acc = model.evaluate(…) or train_on_batch(…) without return_dict",
    "The returned values and their order depend on compile and the version of Keras; in Keras 3 "
    "train_on_batch returns means since the last reset, in Keras 2 the values of the batch.",
    "Pass return_dict=True and read the metric by its name.",
)


@program_check(UNPACKED)
def check_unpacked(program: Program, _: Project) -> Iterator[Hit]:
    if not program.uses_keras:
        return
    known = _metrics(program)
    for module, call in program.methods("evaluate", "train_on_batch", "test_on_batch"):
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if truth(module, argument(call, -1, "return_dict")):
            continue
        taken = _taken(module, call)
        if taken is None:
            continue
        place, target, count = taken
        if method == "evaluate" and known is not None and _fits(known, count, target):
            continue
        what = (
            "the number of metrics is not known here" if known is None else f"compile names {known} metrics"
        )
        more = "; their meaning differs between Keras 2 and 3" if method == "train_on_batch" else f"; {what}"
        yield hit(UNPACKED, module.snippet, place, f"{source(target)} are read by position{more}")


def _taken(module: Module, call: ast.Call) -> tuple[ast.AST, ast.expr, int] | None:
    """Return (place, selected result, how many numbers that needs) if a result is unpacked or indexed."""
    parent = module.parent(call)
    if isinstance(parent, ast.Subscript):
        return _indexed(parent)
    if not isinstance(parent, ast.Assign):
        return None
    target = parent.targets[0]
    if isinstance(target, ast.Tuple | ast.List):
        return parent, target, len(target.elts)
    if not isinstance(target, ast.Name):
        return None
    uses = [module.parent(load) for load in module.loads(target.id) if module.value(load) is call]
    found = [_indexed(use) for use in uses if isinstance(use, ast.Subscript)]
    found += [
        (use, use.targets[0], len(use.targets[0].elts))
        for use in uses
        if isinstance(use, ast.Assign) and isinstance(use.targets[0], ast.Tuple | ast.List)
    ]
    return next((each for each in found if each is not None), None)


def _indexed(node: ast.Subscript) -> tuple[ast.AST, ast.expr, int] | None:
    """Return the same for `….evaluate(…)[1]`; index 0 is the loss everywhere."""
    index = node.slice.value if isinstance(node.slice, ast.Constant) else None
    return (node, node, index + 1) if isinstance(index, int) and index > 0 else None


def _fits(known: int, count: int, target: ast.expr) -> bool:
    """Whether the loss and `known` metrics are as many numbers as the code unpacks."""
    return known >= count - 1 if isinstance(target, ast.Subscript) else known == count - 1


def _metrics(program: Program) -> int | None:
    """Return how many metrics every compile of the program names; None if that is unknown."""
    counts: set[int | None] = set()
    for module, call in program.methods("compile"):
        given = argument(call, 2, "metrics")
        if given is None:
            counts.add(0 if {"optimizer", "loss"} & {k.arg for k in call.keywords} else None)
            continue
        value = module.value(given)
        counts.add(len(value.elts) if isinstance(value, ast.List | ast.Tuple) else None)
    return counts.pop() if len(counts) == 1 else None
