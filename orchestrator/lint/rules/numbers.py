"""ORC601-603: precision of numbers."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from orchestrator.lint.datasets import is_model
from orchestrator.lint.module import Module
from orchestrator.lint.program import Program
from orchestrator.lint.registry import Project, program_check, project_check
from orchestrator.lint.rule import Hit, Rule, Severity, hit
from orchestrator.lint.values import argument, source, texts

FLOAT64 = Rule(
    "ORC601",
    "float64-input",
    Severity.INFO,
    "NumPy's default float64 is passed to a model or a dataset",
    "Keras casts it, TensorFlow does not: twice the bytes, and the last bits differ if one side casts "
    "earlier.",
    "Set the width: .astype(np.float32), or dtype=np.float32.",
)
MIXED = Rule(
    "ORC602",
    "mixed-float-widths",
    Severity.INFO,
    "float32 and float64 (or float16) mixed in one program",
    "Rounding depends on the place of the cast; and GPUs compute float64 many times slower than float32.",
    "Choose one width, and cast once, where the data are loaded.",
)
ONE_SIDED = Rule(
    "ORC603",
    "one-sided-mixed-precision",
    Severity.WARNING,
    "mixed precision under a condition, or for only one of the places that create the model",
    "One machine trains in float16 and the other in float32: differences of 1e-3 from the first layer on.",
    "Set the policy on both sides, from an argument.",
)

ONE_FILE = Rule(
    "ORC604",
    "mixed-precision-in-one-file",
    Severity.WARNING,
    "one script of the project trains in mixed precision, another one does not",
    "The two runs differ by 1e-3 from the first layer on.",
    "Set the policy in both, from an argument.",
)

_DEFAULT_64 = re.compile(
    r"numpy\.(random\.(rand|randn|random|random_sample|normal|uniform|standard_normal)|zeros|ones|linspace|empty|eye)$"
)
_POLICY = ("keras.mixed_precision.set_global_policy", "keras.mixed_precision.experimental.set_policy",
           "keras.config.set_dtype_policy", "keras.mixed_precision.set_dtype_policy")  # fmt: skip
_TENSORS = ("tensorflow.constant", "tensorflow.convert_to_tensor", "tensorflow.Variable")
_WIDE = {"numpy.float64", "numpy.double", "float"}
_FLOATX = ("keras.backend.set_floatx", "keras.config.set_floatx")
_REWRITE = "tensorflow.train.experimental.enable_mixed_precision_graph_rewrite"
_BUILDS = re.compile(r"keras\.(Sequential|Model)$")


@program_check(FLOAT64)
def check_float64(program: Program, _: Project) -> Iterator[Hit]:
    if not program.uses_keras:
        return
    for module in program.modules:
        told: set[int] = set()
        for call in module.calls:
            for given in _fed(module, call):
                origin = _origin(module, given)
                if origin is not None and id(origin) not in told:
                    told.add(id(origin))
                    made = module.called(origin) or "astype"
                    yield hit(FLOAT64, module.snippet, origin, f"{made} creates float64")


def _fed(module: Module, call: ast.Call) -> Iterator[ast.AST]:
    """Yield the arrays that a call passes to a model or turns into a dataset."""
    if module.called(call) in _TENSORS and call.args and argument(call, 1, "dtype") is None:
        yield call.args[0]
    elif module.called(call) == "tensorflow.data.Dataset.from_tensor_slices" and call.args:
        first = call.args[0]
        yield from first.elts if isinstance(first, ast.Tuple) else [first]
    elif (
        isinstance(call.func, ast.Attribute)
        and call.func.attr
        in (
            "fit",
            "predict",
            "evaluate",
            "train_on_batch",
        )
        and is_model(module, call.func.value)
    ):
        yield from call.args[:2]


def _origin(module: Module, node: ast.AST, depth: int = 4) -> ast.Call | None:
    """Return the call that created an array in float64, if it was not cast afterwards."""
    value = module.value(node)
    if isinstance(value, ast.BinOp) and depth:  # a name may be defined by itself: x = x / 255
        return _origin(module, value.left, depth - 1) if not isinstance(value.left, ast.BinOp) else None
    if not isinstance(value, ast.Call):
        return None
    if _says_64(module, value):
        return value
    if not _DEFAULT_64.match(module.called(value)):
        return None
    return value if argument(value, -1, "dtype") is None and len(value.args) < 6 else None


def _says_64(module: Module, call: ast.Call) -> bool:
    """Whether a call names float64: `….astype(np.float64)`, `np.array(…, dtype="float64")`."""
    casts = isinstance(call.func, ast.Attribute) and call.func.attr == "astype"
    given = argument(call, 0 if casts else -1, "dtype")
    if not (casts or module.called(call).startswith("numpy.")):
        return False
    return module.dotted(given) in _WIDE or bool({"float64", "double"} & set(texts(module, given)))


@program_check(MIXED)
def check_mixed(program: Program, _: Project) -> Iterator[Hit]:
    if not program.uses_keras:
        return
    seen: dict[str, tuple[Module, ast.AST]] = {}
    for module in program.modules:
        for node, width in _widths(module):
            seen.setdefault(width, (module, node))
    others = [width for width in ("float64", "float16") if width in seen]
    if "float32" in seen and others:
        module, node = seen[others[0]]
        yield hit(MIXED, module.snippet, node, f"{others[0]} is mixed with float32")


def _widths(module: Module) -> Iterator[tuple[ast.AST, str]]:
    for node in module.nodes:
        if isinstance(node, ast.Attribute) and node.attr in ("float32", "float64", "float16"):
            if module.dotted(node).split(".")[0] == "tensorflow" or _casts(module, node):
                yield node, node.attr
        elif isinstance(node, ast.Constant) and _casts(module, node):
            yield node, str(node.value)
        elif isinstance(node, ast.Call) and module.called(node) in _FLOATX:
            yield from ((node, text) for text in texts(module, argument(node, 0)))


def _casts(module: Module, node: ast.AST) -> bool:
    """Whether a type is that to which an array is cast, or of which it is created."""
    parent = module.parent(node)
    if isinstance(parent, ast.keyword):
        return parent.arg == "dtype"
    method = (
        parent.func.attr if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute) else ""
    )
    return method == "astype"


@program_check(ONE_SIDED)
def check_condition(program: Program, _: Project) -> Iterator[Hit]:
    for module, call in program.calls(*_POLICY, _REWRITE):
        mixed = any(
            "mixed" in text for text in texts(module, argument(call, 0, "policy", "policy_name", "name"))
        )
        given = module.value(argument(call, 0, "policy", "policy_name", "name"))
        inner = given.test if isinstance(given, ast.IfExp) else None
        test = next((each.test for each in module.above(call) if isinstance(each, ast.If)), inner)
        if mixed and test is not None and _of_machine(module, test):
            yield hit(ONE_SIDED, module.snippet, call, f"mixed precision only where {source(test)[:40]}")


def _of_machine(module: Module, test: ast.AST) -> bool:
    """Whether a condition depends on the machine, rather than on an argument."""
    for node in ast.walk(test):
        found = module.value(node) if isinstance(node, ast.Name) else node
        name = module.called(found)
        if name.startswith(("tensorflow.config", "tensorflow.test", "platform.", "os.path.", "socket.")):
            return True
        word = node.id if isinstance(node, ast.Name) else node.value if isinstance(node, ast.Constant) else ""
        if re.search(r"gpu|cuda|tpu|colab|local|cloud", str(word), re.IGNORECASE):
            return True
    return False


@project_check(ONE_FILE)
def check_files(project: Project) -> Iterator[Hit]:
    trains = [program for program in project.programs if program.training and any(_builds(program))]
    mixed = [program for program in trains if program.calls(*_POLICY)]
    if mixed and len(mixed) < len(trains):
        plain = next(program for program in trains if program not in mixed)
        module, call = mixed[0].calls(*_POLICY)[0]
        if any("mixed" in text for text in texts(module, argument(call, 0, "policy"))):
            where = plain.modules[0].snippet.path
            yield hit(ONE_FILE, module.snippet, call, f"mixed precision here, but not in {where}")


def _builds(program: Program) -> Iterator[ast.Call]:
    return (call for name, _, call in program.named if _BUILDS.match(name))
