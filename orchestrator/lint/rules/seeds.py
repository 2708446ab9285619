"""ORC301-304: whether everything random is seeded, and whether operations are made deterministic."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from orchestrator.lint.datasets import dataset_calls
from orchestrator.lint.module import Module
from orchestrator.lint.program import Found, Program
from orchestrator.lint.registry import Project, program_check
from orchestrator.lint.rule import Hit, Rule, Severity, hit
from orchestrator.lint.values import argument, is_none, unclear

NO_SEED = Rule(
    "ORC301",
    "no-seed",
    Severity.WARNING,
    "random numbers are drawn, or a network is trained, without any seed",
    "Each run starts from other weights and other data, so two machines cannot be compared.",
    "Call keras.utils.set_random_seed(1) first: it seeds Python's random, NumPy and TensorFlow.",
)
PARTIAL_SEED = Rule(
    "ORC302",
    "partial-seed",
    Severity.WARNING,
    "Python's random, NumPy or TensorFlow is used without a seed, while another one is seeded",
    "Numbers of the unseeded generator differ in every run. Keras 3 draws the seeds of its layers from "
    "Python's random.",
    "Call keras.utils.set_random_seed(1) instead of the separate seeds.",
)
NOT_DETERMINISTIC = Rule(
    "ORC303",
    "determinism-unset",
    Severity.WARNING,
    "seeds are set, but operations are not made deterministic",
    "Threads and GPU kernels sum in varying order: the same seed gives other gradients.",
    "Call tf.config.experimental.enable_op_determinism() after the seed, on both sides.",
)
LATE_SEED = Rule(
    "ORC304",
    "late-seed",
    Severity.WARNING,
    "the seed is set after random numbers were drawn or a network was created",
    "Numbers drawn before the seed differ in every run.",
    "Seed before anything else, right after the imports.",
)

PYTHON, NUMPY, TENSORFLOW = "Python's random", "NumPy", "TensorFlow"
_ALL = frozenset({PYTHON, NUMPY, TENSORFLOW})
_SEEDERS = {
    "random.seed": {PYTHON},
    "numpy.random.seed": {NUMPY},
    "numpy.random.set_state": {NUMPY},
    "tensorflow.random.set_seed": {TENSORFLOW},
    "tensorflow.random.set_random_seed": {TENSORFLOW},
    "tensorflow.set_random_seed": {TENSORFLOW},
    "tensorflow.compat.v1.set_random_seed": {TENSORFLOW},
    "keras.utils.set_random_seed": _ALL,
    "transformers.set_seed": _ALL,
    "lightning.seed_everything": _ALL,
    "pytorch_lightning.seed_everything": _ALL,
}
_FOREIGN_SEEDER = re.compile(
    r"(^|[._])(seed_everything|set_(global_|all_)?seeds?|fix_seeds?|seed_all|set_determinism)$"
)
_PYTHON_DRAWS = frozenset(
    f"random.{name}"
    for name in [
        "random",
        "randint",
        "randrange",
        "choice",
        "choices",
        "sample",
        "shuffle",
        "uniform",
        "gauss",
        "normalvariate",
        "betavariate",
        "triangular",
        "getrandbits",
        "expovariate",
    ]
)
_NOT_DRAWS = frozenset(
    [
        "seed",
        "default_rng",
        "Generator",
        "RandomState",
        "SeedSequence",
        "PCG64",
        "set_state",
        "get_state",
        "MT19937",
        "Philox",
        "BitGenerator",
        "mtrand",
    ]
)
_TF_DRAW = re.compile(r"tensorflow\.(random\.(normal|uniform|shuffle|truncated_normal|categorical|gamma)"
                      r"|image\.random_\w+|keras\.backend\.random_\w+)$|keras\.random\.(normal|uniform|shuffle|randint|"
                      r"truncated_normal|categorical|dropout|binomial|gamma|beta)$")  # fmt: skip
_SPLITS = re.compile(
    r"sklearn\.(model_selection\.(train_test_split|\w*ShuffleSplit)|utils\.(shuffle|resample)|ensemble\.\w+"
    r"|cluster\.(KMeans|MiniBatchKMeans)|datasets\.make_\w+|linear_model\.SGD\w+|neural_network\.\w+)$"
)
_MODEL = re.compile(
    r"keras\.(Sequential|Model)$|keras\.layers\.(Dense|Conv\w*|LSTM|GRU|Embedding|SimpleRNN)$"
)


class Randomness:
    """What a program seeds and what it draws from, with the first place of each."""

    def __init__(self, program: Program) -> None:
        self.seeders = [
            (module, call, seeds) for name, module, call in program.named if (seeds := _seeds(name, call))
        ]
        self.seeded = frozenset(kind for *_, seeds in self.seeders for kind in seeds)
        self.drawn: dict[str, list[Found]] = {}
        for kind, module, call in _draws(program):
            self.drawn.setdefault(kind, []).append((module, call))


def _seeds(name: str, call: ast.Call) -> frozenset[str]:
    if not call.args and not call.keywords and name in _SEEDERS:
        return frozenset()  # random.seed() uses the time
    if any(is_none(each) for each in call.args):
        return frozenset()
    if name in _SEEDERS:
        return frozenset(_SEEDERS[name])
    return _ALL if _FOREIGN_SEEDER.search(name) else frozenset()


def _draws(program: Program) -> Iterator[tuple[str, Module, ast.Call]]:
    for name, module, call in program.named:
        tail = name.rpartition(".")[2]
        if name in _PYTHON_DRAWS:
            yield PYTHON, module, call
        elif (name.startswith("numpy.random.") and tail not in _NOT_DRAWS) or (
            (_SPLITS.match(name) or _shuffled_folds(name, call))
            and not _settled(call, "random_state")
            and not _unshuffled(call)
        ):
            yield NUMPY, module, call
        elif _TF_DRAW.match(name) and not _settled(call, "seed"):
            yield TENSORFLOW, module, call
        elif _MODEL.match(name):
            yield PYTHON, module, call
            yield TENSORFLOW, module, call
    yield from _drawn_by_pandas(program)
    for module, call in program.training:
        yield PYTHON, module, call
        yield TENSORFLOW, module, call
    for module in program.modules:
        for call in dataset_calls(module, "shuffle"):
            if not _settled(call, "seed", position=1):
                yield TENSORFLOW, module, call


def _drawn_by_pandas(program: Program) -> Iterator[tuple[str, Module, ast.Call]]:
    """Yield `frame.sample(frac=1)`, which draws from NumPy's global generator."""
    for module, call in program.methods("sample"):
        told = any(keyword.arg in ("frac", "n") for keyword in call.keywords)
        if told and module.imports_any("pandas") and not _settled(call, "random_state"):
            yield NUMPY, module, call


def _settled(call: ast.Call, name: str, position: int = -1) -> bool:
    given = argument(call, position, name)
    return unclear(call) or (given is not None and not is_none(given))


def _shuffled_folds(name: str, call: ast.Call) -> bool:
    given = argument(call, 1, "shuffle")
    shuffles = isinstance(given, ast.Constant) and given.value is True
    return shuffles and re.match(r"sklearn\.model_selection\.\w*KFold$", name) is not None


def _unshuffled(call: ast.Call) -> bool:
    given = argument(call, -1, "shuffle")
    return isinstance(given, ast.Constant) and given.value is False


@program_check(NO_SEED, PARTIAL_SEED)
def check_seeds(program: Program, _: Project) -> Iterator[Hit]:
    found = Randomness(program)
    missing = {kind: calls for kind, calls in found.drawn.items() if kind not in found.seeded}
    if not missing:
        return
    at_once = (module.top_level(call) for calls in missing.values() for module, call in calls)
    if not found.seeded and not program.runs and not any(at_once):
        return
    if not found.seeded:
        module, call = _first([calls[0] for calls in map(_ordered, missing.values())], program)
        yield hit(
            NO_SEED,
            module.snippet,
            call,
            f"{_listed(missing)} {'is' if len(missing) == 1 else 'are'} not seeded anywhere",
        )
        return
    for kind in (PYTHON, NUMPY, TENSORFLOW):
        if kind in missing and not (kind == TENSORFLOW and not program.uses_keras):
            module, call = _ordered(missing[kind])[0]
            yield hit(PARTIAL_SEED, module.snippet, call, _partly(kind, found))


def _partly(kind: str, randomness: Randomness) -> str:
    others = _listed(dict.fromkeys(sorted(randomness.seeded)))
    weights = "; Keras 3 draws initial weights from it" if kind == PYTHON else ""
    verb = "is" if len(randomness.seeded) == 1 else "are"
    return f"{kind} is used and not seeded, while {others} {verb}{weights}"


def _listed(kinds: dict[str, object] | dict[str, list[Found]]) -> str:
    names = [kind for kind in (PYTHON, NUMPY, TENSORFLOW) if kind in kinds]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _ordered(calls: list[Found]) -> list[Found]:
    return sorted(calls, key=lambda each: each[1].lineno)


def _first(calls: list[Found], program: Program) -> Found:
    return min(calls, key=lambda each: (program.modules.index(each[0]), each[1].lineno))


@program_check(NOT_DETERMINISTIC)
def check_determinism(program: Program, project: Project) -> Iterator[Hit]:
    if not program.on_tensorflow or _deterministic(program, project):
        return
    seeders = [(m, c) for m, c, seeds in Randomness(program).seeders if seeds & {TENSORFLOW}]
    if seeders:
        module, call = _first(seeders, program)
        yield hit(
            NOT_DETERMINISTIC,
            module.snippet,
            call,
            "seeds are set, but deterministic operations are not enabled",
        )


def _deterministic(program: Program, project: Project) -> bool:
    names = ("TF_DETERMINISTIC_OPS", "TF_CUDNN_DETERMINISTIC")
    return bool(
        program.calls("tensorflow.config.enable_op_determinism")
        or any(value not in ("0", "false") for *_, value in program.variables(*names))
        or project.variables & set(names)
    )


@program_check(LATE_SEED)
def check_late(program: Program, _: Project) -> Iterator[Hit]:
    found = Randomness(program)
    for module, call, seeds in found.seeders:
        scope = module.scope(call)
        lines = [
            line
            for kind in seeds
            for place, other in found.drawn.get(kind, ())
            if place is module
            for line in _runs_at(module, other, scope)
            if line < call.lineno
        ]
        sooner = any(m is module and s & seeds and c.lineno < call.lineno for m, c, s in found.seeders)
        if lines and not sooner and not isinstance(scope, ast.ClassDef):
            line = min(lines)
            yield hit(
                LATE_SEED,
                module.snippet,
                call,
                f"random numbers were drawn before this seed, at line {module.snippet.place(line)[1]}",
            )


def _runs_at(module: Module, call: ast.Call, scope: ast.AST) -> list[int]:
    """Return the lines of `scope` at which `call` happens: its own, or those that call the function
    it is in.
    """
    own = module.scope(call)
    if own is scope:
        return [call.lineno]
    if not isinstance(own, ast.FunctionDef) or not isinstance(scope, ast.Module):
        return []
    return [load.lineno for load in module.loads(own.name) if _is_call_in(module, load, scope)]


def _is_call_in(module: Module, load: ast.Name, scope: ast.AST) -> bool:
    parent = module.parent(load)
    return isinstance(parent, ast.Call) and parent.func is load and module.scope(load) is scope
