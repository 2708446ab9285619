"""ORC511-514: missing data, and failures, that do not stop the run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from orchestrator.lint.datasets import is_dataset
from orchestrator.lint.module import Module
from orchestrator.lint.registry import module_check
from orchestrator.lint.rule import Hit, Rule, Severity, hit
from orchestrator.lint.values import calls_in, is_none, source

MOCK = Rule(
    "ORC511",
    "mock-data-fallback",
    Severity.ERROR,
    "random data replace missing data",
    "A machine without the files trains on noise, and reports success.",
    "Stop where the data are missing: raise FileNotFoundError with the path.",
)
LAZY = Rule(
    "ORC512",
    "try-around-lazy-dataset",
    Severity.WARNING,
    "try … except around the creation of a tf.data pipeline",
    "A dataset opens its files when it is iterated: a missing file raises in the training, not in this try.",
    "Check that the files exist first, and let the error stop the run.",
)
SWALLOWED = Rule(
    "ORC513",
    "swallowed-error",
    Severity.WARNING,
    "an except that catches every error, and continues",
    "The run fails on the other machine but ends with exit code 0, so its output looks like a result.",
    "Catch only the error that you expect.",
)
PRESENCE = Rule(
    "ORC514",
    "data-by-presence",
    Severity.WARNING,
    "the data or model that is used depends on whether a file exists",
    "The other machine has other files, and trains on other data, without an error.",
    "Name the data by an argument, and stop if they are missing.",
)

_EXISTS = {
    "os.path.exists",
    "os.path.isfile",
    "os.path.isdir",
    "tensorflow.io.gfile.exists",
    "tensorflow.io.gfile.isdir",
}
_EXISTS_METHODS = {"exists", "is_file", "is_dir"}
_RANDOM = re.compile(r"(numpy\.random\.\w+|tensorflow\.random\.(normal|uniform|truncated_normal)"
                     r"|keras\.random\.\w+|sklearn\.datasets\.make_\w+)$")  # fmt: skip
_OF_FILES = re.compile(
    r"tensorflow\.data\.(TFRecord|TextLine|FixedLengthRecord)Dataset$|tensorflow\.data\.experimental\.CsvDataset$"
    r"|tensorflow\.data\.Dataset\.from_generator$"
)
_BLANK = re.compile(r"(numpy|tensorflow|keras\.ops)\.(zeros|ones|empty|full|arange|linspace|eye)$")
_LISTINGS = re.compile(r"(glob\.i?glob|os\.listdir|tensorflow\.io\.gfile\.(glob|listdir))$")
_DRAWS = {"random", "normal", "standard_normal", "integers", "uniform", "choice", "rand", "randn"}
_MOCK_NAME = re.compile(
    r"(^|_)(mock|dummy|fake|synthetic|toy)(_|$)|random_(data|dataset|images?|batch|array|samples|input)",
    re.IGNORECASE,
)
_BROAD = {"Exception", "BaseException", ""}
_TF_ERRORS = re.compile(r"tensorflow\.errors\.(?!OutOfRangeError)\w+$")
_WORK = {
    "fit",
    "train_on_batch",
    "load_model",
    "load_weights",
    "evaluate",
    "predict",
    "save",
    "fit_generator",
    "restore",
}
_READS = re.compile(r"(open|pandas\.read_\w+|numpy\.(load\w*|genfromtxt|fromfile)|tensorflow\.data\..+"
                    r"|keras\.(models\.load_model|datasets\..+)|tensorflow_datasets\.load"
    r"|tensorflow\.(device|config\..+))$")  # fmt: skip

_GENERATORS = ("numpy.random.default_rng", "numpy.random.RandomState")
_FETCHES = re.compile(r"fetch|download|^load|^open|^read|urlretrieve", re.IGNORECASE)
_WRITES = re.compile(r"write_(bytes|text)|save\w*|to_\w+|dump|imwrite")


@module_check(MOCK, PRESENCE)
def check_presence(module: Module) -> Iterator[Hit]:
    for node in module.nodes:
        if isinstance(node, ast.If) and (asked := _asks_presence(module, node.test)):
            yield from _branch(module, node, asked)
        elif isinstance(node, ast.If) and (asked := _asks_what_was_read(module, node.test)):
            if any(asked in _given(s) and _makes_random(module, [s]) for s in node.body):
                yield hit(MOCK, module.snippet, node, f"if {asked} could not be read, random data are used")
        elif isinstance(node, ast.IfExp) and _asks_presence(module, node.test):
            if _makes_random(module, [node.body]) or _makes_random(module, [node.orelse]):
                yield hit(MOCK, module.snippet, node, "random data are used if the file is missing")
            elif all(_texts_alone(module, way) or _reads(module, way) for way in (node.body, node.orelse)):
                yield hit(
                    PRESENCE, module.snippet, node, "the data that are read depend on whether a file exists"
                )
        elif isinstance(node, ast.Try):
            for handler in node.handlers:
                if _replaces(module, node, handler):
                    yield hit(MOCK, module.snippet, handler, "invented data are used if reading failed")


def _texts_alone(module: Module, node: ast.AST) -> bool:
    found = module.value(node)
    return isinstance(found, ast.Constant) and isinstance(found.value, str) and "/" in found.value


def _reads(module: Module, node: ast.AST) -> bool:
    return any(_READS.match(module.called(call)) for call in calls_in(node))


def _replaces(module: Module, node: ast.Try, handler: ast.ExceptHandler) -> bool:
    """Whether a handler, or the code after an empty one, invents the data that the try should have read."""
    if _makes_random(module, handler.body):
        return not _makes_random(module, node.body)  # not if the try drew random data itself
    if all(isinstance(each, ast.Pass) for each in handler.body):
        return isinstance(node.body[-1], ast.Return) and _makes_random(module, _rest(module, node))
    wanted = {name for statement in node.body for name in _given(statement)}
    return _works(module, node.body) and any(
        set(_given(statement)) & wanted and isinstance(value := getattr(statement, "value", None), ast.Call)
        and _BLANK.match(module.called(value))
        for statement in handler.body
    )  # fmt: skip


def _blanks(module: Module, body: Sequence[ast.stmt], other: Sequence[ast.stmt]) -> bool:
    """Whether `body` fills with zeros, or similar, the variables that `other` fills from a file."""
    if any(_FETCHES.search(_last_name(call)) for statement in body for call in calls_in(statement)):
        return False  # the empty container is filled with the data that are read
    wanted = {name for statement in other for name in _given(statement)}
    for statement in body:
        made = [c for c in calls_in(statement) if _BLANK.match(module.called(c))]
        if made and set(_given(statement)) & wanted:
            return not any(_BLANK.match(module.called(c)) for s in other for c in calls_in(s))
    return False


def _given(statement: ast.stmt) -> list[str]:
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return [node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)]


def _branch(module: Module, node: ast.If, asked: str) -> Iterator[Hit]:
    other = node.orelse or (_rest(module, node) if _leaves(node.body) else [])
    if _prepares(module, node):
        return
    if _makes_random(module, other) or _makes_random(module, node.body):
        yield hit(MOCK, module.snippet, node, f"if {asked} is missing, random data are used")
    elif node.orelse and (_blanks(module, node.body, node.orelse) or _blanks(module, node.orelse, node.body)):
        yield hit(MOCK, module.snippet, node, f"if {asked} is missing, invented data are used")
    elif node.orelse and _works(module, node.body) and _works(module, node.orelse):
        yield hit(PRESENCE, module.snippet, node, f"the data that are used depend on whether {asked} exists")
    if _trains(node.body) and _trains(node.orelse):
        yield hit(PRESENCE, module.snippet, node, f"the training data depend on whether {asked} exists")


def _last_name(call: ast.Call) -> str:
    return str(getattr(call.func, "attr", "") or getattr(call.func, "id", ""))


def _prepares(module: Module, node: ast.If) -> bool:
    """Whether the code creates the missing file, the same on every machine: `if not place.exists():
    place.write_bytes(…)`.
    """
    if node.orelse or _leaves(node.body):
        return False
    calls = [call for statement in node.body for call in calls_in(statement)]
    draws = [call for call in calls if _RANDOM.match(module.called(call)) or _drawn(module, call)]
    seeded = [call for call in calls if module.called(call) in _GENERATORS and call.args]
    written = any(_WRITES.match(_last_name(call)) for call in calls)
    return written and bool(seeded) and all(call in seeded or _drawn(module, call) for call in draws)


def _asks_presence(module: Module, test: ast.AST) -> str:
    """Return the file whose existence a condition tests; "" if it tests none."""
    for name in (node for node in ast.walk(test) if isinstance(node, ast.Name)):
        held = module.value(name)
        held = held.args[0] if module.called(held) in ("sorted", "list") and held.args else held  # type: ignore[union-attr]
        if _LISTINGS.match(module.called(held)):
            return name.id
    for call in calls_in(test):
        if module.called(call) in _EXISTS:
            return source(call.args[0])[:40] if call.args else "a file"
        if isinstance(call.func, ast.Attribute) and call.func.attr in _EXISTS_METHODS and not call.args:
            return source(call.func.value)[:40]
    return ""


def _asks_what_was_read(module: Module, test: ast.AST) -> str:
    """Return the name in `data is None`, if data come from a function here that returns None when reading
    fails.
    """
    name = test.left if isinstance(test, ast.Compare) and is_none(test.comparators[0]) else None
    made = module.value(name) if isinstance(name, ast.Name) and isinstance(test.ops[0], ast.Is) else None  # type: ignore[attr-defined]
    called = made.func.id if isinstance(made, ast.Call) and isinstance(made.func, ast.Name) else ""
    function = module.functions.get(called)
    tries = [node for node in ast.walk(function) if isinstance(node, ast.Try)] if function else []
    gives_up = any(_gives_none(h.body) for each in tries for h in each.handlers)
    reads = any(_reads(module, each) for each in tries)
    return name.id if isinstance(name, ast.Name) and gives_up and reads else ""


def _gives_none(body: Sequence[ast.stmt]) -> bool:
    last = body[-1]
    return isinstance(last, ast.Return) and (last.value is None or is_none(last.value))


def _leaves(body: Sequence[ast.stmt]) -> bool:
    return bool(body) and isinstance(body[-1], ast.Return)


def _rest(module: Module, node: ast.stmt) -> list[ast.stmt]:
    """Return the statements after a branch that returns; they run if its condition is false."""
    parent = module.parent(node)
    body = getattr(parent, "body", [])
    return list(body[body.index(node) + 1 :]) if isinstance(body, list) and node in body else []


def _makes_random(module: Module, body: Sequence[ast.AST], depth: int = 2) -> bool:
    """Whether statements create random data, directly or by a function of this file."""
    for statement in body:
        if _raises(statement):
            return False
        for call in calls_in(statement):
            name = module.called(call)
            local = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
            if (_RANDOM.match(name) and not name.endswith(("seed", "default_rng", "set_seed"))) or _drawn(
                module, call
            ):
                return True
            if _MOCK_NAME.search(local) and not name.startswith("random."):
                return True
            function = module.functions.get(local) if isinstance(call.func, ast.Name) else None
            if function and depth and _makes_random(module, function.body, depth - 1):
                return True
    return False


def _drawn(module: Module, call: ast.Call) -> bool:
    """Whether a call draws from a generator of NumPy: `rng.normal(…)`."""
    if not (isinstance(call.func, ast.Attribute) and call.func.attr in _DRAWS):
        return False
    return module.called(module.value(call.func.value)) in _GENERATORS


def _raises(statement: ast.AST) -> bool:
    return isinstance(statement, ast.Raise)


def _trains(body: Sequence[ast.stmt]) -> bool:
    return any(
        isinstance(c.func, ast.Attribute) and c.func.attr in ("fit", "train_on_batch")
        for s in body
        for c in calls_in(s)
    )


def _works(module: Module, body: Sequence[ast.stmt]) -> bool:
    """Whether statements produce data: a dataset, a table, an array that is read from somewhere."""
    data = re.compile(
        r"(pandas\.read_\w+|numpy\.load\w*|tensorflow\.data\..+|keras\.datasets\..+|tensorflow_datasets\.load)$"
    )
    return any(data.match(module.called(call)) for statement in body for call in calls_in(statement))


@module_check()
def check_suppressed(module: Module) -> Iterator[Hit]:
    """Find errors that are suppressed without an except."""
    for call in module.calls:
        name = module.called(call)
        if name == "contextlib.suppress" and any(module.dotted(kind) in _BROAD for kind in call.args):
            yield hit(SWALLOWED, module.snippet, call, "every error is suppressed, and the program continues")
        elif _ignores_errors(module, call):
            message = "records that cannot be read are skipped without a message"
            yield hit(SWALLOWED, module.snippet, call, message)


def _ignores_errors(module: Module, call: ast.Call) -> bool:
    if module.called(call) == "tensorflow.data.experimental.ignore_errors":
        return True
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    return method == "ignore_errors" and is_dataset(module, call.func.value)  # type: ignore[attr-defined]


@module_check(LAZY, SWALLOWED)
def check_try(module: Module) -> Iterator[Hit]:
    for node in module.nodes:
        if not isinstance(node, ast.Try) or not node.handlers:
            continue
        lazy = next((c for s in node.body for c in calls_in(s) if _lazy(module, c)), None)
        if lazy is not None and not _iterates(node.body):
            yield hit(
                LAZY, module.snippet, lazy, "this opens no file yet, so a missing file is not caught here"
            )
        for handler in node.handlers:
            if (
                (_bare(handler) or _matters(module, node.body))
                and _broad(module, handler)
                and _goes_on(handler)
            ):
                what = (
                    "every error"
                    if _is_any(module, handler)
                    else source(handler.type)
                    if handler.type
                    else ""
                )
                yield hit(SWALLOWED, module.snippet, handler, f"{what} is caught, and the program continues")


def _lazy(module: Module, call: ast.Call) -> bool:
    """Whether this reads files only later: a dataset of files, or a function mapped over one."""
    if _OF_FILES.match(module.called(call)):
        return True
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    return method in ("map", "flat_map", "interleave") and is_dataset(module, call)


def _iterates(body: Sequence[ast.stmt]) -> bool:
    """Whether a try also reads from the dataset that it creates."""
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.For):
                return True
            if isinstance(node, ast.Call):
                name = getattr(node.func, "attr", None) or getattr(node.func, "id", "")
                if name in (
                    "next",
                    "iter",
                    "fit",
                    "evaluate",
                    "reduce",
                    "as_numpy_iterator",
                    "list",
                    "cardinality",
                ):
                    return True
    return False


def _bare(handler: ast.ExceptHandler) -> bool:
    return handler.type is None


def _is_any(module: Module, handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or module.dotted(kind) in _BROAD for kind in kinds)


def _broad(module: Module, handler: ast.ExceptHandler) -> bool:
    return _is_any(module, handler) or _TF_ERRORS.match(module.dotted(handler.type)) is not None


def _matters(module: Module, body: Sequence[ast.stmt]) -> bool:
    """Whether the code that may fail is the work itself: reading data, training, loading, saving."""
    if any(isinstance(each, ast.For) and is_dataset(module, each.iter) for s in body for each in ast.walk(s)):
        return True
    return any(
        (isinstance(call.func, ast.Attribute) and call.func.attr in _WORK)
        or _READS.match(module.called(call))
        for statement in body
        for call in calls_in(statement)
    )


def _goes_on(handler: ast.ExceptHandler) -> bool:
    """Whether a handler neither raises nor ends the program."""
    for statement in handler.body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Raise):
                return False
            if isinstance(node, ast.Call) and source(node.func) in (
                "sys.exit",
                "exit",
                "quit",
                "os._exit",
                "pytest.fail",
            ):
                return False
    return True
