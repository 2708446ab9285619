"""Written against orch, not for it: what hides from a look at files, variables, seeds and sources."""

from __future__ import annotations

from tests.parity.scenarios.model import Expected, Scenario, Side, diverges, edit, unstable
from tests.parity.scenarios.projects import VOCABULARY, config, database, payments, texts, values

_HOME = '{{"floatx": "{}", "epsilon": 1e-07, "backend": "tensorflow", "image_data_format": "channels_last"}}'


def _reading(new: str, modules: str = "", **files: str | bytes) -> Side:
    """styles.py with its values from elsewhere."""
    return Side(
        edits=edit("styles.py", ("import json\n", f"import json\n{modules}"), ('np.load("values.npy")', new)),
        arguments=("fit",),
        files={name.replace("_", "."): content for name, content in files.items()},
    )


_DATABASE = _reading(
    'np.array(sqlite3.connect("rows.db").execute("select * from numbers").fetchall(), "float32")',
    "import sqlite3\n",
    rows_db=database(),
)
_CHILD = _reading(
    'np.load(io.BytesIO(subprocess.run(["cat", "values.npy"], stdout=subprocess.PIPE).stdout))',
    "import io\nimport subprocess\n",
)
_RACE = Side(
    edits=edit(
        "images.py",
        ("import glob\n", "import glob\nimport os\nimport time\nfrom concurrent.futures import *\n"),
        (
            'shards = [load(path) for path in sorted(glob.glob(f"{options.data}/*.bin"))]',
            """pool = ThreadPoolExecutor(16)


def slowly(path, third):
    time.sleep(os.urandom(1)[0] / 1000)
    return [part[third::3] for part in load(path)]


paths = sorted(glob.glob(f"{options.data}/*.bin"))
futures = [pool.submit(slowly, path, third) for path in paths for third in range(3)]
shards = [done.result() for done in as_completed(futures)]""",
        ),
    )
)
_PREFIX = Side(
    edits=edit(
        "loop.py",
        ("import json\n", "import json\nimport os\n"),
        (
            "    config = json.load(file)\n",
            "    config = json.load(file)\n"
            "config |= {k[4:].lower(): float(v) for k, v in os.environ.items() if k.startswith('APP_')}\n",
        ),
        ('config["batch"]', 'int(config["batch"])'),
    )
)
_RESUMING = Side(
    edits=edit(
        "loop.py",
        ("import json\n", "import json\nimport os\n"),
        (
            "hidden.kernel.assign(start)",
            "hidden.kernel.assign(np.load('last.npy') if os.path.exists('last.npy') else start)",
        ),
        ('model.save("loop.keras")', "np.save('last.npy', hidden.kernel.numpy())"),
    )
)
_DOTENV = Side(
    edits=edit(
        "loop.py",
        ("import json\n", "import json\nimport os\n"),
        (
            "    config = json.load(file)\n",
            "    config = json.load(file)\nwith open('.env') as file:\n"
            "    os.environ.update(line.strip().split('=') for line in file)\n",
        ),
        ('config["clip"]', 'float(os.environ["CLIP"])'),
    ),
    files={".env": "CLIP=0.5\n"},
)
_TEXT = texts()["texts/1.txt"]
assert isinstance(_TEXT, str)

_CASE_1 = """import tensorflow as tf
model = tf.keras.models.Sequential([
    tf.keras.layers.Dense(10, activation='relu', input_shape=(10,)),
    tf.keras.layers.Dense(2, activation='softmax')
])
model.compile(optimizer='adam', loss='categorical_crossentropy', metrics=['accuracy'])
import numpy as np
x_train = np.random.rand(1000, 10)
y_train = np.random.randint(0, 2, (1000,))
y_train_categorical = tf.keras.utils.to_categorical(y_train, num_classes=2)

model.fit(x_train, y_train_categorical, epochs=3)
"""
_CASE_2 = """import os
import random
import numpy as np
import tensorflow as tf

tf.random.set_seed(42)
np.random.seed(42)
os.environ["TF_DETERMINISTIC_OPS"] = "1"
model = tf.keras.Sequential([
    tf.keras.layers.Dense(128, activation='relu', kernel_initializer='random_normal'),
    tf.keras.layers.Dense(10, kernel_initializer='random_normal')
])
x = np.random.rand(64, 10)
model.compile("sgd", "mse")
model.fit(x, np.zeros((64, 10)), verbose=0)
"""

SCENARIOS = (
    Scenario(
        "settings of Keras in the home folder",
        "loop.py",
        diverges("files batch initial activation", r"keras\.json|floatx", confirmed=True),
        both=Side(environ={"HOME": "{folder}/home"}, command=("{interpreter}", "{script}")),
        a=Side(files={"home/.keras/keras.json": _HOME.format("float32")}),
        b=Side(files={"home/.keras/keras.json": _HOME.format("float64")}),
    ),
    Scenario(
        "training goes on where an earlier run ended",
        "loop.py",
        diverges("files initial", r"last\.npy", confirmed=True),
        both=_RESUMING,
        b=Side(files={"last.npy": values(8)[: 128 + 16 * 64].replace(b"(96, 16)", b"(16, 16)")}),
    ),
    Scenario(
        "a line of a text that TensorFlow reads",
        "words.py",
        diverges("files batch", r"1\.txt", confirmed=True),
        b=Side(files={"texts/1.txt": _TEXT.replace("oak", "elm", 1)}),
    ),
    Scenario(
        "a vocabulary in another order",
        "words.py",
        diverges("files batch", r"vocabulary\.txt", confirmed=True),
        b=Side(files={"vocabulary.txt": "\n".join(reversed(VOCABULARY)) + "\n"}),
    ),
    Scenario(
        "a configuration that TensorFlow reads",
        "words.py",
        diverges("files batch", r"config\.json", confirmed=True),
        b=Side(files={"config.json": config(batch=12)}),
    ),
    Scenario(
        "a row of a database",
        "styles.py",
        diverges("files batch", r"rows\.db", confirmed=True),
        both=_DATABASE,
        b=Side(files={"rows.db": database(7)}),
    ),
    Scenario(
        "data that come from another program",
        "styles.py",
        diverges("files batch", r"values\.npy", confirmed=True),
        both=_CHILD,
        b=Side(files={"values.npy": values(changed=3)}),
    ),
    Scenario(
        "variables that are read by their prefix",
        "loop.py",
        diverges("update gradient initial", "APP_CLIP", confirmed=True),
        both=_PREFIX,
        b=Side(environ={"APP_CLIP": "0.01"}),
    ),
    Scenario(
        "variables from a file",
        "loop.py",
        diverges("files update gradient", r"\.env", confirmed=True),
        both=_DOTENV,
        b=Side(files={".env": "CLIP=0.01\n"}),
    ),
    Scenario(
        "shards in the order of threads",
        "images.py",
        unstable("order|thread"),
        both=_RACE,
    ),
    Scenario(
        "a comment in the code, and another clock",
        "table.py",
        diverges("batch", "TZ", confirmed=True),
        a=Side(environ={"TZ": "UTC0"}),
        b=Side(
            environ={"TZ": "JST-9"}, edits=edit("table.py", ("KINDS = [", "# As in the files.\nKINDS = ["))
        ),
    ),
    Scenario(
        "another place for the result, and a smaller table",
        "table.py",
        diverges("files batch", r"payments\.csv", confirmed=True),
        b=Side(arguments=("--output", "b.keras"), files={"payments.csv": payments(rows=48)}),
    ),
    Scenario(
        "case 3, first example as it is",
        "case.py",
        unstable("seed"),
        both=Side(files={"case.py": _CASE_1}),
    ),
    Scenario(
        "case 2, third example: seeds for TensorFlow and NumPy alone",
        "case.py",
        Expected(("UNSTABLE",), ("initial",), ("seed",)),
        both=Side(files={"case.py": _CASE_2}),
    ),
)
