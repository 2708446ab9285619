"""ORC501-504: preprocessing that is fitted twice, lost, or different in training and serving."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from orchestrator.lint.datasets import is_model
from orchestrator.lint.module import Module
from orchestrator.lint.program import Program
from orchestrator.lint.registry import Project, program_check, project_check
from orchestrator.lint.rule import Hit, Rule, Severity, hit
from orchestrator.lint.values import names_in, source

REFIT = Rule(
    "ORC501",
    "scaler-refitted",
    Severity.WARNING,
    "fit_transform on test data, or the same preprocessing fitted more than once",
    "Each data set is scaled by its own statistics: the model gets other numbers than in training.",
    "Fit once on the training data, and only transform everywhere else.",
)
NOT_SAVED = Rule(
    "ORC502",
    "scaler-not-saved",
    Severity.WARNING,
    "a scaler or encoder is fitted, but never saved with the model",
    "Whoever loads the model must fit it again, on other data: its inputs differ, without an error.",
    "joblib.dump it beside the model and list it among the outputs, or use a keras.layers.Normalization.",
)
MISMATCH = Rule(
    "ORC503",
    "preprocessing-mismatch",
    Severity.WARNING,
    "the same data are scaled by different scalers in two places",
    "Training and serving get different numbers for the same record.",
    "Share one function, and one fitted artefact.",
)
PIXELS = Rule(
    "ORC504",
    "pixel-scaling-mismatch",
    Severity.WARNING,
    "two files of the project scale pixels by different constants",
    "Training and serving get different numbers for the same image.",
    "Scale in one function, or in the model by one keras.layers.Rescaling.",
)

_SCALER = re.compile(
    r"sklearn\.(preprocessing|decomposition|feature_extraction\.text|impute|feature_selection)\.([A-Z]\w+)$"
)
_OTHERS = re.compile(
    r"keras\.(preprocessing\.text\.(Tokenizer)|layers\.(Normalization|TextVectorization|StringLookup|IntegerLookup"
    r"|Discretization))$"
)
_FITS = {"fit", "fit_transform", "fit_on_texts", "adapt"}
_TEST = re.compile(
    r"(^|_|\b)(x|y)?_?(test|val|valid|validation|eval|holdout|serve|new|prod|unseen|inference|live|local)"
    r"(ing|set|data)?(_|\b|\d|$)",
    re.IGNORECASE,
)
_KEPT = {"joblib.dump", "pickle.dump", "pickle.dumps", "cloudpickle.dump", "dill.dump", "skops.io.dump",
         "sklearn.externals.joblib.dump"}  # fmt: skip
_DECOMPOSITIONS = {"PCA", "IncrementalPCA", "KernelPCA", "SparsePCA", "TruncatedSVD", "NMF", "FastICA"}
_IN_THE_MODEL = {"Normalization", "TextVectorization", "StringLookup", "IntegerLookup", "Discretization"}
"""Layers whose learned state is saved with the model."""
_ALIKE = (
    re.compile(r"Scaler$|^Normalizer$|Transformer$"),
    re.compile(r"(Encoder|Binarizer)$"),
    re.compile(r"Vectorizer$"),
)
"""Classes of which one replaces another; an imputer and a scaler can be used together."""
_SERVING = re.compile(
    r"(^|[_-])(serve|serving|predict|prediction|infer|inference|app|api|deploy|score)", re.I
)
_TRAINING = re.compile(r"(^|[_-])(train|training|fit)", re.I)


@dataclass(frozen=True)
class Fit:
    """One call of fit or fit_transform: its variable, its class, and its data."""

    module: Module
    call: ast.Call
    variable: str
    kind: str
    made: int
    data: str
    words: frozenset[str]

    @property
    def scope(self) -> ast.AST:
        return self.module.scope(self.call)

    @property
    def columns(self) -> bool:
        """Whether the data are named by columns: then the same text means the same data everywhere."""
        nodes = ast.walk(self.call.args[0])
        return any(isinstance(node, ast.Constant) and isinstance(node.value, str) for node in nodes)


def _same_data(one: Fit, two: Fit) -> bool:
    return one.data == two.data and (one.scope is two.scope or one.columns)


def _fits(module: Module) -> Iterator[Fit]:
    for call in module.calls:
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if method not in _FITS or not call.args:
            continue
        receiver = call.func.value  # type: ignore[attr-defined]
        made = _maker(module, receiver, call)
        kind = _kind(module.called(made))
        if kind:
            data = call.args[0]
            words = frozenset(names_in(data)) | {
                n.value for n in ast.walk(data) if isinstance(n, ast.Constant) and isinstance(n.value, str)
            }
            yield Fit(module, call, source(receiver), kind, id(made), source(data), words)


def _kind(name: str) -> str:
    """Return the class of a scaler, encoder or tokenizer from its dotted name; "" for others."""
    found = _SCALER.match(name) or _OTHERS.match(name)
    return name.rpartition(".")[2] if found else ""


def _maker(module: Module, receiver: ast.AST, call: ast.Call) -> ast.AST | None:
    """Return the call that created the scaler: the last one above that was assigned to the variable."""
    if isinstance(receiver, ast.Attribute):
        name = source(receiver)
        given = (node for node in module.nodes if isinstance(node, ast.Assign))
        return next((n.value for n in given if any(source(t) == name for t in n.targets)), receiver)
    if not isinstance(receiver, ast.Name):
        return receiver
    bound = [value for value in module.bound(receiver) if getattr(value, "lineno", 0) <= call.lineno]
    return bound[-1] if bound else None


@program_check(REFIT)
def check_refit(program: Program, _: Project) -> Iterator[Hit]:
    serves = bool(program.calls("keras.models.load_model")) and not program.training
    for module in program.modules:
        seen: dict[int, Fit] = {}
        for fit in _fits(module):
            test = sorted(word for word in fit.words if _TEST.search(word))
            train = any(re.search(r"train", word, re.I) for word in fit.words)
            earlier = seen.get(fit.made)
            if earlier is not None and earlier.data != fit.data:
                yield hit(
                    REFIT, module.snippet, fit.call, f"{fit.variable} is fitted again, on {fit.data[:40]}"
                )
            elif test and not train:
                yield hit(REFIT, module.snippet, fit.call, f"{fit.kind} is fitted on {fit.data[:40]}")
            elif _for_each_side(module, fit):
                message = f"{fit.kind} is fitted separately for training and test data"
                yield hit(REFIT, module.snippet, fit.call, message)
            elif serves and _ALIKE[0].search(fit.kind) and _predicts_below(module, fit):
                message = f"{fit.kind} is fitted again, for a model that was trained before"
                yield hit(REFIT, module.snippet, fit.call, message)
            seen.setdefault(fit.made, fit)
        yield from _twice_by_new(module)
        yield from _fits_by_function(module)


def _for_each_side(module: Module, fit: Fit) -> bool:
    """Whether each side has a scaler: `for side in ("train", "test"):
    StandardScaler().fit_transform(frames[side])`.
    """
    loops = [each for each in module.above(fit.call) if isinstance(each, ast.For)]
    for loop in loops:
        sides = [
            n.value for n in ast.walk(loop.iter) if isinstance(n, ast.Constant) and isinstance(n.value, str)
        ]
        sides += names_in(loop.iter)
        made_inside = any(id(node) == fit.made for node in ast.walk(loop))
        both = any("train" in side.lower() for side in sides) and any(_TEST.search(side) for side in sides)
        if made_inside and both and names_in(loop.target) & fit.words:
            return True
    return False


def _predicts_below(module: Module, fit: Fit) -> bool:
    """Whether a model predicts after the fit only: then the fit scales predictions, which is harmless."""
    lines = [
        call.lineno
        for call in module.calls
        if isinstance(call.func, ast.Attribute)
        and call.func.attr in ("predict", "predict_on_batch", "evaluate")
        and is_model(module, call.func.value)
    ]
    return bool(lines) and min(lines) >= fit.call.lineno


@program_check()
def check_by_hand(program: Program, _: Project) -> Iterator[Hit]:
    """Find `(x_test - x_test.mean()) / x_test.std()`: the test side is scaled by its own statistics."""
    for module in program.modules:
        for node in module.nodes:
            if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)):
                continue
            lower = node.left
            if not (isinstance(lower, ast.BinOp) and isinstance(lower.op, ast.Sub)):
                continue
            name = source(lower.left)
            own = _statistic(module, lower.right, name, "mean") and _statistic(
                module, node.right, name, "std"
            )
            if (
                own
                and isinstance(lower.left, ast.Name)
                and _TEST.search(name)
                and "train" not in name.lower()
            ):
                yield hit(REFIT, module.snippet, node, f"{name} is scaled by its own mean and deviation")


def _statistic(module: Module, node: ast.AST, of: str, kind: str) -> bool:
    """Whether an expression is `x.mean(…)` or `np.mean(x, …)`, possibly plus a small number."""
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        node = node.left
    found = module.value(node)
    if (
        not isinstance(found, ast.Call)
        or not isinstance(found.func, ast.Attribute)
        or found.func.attr != kind
    ):
        return False
    return source(found.func.value) == of or (bool(found.args) and source(found.args[0]) == of)


def _fits_by_function(module: Module) -> Iterator[Hit]:
    """Find a function that creates and fits a scaler, and is called for both training and test data."""
    for fit in _fits(module):
        name = getattr(fit.scope, "name", "")
        if name not in module.functions or not _own(module, fit):
            continue
        loads = (load for load in module.loads(name))
        calls = [c for load in loads if isinstance(c := module.parent(load), ast.Call) and c.func is load]
        given = [(call, source(call.args[0])) for call in calls if call.args]
        tests = [call for call, text in given if _TEST.search(text) and "train" not in text.lower()]
        if tests and len({text for _, text in given}) > 1:
            message = f"{name} fits {fit.kind} anew, on {source(tests[0])[:40]}"
            yield hit(REFIT, module.snippet, tests[0], message)


def _own(module: Module, fit: Fit) -> bool:
    """Whether the function creates the scaler, and fits it on its arguments."""
    receiver = fit.call.func.value if isinstance(fit.call.func, ast.Attribute) else None
    maker = _maker(module, receiver, fit.call) if receiver is not None else None
    arguments = {each.arg for each in ast.walk(fit.scope) if isinstance(each, ast.arg)}
    return maker is not None and module.scope(maker) is fit.scope and bool(fit.words & arguments)


def _twice_by_new(module: Module) -> Iterator[Hit]:
    """Find the same data fitted again by a second scaler, which does not use what the first one learned."""
    first: dict[str, Fit] = {}
    for fit in _fits(module):
        if fit.kind in _IN_THE_MODEL:
            continue
        other = first.setdefault(fit.data, fit)
        if other.made != fit.made and other.variable == fit.variable and _same_data(other, fit):
            line = module.snippet.place(other.call.lineno)[1]
            yield hit(
                REFIT,
                module.snippet,
                fit.call,
                f"fitted anew, after line {line}, instead of using what was fitted there",
            )


@program_check(NOT_SAVED)
def check_saved(program: Program, _: Project) -> Iterator[Hit]:
    if program.calls(*_KEPT) or not program.runs:
        return
    fits = [fit for module in program.modules for fit in _fits(module) if fit.kind not in _IN_THE_MODEL]
    dumped = any(True for _ in program.methods("dump", "log_model", "log_artifact", "to_json"))
    fits = [fit for fit in fits if not _only_seen(program, fit)]
    if fits and not dumped:
        fit = fits[0]
        yield hit(NOT_SAVED, fit.module.snippet, fit.call, f"{fit.kind} is fitted, but not saved")


def _only_seen(program: Program, fit: Fit) -> bool:
    """Whether a decomposition is only used for a plot: nothing is trained on its result."""
    trained = any(len(call.args) > 1 for _, call in program.methods("fit"))
    return fit.kind in _DECOMPOSITIONS and not trained and not program.training


@project_check(MISMATCH)
def check_mismatch(project: Project) -> Iterator[Hit]:
    fits = [fit for module in project.modules for fit in _fits(module)]
    for number, fit in enumerate(fits):
        other = next((each for each in fits[:number] if _differ(each, fit)), None)
        if other:
            line = other.module.snippet.place(other.call.lineno)[1]
            where = f"line {line}" if other.module is fit.module else f"{other.module.snippet.path}:{line}"
            yield hit(MISMATCH, fit.module.snippet, fit.call, f"{fit.kind} here, {other.kind} at {where}")


def _differ(one: Fit, two: Fit) -> bool:
    """Whether two classes are used for the same columns; or, in files that train and serve, under the same
    name.
    """
    if one.kind == two.kind or not any(each.search(one.kind) and each.search(two.kind) for each in _ALIKE):
        return False
    if one.module is two.module:
        return _same_data(one, two)
    if one.module.snippet.path == two.module.snippet.path:
        return one.variable == two.variable
    names = (PurePosixPath(one.module.snippet.path).stem, PurePosixPath(two.module.snippet.path).stem)
    return one.variable == two.variable and bool(
        any(_SERVING.search(name) for name in names) and any(_TRAINING.search(name) for name in names)
    )


@project_check(PIXELS)
def check_pixels(project: Project) -> Iterator[Hit]:
    first: tuple[Module, float] | None = None
    for module in project.modules:
        found = _pixel_scale(module)
        if not found:
            continue
        node, scale = found
        if first and first[1] != scale and first[0].snippet.path != module.snippet.path:
            message = f"pixels are divided by {scale:g} here, by {first[1]:g} in {first[0].snippet.path}"
            yield hit(PIXELS, module.snippet, node, message)
        first = first or (module, scale)


def _pixel_scale(module: Module) -> tuple[ast.AST, float] | None:
    """Return the only constant by which a file divides pixels, if it is 255, 256, 127.5 or 128."""
    found: dict[float, ast.AST] = {}
    for node in module.nodes:
        if (
            isinstance(node, ast.BinOp)
            and isinstance(node.op, ast.Div)
            and isinstance(node.right, ast.Constant)
        ):
            value = node.right.value
            if value in (255, 256, 127.5, 128) and not (isinstance(node.left, ast.Constant)):
                found.setdefault(float(str(value)), node)
        elif isinstance(node, ast.Call) and module.called(node) == "keras.layers.Rescaling" and node.args:
            written = source(node.args[0]).replace(" ", "")
            match = re.fullmatch(r"1\.?0?/(255|256|127\.5|128)(\.0)?", written)
            if match:
                found.setdefault(float(match[1]), node)
    return next(((node, scale) for scale, node in found.items()), None) if len(found) == 1 else None
