"""As people's scripts differ between computers: two causes at once, causes that hide behind what they do."""

from __future__ import annotations

import json

from tests.parity.scenarios.model import Content, Expected, Scenario, Side, diverges, unstable
from tests.parity.scenarios.projects import matrix, values

_MODEL = """
model = keras.Sequential([
    keras.Input((x.shape[1],)),
    keras.layers.Dense(8, activation="relu"),
    keras.layers.Dense(1),
])
"""
_FIT = """
model.compile("sgd", "mse")
model.fit(x, y, batch_size=16, verbose=0)
"""
_HEAD = "import os\nimport numpy as np\nimport keras\n"


def _of(*parts: str, **files: Content) -> Side:
    """A script of these parts, and values.npy beside it."""
    return Side(files={"values.npy": values(), **files, "case.py": "\n".join(parts)})


_DATA = 'data = np.load("values.npy")\nx, y = data[:, :-1], data[:, -1:]\n'

_THREADS = _of(
    "import os\nimport numpy as np\nimport tensorflow as tf\nfrom tensorflow import keras\n",
    'tf.config.threading.set_intra_op_parallelism_threads(int(os.environ.get("SLURM_CPUS_PER_TASK", "1")))',
    "keras.utils.set_random_seed(1)\nr = np.random.default_rng(0)",
    'x, y = r.normal(size=(192, 28, 28, 3)).astype("float32"), r.integers(0, 10, 192)',
    """
model = keras.Sequential([
    keras.layers.Conv2D(16, 3, activation="relu"),
    keras.layers.Conv2D(32, 3, activation="relu"),
    keras.layers.MaxPooling2D(),
    keras.layers.Flatten(),
    keras.layers.Dense(64),
    keras.layers.Dense(10),
])
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.fit(x, y, batch_size=64, verbose=0)
""",
)
_ELSEWHERE = _of(
    _HEAD,
    "keras.utils.set_random_seed(0)",
    """
if os.path.exists("values.npy"):
    data = np.load("values.npy")
else:
    print("WARNING: no data, made some up")
    data = np.random.rand(96, 16).astype("float32")
x, y = data[:, :-1], data[:, -1:]
""",
    _MODEL,
    _FIT,
)
_CLASSES = Side(
    files={
        **{f"data/{name}/{i}.npy": matrix(10 * k + i) for k, name in enumerate("abc") for i in range(8)},
        "case.py": """import os
import numpy as np
import keras

keras.utils.set_random_seed(1)
classes = sorted(name for name in os.listdir("data") if os.path.isdir(f"data/{name}"))
pairs = [(np.load(f"data/{c}/{f}"), k) for k, c in enumerate(classes) for f in os.listdir(f"data/{c}")]
x, y = np.stack([image for image, _ in pairs]), np.array([label for _, label in pairs])
model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(8, activation="softmax")])
model.compile("adam", "sparse_categorical_crossentropy")
model.fit(x, y, batch_size=12, verbose=0)
""",
    }
)
_TIMED = _of(
    _HEAD,
    "keras.utils.set_random_seed(int(os.path.getmtime('values.npy') * 1000) % 100003)",
    _DATA,
    _MODEL,
    _FIT,
)
_SPLIT = _of(
    "import json\n" + _HEAD,
    "keras.utils.set_random_seed(1)\n" + _DATA,
    'order = np.random.default_rng(json.load(open("split.json")).get("seed")).permutation(len(x))[:72]',
    "x, y = x[order], y[order]",
    _MODEL,
    _FIT,
)
_LISTED = _of(
    _HEAD,
    """
settings = {"momentum": 0.9, "units": 8}
for name in ("MOMENTUM", "UNITS"):
    if name in os.environ:
        settings[name.lower()] = float(os.environ[name])
keras.utils.set_random_seed(1)
""",
    _DATA,
    """
model = keras.Sequential([keras.layers.Dense(int(settings["units"])), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.01, momentum=settings["momentum"]), "mse")
model.fit(x, y, batch_size=16, epochs=2, verbose=0)
""",
)
_INNOCENT_FILE = _of(
    _HEAD,
    "keras.utils.set_random_seed(int(os.environ.get('SEED', '1')))",
    'notes = open("notes.txt").read()',
    _DATA,
    _MODEL,
    _FIT,
)


def _chosen(name: str) -> Side:
    return Side(environ={"CONFIG": f"conf/{name}.json"})


_CONFIGURED = _of(
    "import json\n" + _HEAD,
    'rate = json.load(open(os.environ["CONFIG"]))["rate"]',
    "keras.utils.set_random_seed(1)\n" + _DATA,
    _MODEL,
    'model.compile(keras.optimizers.SGD(rate), "mse")\nmodel.fit(x, y, batch_size=16, verbose=0)',
    **{f"conf/{name}.json": json.dumps({"rate": rate}) for name, rate in (("a", 0.01), ("b", 0.02))},
)

_PACKAGE = Side(
    files={
        "values.npy": values(),
        "pkg/__init__.py": "",
        "pkg/shift.json": "[0.1]",
        "pkg/case.py": "\n".join(
            (
                "import json\nimport pathlib\n" + _HEAD,
                '(shift,) = json.loads(pathlib.Path(__file__).with_name("shift.json").read_text())',
                "keras.utils.set_random_seed(int(os.environ.get('SEED', '1')))",
                _DATA + "x = x - shift",
                _MODEL,
                _FIT,
            )
        ),
    },
    command=("{python}", "-m", "pkg.case"),
)


def _typed(momentum: str) -> Side:
    return Side(command=("env", f"MOMENTUM={momentum}", "{python}", "{script}"))


SCENARIOS = (
    Scenario(
        "threads by a variable of the queue",
        "case.py",
        Expected(("EQUIVALENT",), ("activation", "gradient", "loss"), ("SLURM_CPUS_PER_TASK",), True),
        both=_THREADS,
        a=Side(environ={"SLURM_CPUS_PER_TASK": "2"}),
        b=Side(environ={"SLURM_CPUS_PER_TASK": "1"}),
    ),
    Scenario(
        "another working folder, and made-up data",
        "case.py",
        diverges("files batch", "started from another folder", confirmed=True),
        both=_ELSEWHERE,
        a=Side(files={"logs/": ""}),
        b=Side(start="logs"),
    ),
    Scenario(
        "an empty folder that counts as a class",
        "case.py",
        diverges("batch", r"\.ipynb_checkpoints", confirmed=True),
        both=_CLASSES,
        b=Side(files={"data/.ipynb_checkpoints/": ""}),
    ),
    Scenario(
        "a seed made of a file's time",
        "case.py",
        diverges("batch initial", r"when values\.npy was last changed", confirmed=True),
        both=_TIMED,
        b=Side(environ={"RUN": "2"}),
    ),
    Scenario(
        "a split that one side alone seeds",
        "case.py",
        unstable("default_rng", r"split\.json"),
        both=_SPLIT,
        a=Side(files={"split.json": '{"seed": 42}'}),
        b=Side(files={"split.json": "{}"}),
    ),
    Scenario(
        "a configuration chosen by a variable",
        "case.py",
        diverges("initial update", "CONFIG", confirmed=True),
        both=_CONFIGURED,
        a=_chosen("a"),
        b=_chosen("b"),
    ),
    Scenario(
        "a variable whose name stands in a list, among others",
        "case.py",
        diverges("update initial", "MOMENTUM", confirmed=True),
        both=_LISTED,
        b=Side(environ={"MOMENTUM": "0.5", "UNITS": "8"}),
    ),
    Scenario(
        "a file that is read for nothing, and another seed",
        "case.py",
        diverges("batch", "SEED", confirmed=True),
        both=_INNOCENT_FILE,
        a=Side(files={"notes.txt": "one\n"}),
        b=Side(files={"notes.txt": "two\n"}, environ={"SEED": "5"}),
    ),
    Scenario(
        "a package started as a module: a file in it, and a variable",
        "case.py",
        diverges("files batch", r"shift\.json", "SEED", confirmed=True),
        both=_PACKAGE,
        b=Side(files={"pkg/shift.json": "[0.2]"}, environ={"SEED": "2"}),
    ),
    Scenario(
        "a variable typed before the command",
        "case.py",
        diverges("update initial", "command differs", "MOMENTUM=0.5", confirmed=True),
        both=_LISTED,
        a=_typed("0.9"),
        b=_typed("0.5"),
    ),
)
