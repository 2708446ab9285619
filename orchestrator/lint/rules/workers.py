"""ORC210: training on several machines at once."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from orchestrator.lint.program import Program
from orchestrator.lint.registry import Project, program_check
from orchestrator.lint.rule import Hit, Rule, Severity, hit

FIT_ON_WORKERS = Rule(
    "ORC210",
    "multi-worker-fit",
    Severity.ERROR,
    "MultiWorkerMirroredStrategy, and `fit` of Keras 3",
    "Keras 3 does not run `fit` under this strategy (measured with TensorFlow 2.21 and Keras 3.15).",
    "Write the training loop with strategy.run, or use tf_keras (TF_USE_LEGACY_KERAS=1). To train many "
    "parameter values, each on one machine: orch sweep.",
)
_STRATEGY = re.compile(r"tensorflow\.distribute\.(experimental\.)?MultiWorkerMirroredStrategy$")
_OLD_KERAS = "TF_USE_LEGACY_KERAS"


@program_check(FIT_ON_WORKERS)
def check_fit_on_workers(program: Program, project: Project) -> Iterator[Hit]:
    strategies = [(module, call) for name, module, call in program.named if _STRATEGY.match(name)]
    if not strategies or not any(program.methods("fit")) or _uses_keras_2(program, project):
        return
    module, call = strategies[0]
    yield hit(FIT_ON_WORKERS, module.snippet, call, "`fit` of Keras 3 does not run under this strategy")


def _uses_keras_2(program: Program, project: Project) -> bool:
    set_here = any(program.variables(_OLD_KERAS)) or _OLD_KERAS in project.variables
    return set_here or any(_imports_keras_2(node) for module in program.modules for node in module.nodes)


def _imports_keras_2(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").partition(".")[0] == "tf_keras"
    return isinstance(node, ast.Import) and any(a.name.partition(".")[0] == "tf_keras" for a in node.names)
