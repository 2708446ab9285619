"""Several causes at once, and scripts that differ from themselves."""

from __future__ import annotations

from tests.parity.scenarios.model import Scenario, Side, diverges, edit, rounds, unstable
from tests.parity.scenarios.projects import scaler, shards

TWO = (
    Scenario(
        "no oneDNN, and one thread",
        "images.py",
        rounds("activation gradient", "TF_ENABLE_ONEDNN_OPTS", "TF_NUM_INTRAOP_THREADS"),
        b=Side(environ={"TF_ENABLE_ONEDNN_OPTS": "0", "TF_NUM_INTRAOP_THREADS": "1"}),
        local=True,
    ),
    Scenario(
        "another clock, and another scaler",
        "table.py",
        diverges("files batch", "TZ", r"scaler\.json", confirmed=True),
        a=Side(environ={"TZ": "UTC0"}),
        b=Side(environ={"TZ": "JST-9"}, files={"scaler.json": scaler(455.5, 263.0)}),
    ),
    Scenario(
        "another module, and another rate",
        "images.py",
        diverges("batch", r"prepare\.py", confirmed=True),
        b=Side(arguments=("--rate", "0.002"), edits=edit("prepare.py", ("raw / 255.0", "raw / 127.5 - 1.0"))),
    ),
    Scenario(
        "a module, a file and a variable",
        "table.py",
        diverges("files batch", "TZ", r"scaler\.json", r"table\.py", confirmed=True),
        a=Side(environ={"TZ": "UTC0"}),
        b=Side(
            environ={"TZ": "JST-9"},
            files={"scaler.json": scaler(455.5, 263.0)},
            edits=edit("table.py", ("tm_hour / 24.0", "tm_hour / 23.0")),
        ),
    ),
    Scenario(
        "fewer cores for interleave, and another file",
        "reading.py",
        diverges("files batch", "cores", r"part-1\.bin", confirmed=True),
        both=Side(edits=edit("reading.py", ("read, cycle_length=2", "read"))),
        b=Side(cpus=1, files={"data/part-1.bin": shards(5)["data/part-1.bin"]}),
    ),
    Scenario(
        "one guilty variable among innocent ones",
        "table.py",
        diverges("batch", "TZ", confirmed=True),
        a=Side(environ={"TZ": "UTC0"}),
        b=Side(
            environ={
                "TZ": "JST-9",
                "OMP_NUM_THREADS": "1",
                "TF_NUM_INTEROP_THREADS": "1",
                "LC_ALL": "C.UTF-8",
            }
        ),
    ),
)


_READY = """import time

data = tf.data.Dataset.from_tensor_slices((images, labels))


def slowly(image, label):
    def wait(value):
        time.sleep((hash(str(time.perf_counter_ns())) % 100) / 4000)
        return value

    return image, tf.ensure_shape(tf.numpy_function(wait, [label], tf.int64), ())


data = data.map(slowly, num_parallel_calls=8, deterministic=False)
"""


def _seed(by: str, imports: str = "") -> Side:
    """The script's seed, on both sides, made otherwise."""
    return Side(
        edits=edit(
            "images.py",
            ("import glob\n", f"import glob\n{imports}"),
            ("keras.utils.set_random_seed(options.seed)", by),
        )
    )


UNSTABLE = (
    Scenario("no seed", "images.py", unstable("seed"), both=_seed("pass")),
    Scenario(
        "a seed for NumPy alone", "images.py", unstable("seed"), both=_seed("np.random.seed(options.seed)")
    ),
    Scenario(
        "a seed made of the time",
        "images.py",
        unstable("seed|time"),
        both=_seed("keras.utils.set_random_seed(time.time_ns() % 2**31)", "import time\n"),
    ),
    Scenario(
        "a seed made of the process",
        "images.py",
        unstable("seed|process"),
        both=_seed("keras.utils.set_random_seed(os.getpid())", "import os\n"),
    ),
    Scenario(
        "an augmentation without a seed",
        "images.py",
        unstable("seed|random"),
        both=Side(
            edits=edit(
                "prepare.py",
                ('"""Preparation of images, shared by training and serving."""\n', "import numpy as np\n"),
                ("raw / 255.0", "raw / 255.0 + np.random.default_rng().normal(0, 0.01, raw.shape)"),
            )
        ),
    ),
    Scenario(
        "a shuffle of a list by an unseeded generator",
        "images.py",
        unstable("seed|order|shuffle"),
        both=Side(
            edits=edit(
                "images.py",
                ("import glob\n", "import glob\nimport random\n"),
                (
                    'sorted(glob.glob(f"{options.data}/*.bin"))',
                    "random.Random().sample(sorted(glob.glob(f'{options.data}/*.bin')), 4)",
                ),
            )
        ),
    ),
    Scenario(
        "records as soon as they are ready",
        "images.py",
        unstable("determinis|order"),
        both=Side(
            edits=edit("images.py", ("data = tf.data.Dataset.from_tensor_slices((images, labels))\n", _READY))
        ),
    ),
    Scenario(
        "noise from a generator without a seed",
        "styles.py",
        unstable("seed|random|generator"),
        both=Side(
            edits=edit("styles.py", ("from_seed(9)", "from_non_deterministic_state()")),
            arguments=("pair",),
        ),
    ),
    Scenario(
        "a split by numbers of the operating system",
        "styles.py",
        unstable("seed|random|order"),
        both=Side(
            edits=edit(
                "styles.py",
                ("import json\n", "import json\nimport random\n"),
                (
                    'prepared(np.load("values.npy"))',
                    'prepared(np.load("values.npy"))[sorted(random.SystemRandom().sample(range(96), 72))]',
                ),
            ),
            arguments=("fit",),
        ),
    ),
    Scenario(
        "a vocabulary in the order of a set",
        "table.py",
        unstable("PYTHONHASHSEED|hash|set"),
        both=Side(
            edits=edit(
                "table.py", ('["Aarhus", "Bergen", "Malmö", "Turku"]', "list({row[2] for row in rows})")
            ),
            command=("{interpreter}", "{script}"),  # each with a hash seed of its own
        ),
    ),
)

SCENARIOS = (*TWO, *UNSTABLE)
