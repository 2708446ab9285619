"""Planted inside the step: initial values, arithmetic, loss, gradients, updates, metrics."""

from __future__ import annotations

from tests.parity.scenarios.model import Expected, Scenario, Side, diverges, edit, rounds
from tests.parity.scenarios.projects import config, matrix

_SEED_VARIABLE = Side(
    edits=edit(
        "images.py",
        ("import glob\n", "import glob\nimport os\n"),
        ("set_random_seed(options.seed)", 'set_random_seed(int(os.environ.get("RUN_SEED", "7")))'),
    )
)
_SEED_OF_FOLDER = Side(
    edits=edit(
        "images.py",
        ("import glob\n", "import glob\nimport os\nimport zlib\n"),
        ("set_random_seed(options.seed)", "set_random_seed(zlib.crc32(os.getcwd().encode()) % 1000)"),
    )
)
_PRECISION = Side(
    edits=edit(
        "images.py",
        ("import glob\n", "import glob\nimport os\n"),
        (
            "keras.utils.set_random_seed",
            'keras.config.set_dtype_policy(os.environ.get("PRECISION", "float32"))\n'
            "keras.utils.set_random_seed",
        ),
    )
)
_EAGER = Side(
    edits=edit(
        "images.py",
        ("import glob\n", "import glob\nimport os\n"),
        ('metrics=["accuracy"]', 'run_eagerly="EAGER" in os.environ'),
    )
)


def _of(name: str, project: str, expected: Expected, old: str, new: str) -> Scenario:
    """One edit of the script, on the second side only."""
    return Scenario(name, project, expected, b=Side(edits=edit(project, (old, new))))


INITIAL = (
    Scenario(
        "another seed",
        "images.py",
        diverges("batch initial", r"--seed|arguments", confirmed=True),
        b=Side(arguments=("--seed", "8")),
    ),
    Scenario(
        "a seed in a variable",
        "images.py",
        diverges("batch initial", r"RUN_SEED", confirmed=True),
        both=_SEED_VARIABLE,
        b=Side(environ={"RUN_SEED": "8"}),
    ),
    Scenario(
        "a seed made of the folder's name",
        "images.py",
        diverges("batch initial", r"folder|directory|path|seed"),
        both=_SEED_OF_FOLDER,
        b=Side(folder="another"),
    ),
    Scenario(
        "other start weights",
        "loop.py",
        diverges("files initial", r"start\.npy", confirmed=True),
        b=Side(files={"start.npy": matrix(4)}),
    ),
    _of(
        "another initializer",
        "images.py",
        diverges("initial", r"images\.py", confirmed=True),
        'Dense(10, activation="softmax", name="classes")',
        'Dense(10, activation="softmax", kernel_initializer="he_normal", name="classes")',
    ),
)

ARITHMETIC = (
    Scenario(
        "oneDNN off",
        "images.py",
        rounds("activation gradient", "TF_ENABLE_ONEDNN_OPTS"),
        b=Side(environ={"TF_ENABLE_ONEDNN_OPTS": "0"}),
        local=True,
    ),
    Scenario(
        "oneDNN for AVX2",
        "images.py",
        rounds("activation gradient", "ONEDNN_MAX_CPU_ISA"),
        b=Side(environ={"ONEDNN_MAX_CPU_ISA": "AVX2"}),
        local=True,
    ),
    Scenario(
        "oneDNN for SSE4.1",
        "images.py",
        rounds("activation gradient", "ONEDNN_MAX_CPU_ISA"),
        b=Side(environ={"ONEDNN_MAX_CPU_ISA": "SSE41"}),
        local=True,
    ),
    Scenario(
        "clustering by XLA",
        "images.py",
        Expected(("EQUIVALENT", "DIVERGENT"), (), ("TF_XLA_FLAGS",), True),  # dropout draws otherwise
        b=Side(environ={"TF_XLA_FLAGS": "--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit"}),
        local=True,
    ),
    Scenario(
        "half precision of the brain",
        "images.py",
        diverges("initial activation", r"mixed_bfloat16|PRECISION", confirmed=True),
        both=_PRECISION,
        b=Side(environ={"PRECISION": "mixed_bfloat16"}),
    ),
    Scenario(
        "half precision",
        "images.py",
        diverges("initial activation", r"mixed_float16|PRECISION", confirmed=True),
        both=_PRECISION,
        b=Side(environ={"PRECISION": "mixed_float16"}),
    ),
    Scenario(
        "one thread within an operation",
        "images.py",
        rounds("gradient", "TF_NUM_INTRAOP_THREADS"),
        b=Side(environ={"TF_NUM_INTRAOP_THREADS": "1"}),
        local=True,
    ),
    Scenario(
        "one core",
        "images.py",
        rounds("gradient", "threads|cores"),
        b=Side(cpus=1),
        local=True,
    ),
    Scenario(
        "deterministic operations",
        "images.py",
        rounds("activation loss gradient", "TF_DETERMINISTIC_OPS|deterministic"),
        b=Side(environ={"TF_DETERMINISTIC_OPS": "1"}),
        local=True,
    ),
    Scenario(
        "step by step without a graph",
        "images.py",
        rounds("activation loss gradient update", "run_eagerly|EAGER"),
        both=_EAGER,
        b=Side(environ={"EAGER": "1"}),
        local=True,
    ),
    Scenario(
        "compiled as a whole",
        "images.py",
        Expected(("DIVERGENT", "EQUIVALENT", "NOT COMPARED"), (), (r"jit_compile|images\.py",)),
        b=Side(edits=edit("images.py", ('metrics=["accuracy"]', "jit_compile=True"))),
    ),
    _of(
        "another epsilon of normalisation",
        "images.py",
        diverges("activation", r"images\.py", confirmed=True),
        'BatchNormalization(name="norm")',
        'BatchNormalization(epsilon=0.01, name="norm")',
    ),
    _of(
        "another activation function",
        "images.py",
        diverges("activation", r"images\.py", confirmed=True),
        '16, 3, activation="relu"',
        '16, 3, activation="elu"',
    ),
    _of(
        "another seed of dropout",
        "loop.py",
        diverges("initial activation", r"loop\.py", confirmed=True),
        "seed=3",
        "seed=4",
    ),
    _of(
        "a layer left out",
        "images.py",
        diverges("initial activation", r"images\.py", confirmed=True),
        '        keras.layers.BatchNormalization(name="norm"),\n',
        "",
    ),
)

LOSS = (
    _of(
        "a loss that takes scores for probabilities",
        "loop.py",
        diverges("loss", r"loop\.py", confirmed=True),
        "from_logits=True",
        "from_logits=False",
    ),
    _of(
        "a penalty on weights",
        "images.py",
        diverges("loss gradient", r"images\.py", confirmed=True),
        'Dense(10, activation="softmax"',
        'Dense(10, kernel_regularizer="l2", activation="softmax"',
    ),
    _of(
        "weights of classes",
        "images.py",
        diverges("batch loss", r"images\.py", confirmed=True),
        "verbose=0",
        "verbose=0, class_weight={k: 1.0 + k for k in range(10)}",
    ),
    _of(
        "a sum for a mean",
        "loop.py",
        diverges("loss", r"loop\.py", confirmed=True),
        "from_logits=True",
        'from_logits=True, reduction="sum"',
    ),
)

UPDATE = (
    Scenario(
        "another learning rate",
        "images.py",
        diverges("initial update", r"--rate|learning_rate|arguments", confirmed=True),
        b=Side(arguments=("--rate", "0.002")),
    ),
    _of("another epsilon of Adam", "loop.py", diverges("update", r"loop\.py|epsilon"), "1e-7", "1e-3"),
    _of(
        "another schedule",
        "loop.py",
        diverges("update", r"loop\.py|decay_rate", confirmed=True),
        "decay_rate=0.9",
        "decay_rate=0.8",
    ),
    Scenario(
        "another clip in the configuration",
        "loop.py",
        diverges("files update", r"config\.json", confirmed=True),
        b=Side(files={"config.json": config(clip=0.01)}),
    ),
    _of(
        "clipping in the optimizer",
        "images.py",
        diverges("gradient update", r"images\.py|clipnorm", confirmed=True),
        "Adam(options.rate)",
        "Adam(options.rate, clipnorm=0.1)",
    ),
    _of(
        "another optimizer",
        "images.py",
        diverges("initial update", r"images\.py|RMSprop", confirmed=True),
        "optimizers.Adam",
        "optimizers.RMSprop",
    ),
    _of(
        "decay of weights",
        "images.py",
        diverges("update", r"images\.py|weight_decay", confirmed=True),
        "Adam(options.rate)",
        "Adam(options.rate, weight_decay=0.01)",
    ),
    _of(
        "slower moving averages",
        "images.py",
        diverges("update", r"images\.py", confirmed=True),
        'BatchNormalization(name="norm")',
        'BatchNormalization(momentum=0.9, name="norm")',
    ),
    _of(
        "a frozen layer",
        "images.py",
        diverges("initial activation gradient update", r"images\.py", confirmed=True),
        'activation="relu", name="conv1"',
        'activation="relu", trainable=False, name="conv1"',
    ),
)

REST = (
    _of(
        "another metric",
        "images.py",
        diverges("metrics", r"images\.py"),
        'metrics=["accuracy"]',
        "metrics=[keras.metrics.SparseTopKCategoricalAccuracy(3, name='accuracy')]",
    ),
    Scenario(
        "fewer steps",
        "images.py",
        diverges("steps", r"--epochs|arguments"),
        b=Side(arguments=("--epochs", "1")),
        steps=5,
        confirm=False,
    ),
)

SCENARIOS = (*INITIAL, *ARITHMETIC, *LOSS, *UPDATE, *REST)
