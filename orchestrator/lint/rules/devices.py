"""ORC201-208: devices that exist on one machine only."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from orchestrator.lint.module import Module
from orchestrator.lint.program import Found, Program
from orchestrator.lint.registry import Project, program_check
from orchestrator.lint.rule import Hit, Rule, Severity, hit
from orchestrator.lint.values import argument, calls_in, names_in, number, shown, source, texts, truth

LITERAL = Rule(
    "ORC201",
    "literal-device",
    Severity.WARNING,
    "a GPU or TPU by its number: tf.device('/GPU:0')",
    "Without that device TensorFlow fails, or computes on the CPU without a message: slower, and with other "
    "rounding.",
    "Leave the placement to TensorFlow, or take the device from an argument and check that it exists.",
)
PINNED_CPU = Rule(
    "ORC202",
    "cpu-device",
    Severity.INFO,
    "operations placed on the CPU by name",
    "On a machine with a GPU, only these run on the CPU: slower, and with other rounding than the rest.",
    "Leave the placement to TensorFlow, or hide the GPUs on both sides.",
)
UNGUARDED = Rule(
    "ORC203",
    "unguarded-device-index",
    Severity.ERROR,
    "an element of list_physical_devices() is used without checking the length",
    "IndexError on a machine without that device.",
    "Loop over the list, or test it first and report what is missing.",
)
NO_GROWTH = Rule(
    "ORC204",
    "no-memory-growth",
    Severity.WARNING,
    "GPUs are configured or used, but memory growth is not set",
    "TensorFlow reserves all memory of every GPU: if another process uses the GPU, the run fails with out "
    "of memory.",
    "Call tf.config.experimental.set_memory_growth(gpu, True) for every GPU, before anything uses one.",
)
PARTIAL_GROWTH = Rule(
    "ORC205",
    "partial-memory-growth",
    Severity.WARNING,
    "memory growth set for one GPU of the list",
    "It must be equal for all GPUs: ValueError on a machine with two.",
    "Loop over all GPUs.",
)
SILENT_CPU = Rule(
    "ORC206",
    "silent-cpu-fallback",
    Severity.WARNING,
    "a GPU is expected, but the program continues without one",
    "If driver or package do not fit, the CPU computes: many times slower, with other rounding, without an "
    "error.",
    "Stop if no GPU is listed: `if not gpus: raise SystemExit('no GPU')`.",
)
VISIBLE = Rule(
    "ORC207",
    "fixed-visible-devices",
    Severity.WARNING,
    "CUDA_VISIBLE_DEVICES (or a similar variable) set in the code",
    "It hides GPUs, or names one that another machine does not have: then the CPU computes.",
    "Set it outside: train.env in the profile, or the shell.",
)
PLACEMENT = Rule(
    "ORC208",
    "hard-placement",
    Severity.WARNING,
    "soft device placement switched off",
    "An operation without an implementation for the device is an error on that machine only.",
    "Leave soft placement on.",
)
REPLICAS = Rule(
    "ORC209",
    "batch-ignores-replicas",
    Severity.INFO,
    "a distribution strategy, and batch sizes that do not follow its number of replicas",
    "A machine with more GPUs divides the same batch differently: each replica gets other batches, and the "
    "training differs.",
    "Keep the global batch size constant, and give each replica batch // strategy.num_replicas_in_sync.",
)

_DEVICE = re.compile(
    r"^/?(?:job:\w+/)?(?:replica:\d+/)?(?:task:\d+/)?(?:device:)?(XLA_)?(CPU|GPU|TPU)(?::?(\d+)|:\x00)?$",
    re.I,
)
_LISTS = tuple(
    f"tensorflow.config.{name}"
    for name in ("list_physical_devices", "list_logical_devices", "get_visible_devices")
)
_GROWTH = ("tensorflow.config.set_memory_growth", "tensorflow.config.set_logical_device_configuration",
           "tensorflow.config.set_virtual_device_configuration", "tensorflow.GPUOptions")  # fmt: skip
_HIDING = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
_DEVICE_CALLS = (
    "tensorflow.device",
    "tensorflow.compat.v1.device",
    "keras.device",
    "tensorflow.distribute.OneDeviceStrategy",
    "tensorflow.distribute.MirroredStrategy",
)
_ASKS = (
    "tensorflow.test.is_gpu_available",
    "tensorflow.test.gpu_device_name",
    "tensorflow.test.is_built_with_cuda",
)
_STRATEGY = re.compile(
    r"tensorflow\.distribute\.(experimental\.)?(MirroredStrategy|MultiWorkerMirroredStrategy|TPUStrategy)$"
)


@program_check(LITERAL, PINNED_CPU)
def check_literal(program: Program, _: Project) -> Iterator[Hit]:
    for module, call in program.calls(*_DEVICE_CALLS):
        for text in _named_devices(module, call):
            found = _DEVICE.match(text)
            if found:
                rule = PINNED_CPU if found[2].upper() == "CPU" else LITERAL
                yield hit(rule, module.snippet, call, f"operations are placed on {shown(text)!r}")
                break


def _named_devices(module: Module, call: ast.Call) -> list[str]:
    """Return the devices that a call names, one or a list of them."""
    given = module.value(argument(call, 0, "device_name", "device", "devices"))
    each = given.elts if isinstance(given, ast.List | ast.Tuple) else [given]
    return [text for node in each for text in texts(module, node)]


@program_check(UNGUARDED, PARTIAL_GROWTH)
def check_index(program: Program, _: Project) -> Iterator[Hit]:
    for module in program.modules:
        for node in module.nodes:
            if not _takes_one(module, node):
                continue
            if not _guarded(module, node):
                message = f"{source(node)[:60]} is an error on a machine without such a device"
                yield hit(UNGUARDED, module.snippet, node, message)

    for module, call in program.calls("tensorflow.config.set_memory_growth"):
        device = module.value(argument(call, 0, "device"))
        if device is not None and _takes_one(module, device):
            yield hit(PARTIAL_GROWTH, module.snippet, call, "memory growth is set for one GPU only")


def _takes_one(module: Module, node: ast.AST) -> bool:
    """Whether this fails on an empty list: `gpus[0]`, `gpus.pop()`, `next(iter(gpus))`, `gpu, = gpus`."""
    if isinstance(node, ast.Subscript):
        return not isinstance(node.slice, ast.Slice) and _is_list(module, node.value)
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr == "pop":
            return _is_list(module, node.func.value)
        inner = node.args[0] if module.called(node) == "next" and len(node.args) == 1 else None
        return module.called(inner) == "iter" and any(_is_list(module, a) for a in inner.args)  # type: ignore[union-attr]
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple | ast.List):
        single = any(not isinstance(each, ast.Starred) for each in node.targets[0].elts)
        return single and _is_list(module, node.value)
    return False


@program_check(NO_GROWTH)
def check_growth(program: Program, _: Project) -> Iterator[Hit]:
    if program.calls(*_GROWTH) or not program.training or any(program.variables("TF_FORCE_GPU_ALLOW_GROWTH")):
        return
    used = [*_listed(program), *_placed(program), *program.calls("tensorflow.config.set_visible_devices")]
    for module, call in used[:1]:
        yield hit(NO_GROWTH, module.snippet, call, "GPUs are used, but memory growth is not set")


@program_check(SILENT_CPU)
def check_fallback(program: Program, project: Project) -> Iterator[Hit]:
    listed = _listed(program)
    if any(_stops(module, call) for module, call in listed):
        return
    branched = [(module, node) for module, call in listed for node in _branches(module, call)]
    if branched:
        module, node = branched[0]
        yield hit(SILENT_CPU, module.snippet, node, "without a GPU the program continues on the CPU")
    elif (asked := _asked(program)) is not None:
        module, node = asked
        yield hit(SILENT_CPU, module.snippet, node, "without the device the program continues on another one")
    elif not listed and _placed(program):
        module, call = _placed(program)[0]
        yield hit(SILENT_CPU, module.snippet, call, "a GPU is used, but nothing checks that there is one")
    elif project.gpu and program.training:
        module, call = program.training[0]
        yield hit(
            SILENT_CPU,
            module.snippet,
            call,
            "the profile asks for a GPU, but nothing here checks that it is used",
        )


@program_check(VISIBLE, PLACEMENT)
def check_settings(program: Program, _: Project) -> Iterator[Hit]:
    for module, node, name, value in program.variables(*_HIDING):
        yield hit(VISIBLE, module.snippet, node, f"{name} is set to {value or 'a fixed value'!r} in the code")
    for module, call in program.calls("tensorflow.config.set_soft_device_placement"):
        if truth(module, argument(call, 0, "enabled")) is False:
            yield hit(PLACEMENT, module.snippet, call, "soft device placement is switched off")


@program_check(REPLICAS)
def check_replicas(program: Program, _: Project) -> Iterator[Hit]:
    strategies = [(module, call) for name, module, call in program.named if _STRATEGY.match(name)]
    follows = any(
        isinstance(node, ast.Attribute) and node.attr == "num_replicas_in_sync"
        for module in program.modules
        for node in module.nodes
    )
    fixed = any(
        number(module, argument(call, 0, "batch_size")) is not None
        for module, call in program.methods("batch")
    ) or any(number(m, argument(c, -1, "batch_size")) is not None for m, c in program.methods("fit"))
    if strategies and fixed and not follows:
        module, call = strategies[0]
        yield hit(REPLICAS, module.snippet, call, "batch sizes do not follow strategy.num_replicas_in_sync")


def _asked(program: Program) -> tuple[Module, ast.AST] | None:
    """Return a branch on tf.test.is_gpu_available(), or a strategy with an alternative for machines without
    TPU.
    """
    for module, call in program.calls(*_ASKS):
        if not _stops(module, call) and (branch := next(_branches(module, call), None)):
            return module, branch
    for module in program.modules:
        for node in module.nodes:
            if (
                isinstance(node, ast.Try)
                and node.handlers
                and _makes(module, node.body, "TPU")
                and _makes(module, node.handlers[0].body, "strategy")
            ):
                return module, node.handlers[0]
    return None


def _makes(module: Module, body: list[ast.stmt], word: str) -> bool:
    names = [module.called(call) for statement in body for call in calls_in(statement)]
    return any(n.startswith("tensorflow.distribute.") and word.lower() in n.lower() for n in names)


# ---------------------------------------------------------------- lists of devices


def _listed(program: Program) -> list[Found]:
    """Return the calls that list GPUs."""
    return [each for each in program.calls(*_LISTS) if not _other_kind(*each)]


def _other_kind(module: Module, call: ast.Call) -> bool:
    kinds = texts(module, argument(call, 0, "device_type"))
    return bool(kinds) and all(kind.upper() != "GPU" for kind in kinds)


def _placed(program: Program) -> list[Found]:
    """Return where operations are placed on a GPU or TPU by name."""
    return [
        (module, call)
        for module, call in program.calls(*_DEVICE_CALLS)
        if any((f := _DEVICE.match(t)) and f[2].upper() != "CPU" for t in _named_devices(module, call))
    ]


def _is_list(module: Module, node: ast.AST) -> bool:
    value = module.value(node)
    return module.called(value) in _LISTS and not _other_kind(module, value)  # type: ignore[arg-type]


def _tells(module: Module, test: ast.AST) -> bool:
    """Whether a condition tests a list of devices."""
    return any(
        (isinstance(node, ast.Name) and _is_list(module, node))
        or (
            isinstance(node, ast.Call)
            and module.called(node) in (*_LISTS, "tensorflow.test.is_gpu_available")
        )
        for node in ast.walk(test)
    )


def _guarded(module: Module, node: ast.AST) -> bool:
    child = node
    for parent in module.above(node):
        if (
            isinstance(parent, ast.If | ast.IfExp | ast.While)
            and child is not parent.test
            and _tells(module, parent.test)
        ):
            return True
        if isinstance(parent, ast.BoolOp) and any(
            _tells(module, value) for value in parent.values if value is not child
        ):
            return True
        if isinstance(parent, ast.Try) and child in parent.body:
            return True
        child = parent
    scope = module.scope(node)
    earlier = [
        n
        for n in ast.walk(scope)
        if isinstance(n, ast.If | ast.Assert) and n.lineno < getattr(node, "lineno", 0)
    ]
    return any(_tells(module, n.test) and (isinstance(n, ast.Assert) or _ends(n.body)) for n in earlier)


def _ends(body: list[ast.stmt]) -> bool:
    """Whether a branch ends the function or program: by an error, a return, or an exit."""
    last = body[-1] if body else None
    if isinstance(last, ast.Raise | ast.Return | ast.Continue):
        return True
    return any(
        source(c.func) in ("sys.exit", "exit", "quit", "os._exit") for stmt in body for c in calls_in(stmt)
    )


def _stops(module: Module, call: ast.Call) -> bool:
    """Whether the program ends if the listed devices are absent."""
    for node in module.nodes:
        if isinstance(node, ast.Assert) and _about(module, node.test, call):
            return True
        if isinstance(node, ast.If) and _about(module, node.test, call):
            branches = [*node.body, *node.orelse]
            raises = any(isinstance(each, ast.Raise) for stmt in branches for each in ast.walk(stmt))
            exits = any(
                source(c.func) in ("sys.exit", "exit", "quit") for stmt in branches for c in calls_in(stmt)
            )
            if raises or exits:
                return True
    return False


def _about(module: Module, test: ast.AST, call: ast.Call) -> bool:
    if any(node is call for node in ast.walk(test)):
        return True
    held = [name for name in names_in(test) if any(module.value(load) is call for load in module.loads(name))]
    return bool(held)


def _branches(module: Module, call: ast.Call) -> Iterator[ast.AST]:
    """Return conditions on the list that have a branch for a machine without the device."""
    for node in module.nodes:
        if isinstance(node, ast.IfExp) and _about(module, node.test, call):
            yield node
        elif isinstance(node, ast.If) and _about(module, node.test, call) and _goes_on(node):
            yield node.test


def _goes_on(node: ast.If) -> bool:
    """Whether a branch has an alternative, or only reports that something is missing."""
    return bool(node.orelse) or (isinstance(node.test, ast.UnaryOp) and not _ends(node.body))
