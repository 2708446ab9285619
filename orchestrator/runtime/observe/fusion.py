"""Decide which tensors of a graph can be read without changing what the graph computes.

TensorFlow's graph optimiser merges an operation into its reader when that reader is the only one: matmul +
bias + relu become one kernel, chains of additions and multiplications are re-associated. The merged form may
round differently. Reading such a tensor would give it a second reader, hence other numbers, so it is left
unread. Measured: reading every layer's output changed the final weights of residual networks, and reading
batch normalisation's scale gradient changed SGD's.
"""

from __future__ import annotations

from typing import Any, FrozenSet, List


def _types(names: str) -> FrozenSet[str]:
    return frozenset(names.split())


ARITHMETIC = _types(
    "BiasAdd Add AddV2 AddN Sub Mul RealDiv Square Rsqrt Sqrt Neg Reciprocal SquaredDifference Pow Cast"
)
"""Elementwise operations that can be re-associated with their readers."""

CONTRACTION = _types(
    "Conv2D Conv3D DepthwiseConv2dNative MatMul BatchMatMul BatchMatMulV2 BatchMatMulV3 Einsum "
    "FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3"
)
"""Operations into which a following bias, addition or activation is merged."""

MERGING = ARITHMETIC | _types(
    "Relu Relu6 Elu LeakyRelu Selu Tanh Sigmoid Softplus Softmax Erf Exp Log Log1p Maximum Minimum Max Sum "
    "Mean Prod Reshape Squeeze Transpose Pad PadV2 FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3"
)
"""Readers into which their inputs may be merged."""

PASSING = _types("Identity IdentityN StopGradient PreventGradient Snapshot")
"""Operations that pass on their input; the optimiser removes them."""

SHAPE_ONLY = _types("Shape ShapeN Rank Size ZerosLike OnesLike")
"""Readers that need only the shape; the optimiser removes them."""


OURS = "orch_observe"
"""Part of the names of operations that orch adds; they do not count as readers."""

READ, LEAVE, WAIT = "read", "leave", "wait"


def judge(tensor: Any, *, contractions: bool) -> str:
    """Return whether `tensor` (symbolic) can be read: READ; LEAVE, it may be merged into its only reader; or
    WAIT, nothing reads it yet, so this is unknown.

    `contractions`: matrix products and convolutions count as mergeable too.
    """
    origin = _origin(tensor)
    if origin.op.type not in (ARITHMETIC | CONTRACTION if contractions else ARITHMETIC):
        return READ
    readers = _readers(origin)
    if not readers:
        return WAIT
    return LEAVE if len(readers) == 1 and readers[0] in MERGING else READ


def _origin(tensor: Any) -> Any:
    """Return the tensor behind operations that only pass it on."""
    while tensor.op.type in PASSING:
        tensor = tensor.op.inputs[tensor.value_index]
    return tensor


def _readers(tensor: Any) -> List[str]:
    """Return types of the operations that read the tensor's values, once for each reader."""
    found: List[str] = []
    for reader in {operation.name: operation for operation in tensor.consumers()}.values():
        if reader.type in PASSING:
            ways = zip(reader.inputs, reader.outputs)  # noqa: B905
            outputs = [output for given, output in ways if given.name == tensor.name]
            found += [kind for output in outputs for kind in _readers(output)]
        elif reader.type not in SHAPE_ONLY and OURS not in reader.name:
            found.append(reader.type)
    return found
