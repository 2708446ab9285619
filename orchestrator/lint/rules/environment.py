"""ORC821-824: variables that are set too late or without effect, or are set here alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from orchestrator.lint.module import Module
from orchestrator.lint.program import Program
from orchestrator.lint.registry import Project, program_check
from orchestrator.lint.rule import Hit, Rule, Severity, hit
from orchestrator.lint.variables import read_variables

LATE = Rule(
    "ORC821",
    "late-determinism",
    Severity.WARNING,
    "TF_DETERMINISTIC_OPS set after TensorFlow is imported",
    "TensorFlow reads it once, at the first use: set later, it may have no effect, without a message.",
    "Call tf.config.experimental.enable_op_determinism(), or set the variable before the import.",
)
LATE_VARIABLE = Rule(
    "ORC822",
    "late-variable",
    Severity.WARNING,
    "a variable of TensorFlow, XLA, oneDNN, OpenMP or CUDA set after the import",
    "The library has already read the old value, which may come from your shell and be missing on another "
    "machine.",
    "Set it before the first import, or under train.env in the profile.",
)
HASH_SEED = Rule(
    "ORC823",
    "hashseed-at-run-time",
    Severity.WARNING,
    "PYTHONHASHSEED set by the program itself",
    "Python reads it before the program starts: the order of sets of strings stays random.",
    "Set it outside (train.env), and sort values from sets.",
)
SET_HERE = Rule(
    "ORC824",
    "variable-of-this-shell",
    Severity.WARNING,
    "a variable that the program reads, and that is set in this shell and not in the profile",
    "The machine does not have the variable: the run fails there, or uses the default.",
    "Add it to train.env in the profile; if it names a folder of this computer, declare the folder as data.",
    of_imports=True,
)

_DETERMINISM = {"TF_DETERMINISTIC_OPS", "TF_CUDNN_DETERMINISTIC"}
_READ_AT_IMPORT = re.compile(
    r"^(TF_(?!CONFIG$)\w+|XLA_FLAGS|OMP_\w+|MKL_\w+|OPENBLAS_\w+|KMP_\w+|ONEDNN_\w+|DNNL_\w+|KERAS_(BACKEND|HOME)|CUDA_(?!VISIBLE_DEVICES)\w+"
    r"|CUBLAS_\w+|NVIDIA_TF32_OVERRIDE|LD_LIBRARY_PATH)$"
)
_LIBRARIES = ("tensorflow", "keras", "tf_keras")
_NUMPY_READS = re.compile(r"(OMP|MKL|OPENBLAS|KMP)_\w+$")
_NUMPYS = (*_LIBRARIES, "numpy", "scipy", "sklearn", "pandas")
"""Libraries that load a BLAS library, which starts threads."""


@program_check(LATE, LATE_VARIABLE, HASH_SEED)
def check_variables(program: Program, _: Project) -> Iterator[Hit]:
    for module, node, name, _value in program.variables():
        if name == "PYTHONHASHSEED":
            yield hit(HASH_SEED, module.snippet, node, "PYTHONHASHSEED has no effect from here")
            continue
        if not (name in _DETERMINISM or _READ_AT_IMPORT.match(name)):
            continue
        loaded = _imported_before(module, node, _NUMPYS if _NUMPY_READS.match(name) else _LIBRARIES)
        if loaded is not None:
            rule = LATE if name in _DETERMINISM else LATE_VARIABLE
            line = module.snippet.place(loaded.lineno)[1]
            yield hit(rule, module.snippet, node, f"{name} is set after the import at line {line}")


def _imported_before(
    module: Module, node: ast.AST, libraries: tuple[str, ...]
) -> ast.Import | ast.ImportFrom | None:
    """Return the first import of one of `libraries` that runs before a place; before a function runs, all
    imports at the top have run.
    """
    line = getattr(node, "lineno", 0)
    inside = not module.top_level(node)
    for statement in module.imports:
        names = (
            [alias.name for alias in statement.names]
            if isinstance(statement, ast.Import)
            else [statement.module or ""]
        )
        reads = any(name.split(".")[0] in libraries for name in names)
        if reads and module.top_level(statement) and (inside or statement.lineno < line):
            return statement
    return None


@program_check(SET_HERE)
def check_shell(program: Program, project: Project) -> Iterator[Hit]:
    """Find the first read of each variable that a run does not get."""
    seen: set[str] = set()
    for module, node, name in read_variables(program) if project.unsent else ():
        if name in project.unsent and name not in seen:
            seen.add(name)
            advice = f"add  {project.unsent[name]}"
            message = f"reads {name}, which is set here and not in the profile: {advice}"
            yield hit(SET_HERE, module.snippet, node, message)
