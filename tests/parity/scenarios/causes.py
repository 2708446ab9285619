"""Causes that hide: in caches, in paths of modules, in names of files, in devices and in libraries."""

from __future__ import annotations

from tests.parity.scenarios.model import Expected, Scenario, Side, diverges, edit
from tests.parity.scenarios.projects import config, shards, values

_CACHED = Side(
    edits=edit(
        "styles.py",
        (
            'np.load("values.npy")',
            'np.load(keras.utils.get_file("v.npy", "http://127.0.0.1:9/v.npy", cache_dir="cache"))',
        ),
    ),
    arguments=("fit",),
    files={"cache/datasets/v.npy": values()},
)
_LIBRARIES = Side(
    arguments=("fit",),
    files={
        "parts.py": None,
        "one/parts.py": "def prepared(values):\n    return values * 2.0\n\n\ndef between(h):\n    return h\n",
        "two/parts.py": "def prepared(values):\n    return values * 3.0\n\n\ndef between(h):\n    return h\n",
    },
)
_FLOATX = Side(
    edits=edit(
        "loop.py",
        ("import json\n", "import json\nimport os\n"),
        (
            'keras.utils.set_random_seed(config["seed"])',
            'keras.config.set_floatx(os.environ.get("FLOATX", "float32"))\n'
            'keras.utils.set_random_seed(config["seed"])',
        ),
    )
)
_REPLICAS = Side(
    edits=edit(
        "table.py",
        (
            "model = keras.Sequential(",
            "import os\n\n"
            "count = int(os.environ.get('REPLICAS', '1'))\n"
            "processor = tf.config.list_physical_devices('CPU')[0]\n"
            "tf.config.set_logical_device_configuration("
            "processor, [tf.config.LogicalDeviceConfiguration() for _ in range(2)])\n"
            "strategy = tf.distribute.MirroredStrategy([f'CPU:{k}' for k in range(count)])\n"
            "strategy.scope().__enter__()\n"
            "model = keras.Sequential(",
        ),
        (".batch(16)", ".batch(8 * int(__import__('os').environ.get('REPLICAS', '1')))"),
    )
)
_STEPS = Side(
    edits=edit(
        "loop.py",
        ("optimizer = keras", "import os\n\noptimizer = keras"),
        (
            "epsilon=1e-7)",
            "epsilon=1e-7)\noptimizer.build(model.trainable_variables)\n"
            "optimizer.iterations.assign(int(os.environ.get('BEGIN', '0')))",
        ),
    ),
)
_FIRST = shards()["data/part-0.bin"]

SCENARIOS = (
    Scenario(
        "a stale download in the cache",
        "styles.py",
        diverges("files batch", r"v\.npy", confirmed=True),
        both=_CACHED,
        b=Side(files={"cache/datasets/v.npy": values(6)}),
    ),
    Scenario(
        "a module from another folder of PYTHONPATH",
        "styles.py",
        diverges("batch", r"parts\.py|PYTHONPATH", confirmed=True),
        both=_LIBRARIES,
        a=Side(environ={"PYTHONPATH": "{folder}/one"}),
        b=Side(environ={"PYTHONPATH": "{folder}/two"}),
    ),
    Scenario(
        "a name in capitals, sorted first",
        "images.py",
        diverges("files batch", r"(?i)part-2\.bin|order"),
        b=Side(files={"data/part-2.bin": None, "data/Part-2.bin": shards()["data/part-2.bin"]}),
    ),
    Scenario(
        "a name that lost its zeros, sorted elsewhere",
        "images.py",
        diverges("files batch", r"part-0|order"),
        b=Side(files={"data/part-0.bin": None, "data/part-10.bin": _FIRST}),
    ),
    Scenario(
        "another decoder of JPEG",
        "photos.py",
        diverges("batch", r"photos\.py", confirmed=True),
        b=Side(edits=edit("photos.py", ("INTEGER_ACCURATE", "INTEGER_FAST"))),
    ),
    Scenario(
        "another way to enlarge",
        "photos.py",
        diverges("batch", r"photos\.py", confirmed=True),
        b=Side(edits=edit("photos.py", ('"bilinear"', '"bicubic"'))),
    ),
    Scenario(
        "another class of scaler",
        "scaled.py",
        diverges("files batch", r"scaled\.py|scaler\.pkl", confirmed=True),
        b=Side(edits=edit("scaled.py", ("import StandardScaler", "import MinMaxScaler as StandardScaler"))),
    ),
    Scenario(
        "double precision throughout",
        "loop.py",
        diverges("batch initial activation", r"float64|FLOATX", confirmed=True),
        both=_FLOATX,
        b=Side(environ={"FLOATX": "float64"}),
    ),
    Scenario(
        "a batch for each replica",
        "table.py",
        Expected(("DIVERGENT", "NOT COMPARED"), (), (r"^$|REPLICAS|replicas",)),
        both=_REPLICAS,
        b=Side(environ={"REPLICAS": "2"}),
    ),
    Scenario(
        "an optimizer that begins later",
        "loop.py",
        diverges("initial", "BEGIN", confirmed=True),
        both=_STEPS,
        b=Side(environ={"BEGIN": "50"}),
    ),
    Scenario(
        "a smaller clip and another start, together",
        "loop.py",
        diverges("files initial", r"config\.json"),
        b=Side(files={"config.json": config(clip=0.01, seed=4)}),
    ),
    Scenario(
        "a seed made of the computer's name",
        "images.py",
        diverges("batch initial", "computer's name", confirmed=True),
        both=Side(
            edits=edit(
                "images.py",
                ("import glob\n", "import glob\nimport socket\nimport zlib\n"),
                (
                    "set_random_seed(options.seed)",
                    "set_random_seed(zlib.crc32(socket.gethostname().encode()))",
                ),
            )
        ),
        b=Side(host="elsewhere"),
        local=True,
    ),
)
