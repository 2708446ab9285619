"""Check the operations in the graphs of a SavedModel: arithmetic and variables are allowed, files and Python
are not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Dict, Iterator, List, Set

from .explain import Cause, Refusal

_OUTSIDE = re.compile(
    r"Dataset|ReadFile|WriteFile|MatchingFiles|TextFile|PyFunc|Debug|Summary|Summaries|Reader|Snapshot|Host"
    r"|VocabRemap|LoadAndRemap|ImmutableConst|Abort|Rpc|Remote|Save|Restore|Shutdown|Filespec"
)
"""Operations that TensorFlow declares stateless although they access something outside the graph."""
_WITH_STATE = frozenset({
    "VarHandleOp", "ReadVariableOp", "AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp",
    "VarIsInitializedOp", "VariableShape", "DisableCopyOnRead", "DestroyResourceOp", "ResourceGather",
    "ResourceGatherNd", "ResourceScatterUpdate", "ResourceScatterAdd", "StatefulPartitionedCall", "While",
    "If", "Case", "Assert", "HashTableV2", "MutableHashTableV2", "AnonymousHashTable",
    "AnonymousMutableHashTable",
    "LookupTableFindV2", "LookupTableImportV2", "LookupTableExportV2", "LookupTableSizeV2",
    "LookupTableInsertV2", "LookupTableRemoveV2", "InitializeTableV2", "RandomUniform", "RandomUniformInt",
    "RandomStandardNormal", "TruncatedNormal", "RandomShuffle", "Multinomial", "StatefulUniform",
    "StatefulUniformInt", "StatefulStandardNormalV2", "StatefulTruncatedNormal", "RngReadAndSkip", "RngSkip",
    "TensorArrayV3", "TensorArrayReadV3", "TensorArrayWriteV3", "TensorArrayGatherV3", "TensorArrayScatterV3",
    "TensorArraySizeV3", "TensorArrayCloseV3", "TensorArrayConcatV3", "TensorArraySplitV3", "CudnnRNNV3",
})  # fmt: skip
_OF_THE_SAVER = frozenset({"SaveV2", "RestoreV2", "MergeV2Checkpoints"})
"""Operations of every SavedModel. Functions that predict must not have them: they take the name of a file."""


def check_graphs(folder: Path) -> None:
    """Raise Refusal if a graph has an operation that is not known to access the graph alone."""
    from tensorflow.core.protobuf import saved_model_pb2

    path = folder / "saved_model.pb"
    if not path.is_file():
        raise Refusal("it is a SavedModel in text form", "Save it as saved_model.pb.")
    model = saved_model_pb2.SavedModel()
    model.ParseFromString(path.read_bytes())
    for meta in model.meta_graphs:
        if not meta.object_graph_def.nodes:
            raise Refusal(
                "a SavedModel of TensorFlow 1, whose graph reads its variables by itself",
                "Export it with TensorFlow 2.",
                Cause.WOULD_USE_FILES,
            )
        _check(meta)


def _check(meta: Any) -> None:
    functions = {each.signature.name: each for each in meta.graph_def.library.function}
    bodies: Dict[str, List[Any]] = {name: list(each.node_def) for name, each in functions.items()}
    for node in [*meta.graph_def.node, *(node for body in bodies.values() for node in body)]:
        if node.op not in _OF_THE_SAVER and node.op not in functions and not _stays_inside(node.op):
            raise _refused(node.op)
    for name in _reached(bodies, _run_to_predict(meta.object_graph_def)):
        for node in bodies[name]:
            if node.op in _OF_THE_SAVER:
                raise _refused(node.op)


def _stays_inside(operation: str) -> bool:
    from tensorflow.python.framework import op_def_registry

    known = op_def_registry.get(operation)
    if known is None:
        return False
    if known.is_stateful:
        return operation in _WITH_STATE
    return not _OUTSIDE.search(operation)


def _refused(operation: str) -> Refusal:
    return Refusal(
        f"its graph has the operation {operation}",
        "Leave files and Python code out of what is exported; or save the model as .keras.",
        Cause.WOULD_RUN_CODE if "PyFunc" in operation else Cause.WOULD_USE_FILES,
    )


def _run_to_predict(objects: Any) -> Iterator[str]:
    """Yield the names of the functions that can be called after loading; the two of the saver are not among
    them."""
    yield from objects.concrete_functions
    for node in objects.nodes:
        yield from node.function.concrete_functions
        if node.bare_concrete_function.concrete_function_name:
            yield node.bare_concrete_function.concrete_function_name


def _reached(bodies: Dict[str, List[Any]], names: Iterator[str]) -> Set[str]:
    """Return those of these functions that exist, and all that they call, directly or indirectly."""
    found: Set[str] = set()
    todo = list(names)
    while todo:
        name = todo.pop()
        if name in found or name not in bodies:
            continue
        found.add(name)
        for node in bodies[name]:
            todo.append(node.op)
            todo.extend(_called_by(node))
    return found


def _called_by(node: Any) -> Iterator[str]:
    for value in node.attr.values():
        if value.func.name:
            yield value.func.name
        yield from (each.name for each in value.list.func)
