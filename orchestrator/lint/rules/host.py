"""ORC409-410: numbers that depend on the machine."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from orchestrator.lint.module import Module
from orchestrator.lint.registry import module_check
from orchestrator.lint.rule import Hit, Rule, Severity, hit
from orchestrator.lint.values import calls_in

SIZE = Rule(
    "ORC409",
    "host-dependent-size",
    Severity.WARNING,
    "batch size, epochs, steps, buffer or cycle length from the machine's cores, memory or devices",
    "Another machine trains with other batches or for another number of steps: the model differs.",
    "Use a constant, or take it from an argument that both sides get.",
)
THREADS = Rule(
    "ORC410",
    "host-dependent-threads",
    Severity.WARNING,
    "threads or workers from the machine's number of cores",
    "The number of intra-op threads changes the order of sums: gradients differ in the last bits. Workers "
    "change the duration only.",
    "Use a constant, equal on both sides.",
)

_HOST = frozenset(
    [
        "os.cpu_count",
        "multiprocessing.cpu_count",
        "os.process_cpu_count",
        "os.sched_getaffinity",
        "psutil.cpu_count",
        "joblib.cpu_count",
        "os.getloadavg",
        "shutil.disk_usage",
        "tensorflow.config.get_memory_info",
        "tensorflow.config.get_device_details",
        "psutil.virtual_memory",
        "tensorflow.config.list_physical_devices",
        "tensorflow.config.list_logical_devices",
        "torch.cuda.device_count",
        "torch.cuda.is_available",
        "tensorflow.test.is_gpu_available",
        "tensorflow.test.gpu_device_name",
        "socket.gethostname",
        "platform.node",
        "platform.system",
        "platform.machine",
        "os.uname",
    ]
)
_SIZES = re.compile(r"(^|_)(batch|batch_?size|bs|epochs?|n_epochs|num_epochs|steps(_per_\w+)?|buffer(_size)?"
                    r"|shuffle_buffer|cycle_length|block_length|learning_rate|lr|num_shards)$",
    re.IGNORECASE,
)  # fmt: skip
_THREADS = re.compile(r"(intra|inter)_?op|num_threads|OMP_NUM_THREADS|(^|_)threads$", re.IGNORECASE)
_WORKERS = re.compile(r"workers|num_parallel_(calls|reads)|n_jobs|processes|parallel", re.IGNORECASE)
_SETTERS = frozenset(
    [
        "tensorflow.config.threading.set_intra_op_parallelism_threads",
        "tensorflow.config.threading.set_inter_op_parallelism_threads",
    ]
)
_METHODS = {"batch": SIZE, "shuffle": SIZE, "repeat": SIZE, "take": SIZE, "interleave": SIZE}


@module_check(SIZE, THREADS)
def check_host(module: Module) -> Iterator[Hit]:
    for node in module.nodes:
        if isinstance(node, ast.If):
            yield from _branched(module, node)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                yield from _judged(module, node.value, _named(target), node)
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                yield from _judged(module, value, str(getattr(key, "value", "")), value)
        elif isinstance(node, ast.keyword) and node.arg == "default":
            yield from _judged(module, node.value, _option(module, node), node.value)
        elif isinstance(node, ast.keyword) and node.arg:
            yield from _judged(module, node.value, node.arg, node.value)
        elif isinstance(node, ast.Call) and node.args:
            yield from _positional(module, node)


def _branched(module: Module, node: ast.If) -> Iterator[Hit]:
    """Find a size that depends on the machine: `if gpus: batch_size = 256`."""
    found = _host(module, node.test)
    for statement in [*node.body, *node.orelse] if found else ():
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        named = next((name for target in targets if _SIZES.search(name := _named(target))), "")
        if named:
            yield hit(SIZE, module.snippet, statement, f"{named} depends on {found}")


def _option(module: Module, keyword: ast.keyword) -> str:
    """Return the name of the command-line option whose default this is."""
    call = module.parent(keyword)
    first = call.args[0] if isinstance(call, ast.Call) and call.args else None
    return str(getattr(first, "value", "")).lstrip("-").replace("-", "_")


def _named(target: ast.expr) -> str:
    if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
        return str(target.slice.value)
    return str(getattr(target, "id", "") or getattr(target, "attr", ""))


def _positional(module: Module, call: ast.Call) -> Iterator[Hit]:
    if module.called(call) in _SETTERS:
        yield from _judged(module, call.args[0], "intra_op", call)
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    direct = [each for each in call.args if not (isinstance(each, ast.Name) and _SIZES.search(each.id))]
    if method in _METHODS and any(_host(module, each) for each in direct):
        yield hit(SIZE, module.snippet, call, f"{method} gets a number that depends on the machine")


def _judged(module: Module, value: ast.AST, name: str, node: ast.AST) -> Iterator[Hit]:
    """Find a machine-dependent value that is assigned to a name such as batch_size."""
    found = _host(module, value)
    if not found:
        return
    if _SIZES.search(name):
        yield hit(SIZE, module.snippet, node, f"{name} depends on {found}")
    elif _THREADS.search(name):
        yield hit(THREADS, module.snippet, node, f"{name} depends on {found}")
    elif _WORKERS.search(name):
        yield hit(
            THREADS,
            module.snippet,
            node,
            f"{name} depends on {found}, which changes only the duration",
            severity=Severity.INFO,
        )


def _host(module: Module, value: ast.AST) -> str:
    """Return the function of the machine from which `value` is computed, through at most one name; "" if
    none.
    """
    for part in [value, *(module.value(n) for n in ast.walk(value) if isinstance(n, ast.Name))]:
        for call in calls_in(part) if part is not None else ():
            name = module.called(call)
            if name in _HOST:
                return f"{name}()"
        if part is not None and _replicas(part):
            return "the number of replicas"
    return ""


def _replicas(value: ast.AST) -> bool:
    """Whether a size is `64 * strategy.num_replicas_in_sync`; dividing by it leaves the whole batch
    unchanged.
    """
    return any(
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Mult)
        and any(
            isinstance(s, ast.Attribute) and s.attr == "num_replicas_in_sync" for s in (node.left, node.right)
        )
        for node in ast.walk(value)
    )
