"""ORC701-703: TensorFlow 1 code under TensorFlow 2. What Keras and NumPy removed is in `removed`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from orchestrator.lint.module import Module
from orchestrator.lint.registry import module_check
from orchestrator.lint.rule import Hit, Rule, Severity, hit
from orchestrator.lint.values import source

REMOVED = Rule(
    "ORC701",
    "tf1-api",
    Severity.ERROR,
    "a name that only TensorFlow 1 has: tf.Session, tf.placeholder, tf.contrib",
    "AttributeError on every machine with TensorFlow 2.",
    "Use its TensorFlow 2 form, or pin TensorFlow 1 on both sides.",
)
COMPAT = Rule(
    "ORC702",
    "tf1-behavior",
    Severity.WARNING,
    "tf.compat.v1, or TensorFlow 2's behaviour switched off",
    "Sessions and graphs have separate seeds, weights and files: checkpoints do not fit TensorFlow 2 code.",
    "Move to Keras and tf.function, or keep the same switch on both sides.",
)
ACTIVATION = Rule(
    "ORC703",
    "tf-nn-activation",
    Severity.INFO,
    "tf.nn.relu and the like as a Keras activation, as TensorFlow 1 wrote it",
    "Such code is from an older version; its saved models and weights may not load with newer code.",
    "Write the name: activation='relu', in every definition of the model.",
)

_GONE = frozenset(
    [
        "Session",
        "InteractiveSession",
        "placeholder",
        "placeholder_with_default",
        "get_variable",
        "variable_scope",
        "global_variables_initializer",
        "local_variables_initializer",
        "initialize_all_variables",
        "ConfigProto",
        "GPUOptions",
        "set_random_seed",
        "get_default_graph",
        "reset_default_graph",
        "random_normal",
        "random_uniform",
        "truncated_normal",
        "log",
        "assign",
        "assign_add",
        "to_float",
        "to_int32",
        "trainable_variables",
        "global_variables",
        "get_collection",
        "add_to_collection",
        "GraphKeys",
        "Print",
        "read_file",
        "decode_csv",
        "parse_single_example",
        "parse_example",
        "FixedLenFeature",
        "VarLenFeature",
        "python_io",
        "reduce_join",
        "sparse_placeholder",
        "all_variables",
        "AttrValue",
        "TFRecordReader",
        "WholeFileReader",
        "string_split",
        "matrix_inverse",
        "ceil",
        "rsqrt",
        "diag",
        "get_session",
        "enable_eager_execution",
        "enable_v2_behavior",
    ]
)
_GONE_BELOW = frozenset(
    [
        "contrib",
        "layers",
        "app",
        "flags",
        "gfile",
        "logging",
        "losses",
        "metrics.mean",
        "estimator.inputs",
        "train.AdamOptimizer",
        "train.GradientDescentOptimizer",
        "train.RMSPropOptimizer",
        "train.MomentumOptimizer",
        "train.AdagradOptimizer",
        "train.Saver",
        "train.MonitoredTrainingSession",
        "train.get_or_create_global_step",
        "train.string_input_producer",
        "train.batch",
        "train.shuffle_batch",
        "train.start_queue_runners",
        "train.Supervisor",
        "nn.dynamic_rnn",
        "nn.rnn_cell",
        "nn.softmax_cross_entropy_with_logits_v2",
        "nn.conv2d_backprop_input",
        "summary.FileWriter",
        "summary.merge_all",
        "saved_model.simple_save",
        "saved_model.loader",
        "data.make_one_shot_iterator",
        "summary.merge",
        "image.resize_images",
        "image.resize_bilinear",
    ]
)
_METHODS = {"make_one_shot_iterator", "make_initializable_iterator"}


@module_check(REMOVED, COMPAT)
def check_tf1(module: Module) -> Iterator[Hit]:
    compat, told = False, set[str]()
    if not module.imports_any("tensorflow"):
        return
    for node in module.nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS:
            yield hit(REMOVED, module.snippet, node, f"{node.func.attr} was removed in TensorFlow 2")
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from _imported(module, node)
            if node.module.startswith("tensorflow.compat.v1") and not compat:
                compat = True
                yield hit(COMPAT, module.snippet, node, f"{node.module} belongs to TensorFlow 1")
            continue
        if not isinstance(node, ast.Attribute) or isinstance(module.parent(node), ast.Attribute):
            continue
        name = module.dotted(node)
        if not name.startswith("tensorflow."):
            continue
        tail = name.removeprefix("tensorflow.")
        if tail.startswith("compat.v1"):
            if not compat:
                yield hit(COMPAT, module.snippet, node, f"{source(node)} belongs to TensorFlow 1")
            compat = True
        elif _gone(tail) and tail not in told:
            told.add(tail)
            yield hit(REMOVED, module.snippet, node, f"{source(node)} was removed in TensorFlow 2")


def _imported(module: Module, node: ast.ImportFrom) -> Iterator[Hit]:
    name = node.module or ""
    if name.startswith(("tensorflow.contrib", "tensorflow.examples")):
        yield hit(REMOVED, module.snippet, node, f"{name} was removed in TensorFlow 2")
    elif name == "tensorflow":
        gone = [alias.name for alias in node.names if alias.name in _GONE | _GONE_BELOW]
        if gone:
            yield hit(REMOVED, module.snippet, node, f"tensorflow.{gone[0]} was removed in TensorFlow 2")


def _gone(tail: str) -> bool:
    parts = tail.split(".")
    if parts[0] in _GONE:
        return True
    return any(".".join(parts[:count]) in _GONE_BELOW for count in range(1, len(parts) + 1))


@module_check(ACTIVATION)
def check_activation(module: Module) -> Iterator[Hit]:
    told: set[str] = set()
    for call in module.calls:
        if not module.called(call).startswith("keras.layers."):
            continue
        for keyword in call.keywords:
            name = module.dotted(keyword.value)
            if keyword.arg == "activation" and name.startswith("tensorflow.nn.") and name not in told:
                told.add(name)
                yield hit(
                    ACTIVATION,
                    module.snippet,
                    keyword.value,
                    f"{source(keyword.value)} is the TensorFlow 1 spelling",
                )
