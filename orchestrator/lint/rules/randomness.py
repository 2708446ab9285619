"""ORC311-315: generators and orders that differ between processes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from orchestrator.lint.module import Module
from orchestrator.lint.registry import module_check
from orchestrator.lint.rule import Hit, Rule, Severity, hit
from orchestrator.lint.values import argument, calls_in, is_none, source, unclear

GENERATOR = Rule(
    "ORC311",
    "unseeded-generator",
    Severity.WARNING,
    "a separate random generator without a seed: numpy.random.default_rng(), random.Random()",
    "It starts from the system's entropy, even if other generators are seeded: other numbers in every run.",
    "Give it a seed: default_rng(1).",
)
CHANGING_SEED = Rule(
    "ORC312",
    "changing-seed",
    Severity.WARNING,
    "a seed from the time, the process, the host, or hash()",
    "The seed is different in every run and on every machine.",
    "Use a constant, or take the seed from an argument.",
)
HASH = Rule(
    "ORC313",
    "hash-of-text",
    Severity.WARNING,
    "the result of the builtin hash() is used",
    "Python's hash of a string is different in every process: buckets and splits differ between two runs.",
    "Use hashlib or zlib.crc32 on the text's bytes.",
)
SET_ORDER = Rule(
    "ORC314",
    "set-order",
    Severity.WARNING,
    "a set is converted to a list, or looped over, unsorted",
    "The order of strings in a set differs in every process: classes get other numbers, records another "
    "order.",
    "Sort it: sorted(set(labels)).",
)

_GENERATORS = frozenset(
    [
        "numpy.random.default_rng",
        "numpy.random.RandomState",
        "numpy.random.SeedSequence",
        "numpy.random.PCG64",
        "random.Random",
    ]
)
_ENTROPY = {"tensorflow.random.Generator.from_non_deterministic_state", "random.SystemRandom"}
_SEEDED_BY = frozenset(
    [
        "random.seed",
        "numpy.random.seed",
        "tensorflow.random.set_seed",
        "keras.utils.set_random_seed",
        "numpy.random.default_rng",
        "numpy.random.RandomState",
        "random.Random",
    ]
)
_CHANGING = frozenset(
    [
        "time.time",
        "time.time_ns",
        "time.monotonic",
        "time.perf_counter",
        "datetime.datetime.now",
        "os.getpid",
        "os.urandom",
        "uuid.uuid4",
        "uuid.uuid1",
        "socket.gethostname",
        "platform.node",
        "hash",
        "id",
        "secrets.randbits",
        "secrets.randbelow",
        "datetime.datetime.utcnow",
        "os.cpu_count",
    ]
)
_SEEDERS = {"random.seed", "numpy.random.seed"}
_DRAWN = {"random.randint", "random.random", "random.randrange", "random.getrandbits", "numpy.random.randint"}
_OF_TEXTS = {"split", "strip", "lower", "upper", "stem", "basename", "rstrip", "lstrip", "removesuffix"}
_UNORDERED_USE = {
    "sorted",
    "len",
    "set",
    "frozenset",
    "sum",
    "min",
    "max",
    "any",
    "all",
    "isinstance",
    "numpy.unique",
}


@module_check(GENERATOR, CHANGING_SEED)
def check_generators(module: Module) -> Iterator[Hit]:
    for call in module.calls:
        name = module.called(call)
        if name in _GENERATORS and not unclear(call) and (not (call.args or call.keywords) or _none(call)):
            yield hit(GENERATOR, module.snippet, call, f"{name}() has no seed")
        elif name in _ENTROPY:
            yield hit(GENERATOR, module.snippet, call, f"{name}() cannot be repeated")
        elif name in ("random.seed", "numpy.random.seed") and (
            not (call.args or call.keywords) or _none(call)
        ):
            yield hit(CHANGING_SEED, module.snippet, call, f"{name}() uses the system's entropy")
    for place, given in _seed_arguments(module):
        entropy = _changing(module, given)
        if entropy:
            yield hit(CHANGING_SEED, module.snippet, place, f"the seed comes from {entropy}()")


def _none(call: ast.Call) -> bool:
    given = argument(call, 0, "seed", "entropy")
    return is_none(given)


def _seed_arguments(module: Module) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Yield what is used as a seed, and where; or is assigned to a name that contains "seed"."""
    for call in module.calls:
        given = [k.value for k in call.keywords if k.arg in ("seed", "random_state")]
        given += call.args[:1] if module.called(call) in _SEEDED_BY else []
        yield from ((call, value) for value in given if not isinstance(value, ast.Name))
    for node in module.nodes:
        if isinstance(node, ast.Assign) and any("seed" in getattr(t, "id", "").lower() for t in node.targets):
            yield node, node.value


def _changing(module: Module, node: ast.AST) -> str:
    for call in calls_in(node):
        name = module.called(call)
        if name in _CHANGING or (name in _DRAWN and not _seeds_first(module, call)):
            return name
    return ""


def _seeds_first(module: Module, draw: ast.Call) -> bool:
    """Whether the generator from which a seed is drawn was itself seeded before."""
    seeders = (call for call in module.calls if module.called(call) in _SEEDED_BY and call.args)
    return any(call.lineno < draw.lineno for call in seeders)


@module_check(HASH, SET_ORDER)
def check_orders(module: Module) -> Iterator[Hit]:
    for call in module.calls:
        if module.called(call) == "hash" and not _in_hash_method(module, call) and not _of_numbers(call):
            yield hit(HASH, module.snippet, call, "hash() of a string is different in every process")
        orders = module.called(call) in ("list", "tuple", "enumerate", "numpy.array") and call.args
        if orders and _is_set(module, call.args[0]) and not _unordered_use(module, call):
            yield hit(SET_ORDER, module.snippet, call, "a set is put in order by chance")
    for node in module.nodes:
        looped = isinstance(node, ast.ListComp) and _is_set(module, node.generators[0].iter)
        if isinstance(node, ast.For) and _is_set(module, node.iter) and _orders(node):
            yield hit(SET_ORDER, module.snippet, node.iter, "the loop over a set has a random order")
        elif looped and not _unordered_use(module, node):
            yield hit(SET_ORDER, module.snippet, node, "a set is put in order by chance")


def _in_hash_method(module: Module, node: ast.AST) -> bool:
    return any(isinstance(each, ast.FunctionDef) and each.name == "__hash__" for each in module.above(node))


def _of_numbers(call: ast.Call) -> bool:
    return (
        bool(call.args)
        and isinstance(call.args[0], ast.Constant)
        and isinstance(call.args[0].value, int | float)
    )


def _is_set(module: Module, node: ast.AST, depth: int = 6) -> bool:
    """Whether this is a set that may contain texts; numbers keep their order."""
    found = module.value(node)
    if not depth:
        return False
    if isinstance(found, ast.Set):
        return not all(isinstance(e, ast.Constant) and isinstance(e.value, int) for e in found.elts)
    if isinstance(found, ast.SetComp):
        return True
    if isinstance(found, ast.BinOp) and isinstance(found.op, ast.BitOr | ast.BitAnd | ast.Sub):
        return _is_set(module, found.left, depth - 1) and _is_set(module, found.right, depth - 1)
    if not isinstance(found, ast.Call) or module.called(found) not in ("set", "frozenset"):
        return False
    if not found.args:
        return isinstance(node, ast.Name) and _takes_texts(module, node.id)
    return module.called(module.value(found.args[0])) not in ("range", "numpy.arange")


def _takes_texts(module: Module, name: str) -> bool:
    """Whether what is added to a set seems to be a text: a file's name, a part of a line."""
    added = [
        module.value(call.args[0])
        for call in module.calls
        if isinstance(call.func, ast.Attribute) and call.func.attr == "add"
        and isinstance(call.func.value, ast.Name) and call.func.value.id == name and call.args
    ]  # fmt: skip
    parts = [node for each in added if each is not None for node in ast.walk(each)]
    return any(
        isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Attribute) and node.attr in _OF_TEXTS)
        for node in parts
    ) and not any(isinstance(node, ast.Name) and node.id in ("int", "float", "hash", "len") for node in parts)


def _unordered_use(module: Module, node: ast.AST) -> bool:
    """Whether the result is sorted at once, only counted, or the only element."""
    parent = module.parent(node)
    if isinstance(parent, ast.Subscript) and _only_one(module, node):
        return True
    if isinstance(parent, ast.Call):
        return module.called(parent) in _UNORDERED_USE
    if isinstance(parent, ast.Compare):
        return True
    return isinstance(parent, ast.Assign) and _sorted_later(module, parent)


def _only_one(module: Module, node: ast.AST) -> bool:
    """Whether a length is known to be 1 here."""
    tests = [each.test for each in module.above(node) if isinstance(each, ast.If | ast.IfExp)]
    return any(" == 1" in source(test) and "len(" in source(test) for test in tests)


def _sorted_later(module: Module, statement: ast.Assign) -> bool:
    names = {target.id for target in statement.targets if isinstance(target, ast.Name)}
    return any(
        isinstance(call.func, ast.Attribute) and call.func.attr == "sort"
        and isinstance(call.func.value, ast.Name) and call.func.value.id in names
        for call in module.calls
    )  # fmt: skip


def _orders(loop: ast.For) -> bool:
    """Whether a loop produces something in which the order remains: it appends, writes, counts up or
    yields.
    """
    for node in ast.walk(loop):
        if isinstance(node, ast.Yield | ast.AugAssign):
            return True
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("append", "extend", "write")
        ):
            return True
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            return True
    return False
