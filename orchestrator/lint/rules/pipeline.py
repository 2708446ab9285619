"""ORC403-408: tf.data pipelines whose order or speed depends on the machine."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from orchestrator.lint.datasets import chain, dataset_calls, is_dataset
from orchestrator.lint.module import Module
from orchestrator.lint.program import Program
from orchestrator.lint.registry import Project, program_check
from orchestrator.lint.rule import Hit, Rule, Severity, hit
from orchestrator.lint.rules.seeds import TENSORFLOW, Randomness
from orchestrator.lint.values import argument, is_none, names_in, number, source, truth, unclear

INTERLEAVE = Rule(
    "ORC403",
    "interleave-cycle",
    Severity.WARNING,
    "interleave without a fixed cycle_length, or with AUTOTUNE; num_parallel_reads=AUTOTUNE",
    "The default depends on the number of cores: another machine reads the records in another order, "
    "deterministic or not.",
    "Write cycle_length=4 (any constant), and num_parallel_calls beside it.",
)
SHUFFLE = Rule(
    "ORC404",
    "shuffle-without-seed",
    Severity.WARNING,
    "a dataset is shuffled without a seed argument",
    "The order differs with every run; with a global seed it still changes with every operation added "
    "before it.",
    "Pass seed=.",
)
SPLIT = Rule(
    "ORC405",
    "split-of-reshuffled",
    Severity.WARNING,
    "take or skip after a shuffle that reshuffles in every epoch",
    "Records held out for validation are trained on in the next epoch.",
    "Split before shuffling, or pass reshuffle_each_iteration=False.",
)
BUFFER = Rule(
    "ORC406",
    "small-shuffle-buffer",
    Severity.INFO,
    "a shuffle buffer smaller than the data",
    "The order depends on how the files were sorted: the first records stay near the beginning.",
    "Make the buffer as large as the data, or shuffle the files too.",
)
UNORDERED = Rule(
    "ORC407",
    "order-given-up",
    Severity.WARNING,
    "deterministic=False in a pipeline or its options",
    "Records arrive in the order in which threads finish: different in every run.",
    "Leave it at True; if that is too slow, increase num_parallel_calls.",
)
PREFETCH = Rule(
    "ORC408",
    "no-prefetch",
    Severity.INFO,
    "no prefetch: the model waits while batches are prepared",
    "With a slower disk or fewer cores, the accelerator is idle between steps.",
    "End the pipeline with .prefetch(tf.data.AUTOTUNE).",
)

_FROM_DIRECTORY = re.compile(
    r"keras\.utils\.(image|text|audio)_dataset_from_directory$|.*\.make_csv_dataset$"
)
_GENERATOR_METHODS = {"flow_from_directory", "flow_from_dataframe"}
"""Methods of ImageDataGenerator that shuffle by default."""
_AUTOTUNE = {"tensorflow.data.AUTOTUNE"}
_SIZES = {"mnist": 60000, "fashion_mnist": 60000, "cifar10": 50000, "cifar100": 50000, "imdb": 25000}


@program_check(INTERLEAVE)
def check_interleave(program: Program, _: Project) -> Iterator[Hit]:
    for module, call in program.methods("interleave"):
        if unclear(call):
            continue
        given = argument(call, 1, "cycle_length")
        if given is None or is_none(given):
            yield hit(INTERLEAVE, module.snippet, call, "cycle_length depends on the number of cores")
        elif _autotune(module, given):
            yield hit(
                INTERLEAVE,
                module.snippet,
                given,
                "cycle_length is AUTOTUNE, which depends on the number of cores",
            )
    for name in ("TFRecordDataset", "FixedLengthRecordDataset"):
        for module, call in program.calls(f"tensorflow.data.{name}"):
            reads = argument(call, -1, "num_parallel_reads")
            if reads is not None and _autotune(module, reads):
                message = "num_parallel_reads is AUTOTUNE: the order of files depends on the number of cores"
                yield hit(INTERLEAVE, module.snippet, reads, message)


def _autotune(module: Module, node: ast.AST) -> bool:
    minus_one = isinstance(node, ast.UnaryOp) and source(node) == "-1"
    return minus_one or module.dotted(node) in _AUTOTUNE


@program_check(SHUFFLE)
def check_shuffle(program: Program, _: Project) -> Iterator[Hit]:
    seeded = TENSORFLOW in Randomness(program).seeded
    severity = Severity.INFO if seeded else Severity.WARNING
    said = "it has no seed argument" + (
        "; with the global seed, its order changes if the code before it changes" if seeded else ""
    )
    for module in program.modules:
        for call in dataset_calls(module, "shuffle"):
            if not isinstance(module.parent(call), ast.Expr) and _unseeded(call, 1):
                yield hit(SHUFFLE, module.snippet, call, f"shuffle: {said}", severity=severity)
        for call in module.calls:
            name = module.called(call)
            method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
            if method in _GENERATOR_METHODS and module.imports_any("keras", "tensorflow"):
                name = method
            if (
                (_FROM_DIRECTORY.match(name) or name == method != "")
                and _unseeded(call, -1)
                and truth(module, argument(call, -1, "shuffle")) is not False
            ):
                yield hit(SHUFFLE, module.snippet, call, f"{name} shuffles: {said}", severity=severity)
            elif _shuffles_files(module, call):
                message = "shuffle_files=True without a shuffle_seed in a read_config"
                yield hit(SHUFFLE, module.snippet, call, message, severity=severity)


def _shuffles_files(module: Module, call: ast.Call) -> bool:
    if module.called(call) != "tensorflow_datasets.load" or unclear(call):
        return False
    shuffles = truth(module, argument(call, -1, "shuffle_files"))
    return shuffles is True and argument(call, -1, "read_config") is None


def _unseeded(call: ast.Call, position: int) -> bool:
    given = argument(call, position, "seed")
    return not unclear(call) and (given is None or is_none(given))


@program_check(SPLIT)
def check_split(program: Program, _: Project) -> Iterator[Hit]:
    for module in program.modules:
        told: set[int] = set()
        for call in dataset_calls(module, "take", "skip"):
            shuffle = _shuffled(module, call)
            if shuffle is None or id(shuffle) in told or not _both_sides(module, call):
                continue
            told.add(id(shuffle))
            if truth(module, argument(shuffle, 2, "reshuffle_each_iteration")) is not False and not unclear(
                shuffle
            ):
                yield hit(SPLIT, module.snippet, call, "the two parts differ in every epoch")


def _shuffled(module: Module, call: ast.Call) -> ast.Call | None:
    """Return the shuffle whose result `call` divides."""
    node: ast.AST | None = call.func.value if isinstance(call.func, ast.Attribute) else None
    for _ in range(4):
        for each in chain(node) if node else ():
            method = each.func.attr if isinstance(each.func, ast.Attribute) else ""
            if method == "shuffle":
                return each
            if method == "cache":
                return None
        last = list(chain(node))[-1] if isinstance(node, ast.Call) else None
        base = last.func.value if last and isinstance(last.func, ast.Attribute) else node
        node = _latest(module, base, call) if isinstance(base, ast.Name) else None
        if node is None:
            return None
    return None


def _latest(module: Module, name: ast.Name, before: ast.AST) -> ast.AST | None:
    """Return the value that was assigned to `name` last, above a place."""
    bound = [
        value for value in module.bound(name) if getattr(value, "lineno", 0) < getattr(before, "lineno", 0)
    ]
    return bound[-1] if bound else None


def _both_sides(module: Module, call: ast.Call) -> bool:
    """Whether both `take` and `skip` are called on the same dataset."""
    assert isinstance(call.func, ast.Attribute)
    base, other = source(call.func.value), "skip" if call.func.attr == "take" else "take"
    return any(
        isinstance(each.func, ast.Attribute) and each.func.attr == other and source(each.func.value) == base
        for each in module.calls
    )


@program_check(BUFFER)
def check_buffer(program: Program, _: Project) -> Iterator[Hit]:
    for module in program.modules:
        for call in dataset_calls(module, "shuffle"):
            buffer, size = number(module, argument(call, 0, "buffer_size")), _size(module, call)
            if buffer is not None and size is not None and 0 < buffer < size:
                yield hit(BUFFER, module.snippet, call, f"the buffer holds {buffer:,} of {size:,} records")


def _size(module: Module, call: ast.Call) -> int | None:
    """Return how many records a pipeline has, if its source shows it."""
    calls = list(chain(call))
    for _ in range(3):
        root = calls[-1]
        base = root.func.value if isinstance(root.func, ast.Attribute) else None
        value = module.value(base) if isinstance(base, ast.Name) else None
        if not isinstance(value, ast.Call):
            break
        calls += list(chain(value))
    if any(
        isinstance(c.func, ast.Attribute) and c.func.attr in ("batch", "take", "skip", "filter")
        for c in calls[1:]
    ):
        return None
    for each in calls:
        name = module.called(each)
        if name == "tensorflow.data.Dataset.range" and len(each.args) == 1:
            return number(module, each.args[0])
        if name == "tensorflow.data.Dataset.from_tensor_slices" and each.args:
            return _length(module, each.args[0])
    return None


def _length(module: Module, node: ast.AST) -> int | None:
    first = node.elts[0] if isinstance(node, ast.Tuple) and node.elts else node
    value = module.value(first)
    if isinstance(value, ast.Call):
        tail = module.called(value).rpartition(".")[2]
        if tail in ("rand", "randn", "arange", "zeros", "ones", "normal", "random", "range") and value.args:
            shape = argument(value, 0, "size", "shape")
            return number(module, shape.elts[0] if isinstance(shape, ast.Tuple) and shape.elts else shape)
    return _bundled(module, first)


def _bundled(module: Module, node: ast.AST) -> int | None:
    """Return the number of x_train for `(x_train, y_train), … = keras.datasets.mnist.load_data()`."""
    if not isinstance(node, ast.Name):
        return None
    for each in module.nodes:
        if (
            isinstance(each, ast.Assign)
            and isinstance(each.value, ast.Call)
            and isinstance(each.targets[0], ast.Tuple)
        ):
            data = re.fullmatch(r"keras\.datasets\.(\w+)\.load_data", module.called(each.value))
            if data and each.targets[0].elts and node.id in names_in(each.targets[0].elts[0]):
                return _SIZES.get(data[1])
    return None


@program_check(UNORDERED)
def check_unordered(program: Program, _: Project) -> Iterator[Hit]:
    for module in program.modules:
        for call in dataset_calls(module, "map", "interleave", "batch", "padded_batch"):
            given = argument(call, -1, "deterministic")
            if truth(module, given) is False and given is not None:
                yield hit(UNORDERED, module.snippet, call, "the pipeline does not keep its order")
        for call in module.calls:
            if truth(module, argument(call, -1, "sloppy")) is True and "tensorflow" in module.called(call):
                yield hit(
                    UNORDERED, module.snippet, call, "with sloppy=True the pipeline does not keep its order"
                )
        for node in module.nodes:
            if isinstance(node, ast.Assign) and truth(module, node.value) is False:
                named = [t.attr for t in node.targets if isinstance(t, ast.Attribute)]
                if {"deterministic", "experimental_deterministic"} & set(named) and module.imports_any(
                    "tensorflow"
                ):
                    yield hit(
                        UNORDERED,
                        module.snippet,
                        node,
                        "with these options the pipeline does not keep its order",
                    )


@program_check(PREFETCH)
def check_prefetch(program: Program, _: Project) -> Iterator[Hit]:
    if not program.training or any(program.methods("prefetch")):
        return
    for module in program.modules:
        batches = [
            call for call in dataset_calls(module, "batch", "padded_batch") if is_dataset(module, call)
        ]
        if batches:
            yield hit(PREFETCH, module.snippet, batches[0], "no prefetch follows")
            return
