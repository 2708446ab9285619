"""Planted in files and batches: content, order, dtype, shape, preparation."""

from __future__ import annotations

from tests.parity.scenarios.model import Expected, Scenario, Side, diverges, edit
from tests.parity.scenarios.projects import payments, scaler, shards

_SHARD = shards()["data/part-2.bin"]
assert isinstance(_SHARD, bytes)
_PIXEL = _SHARD[:60] + bytes([_SHARD[60] ^ 0x80]) + _SHARD[61:]

_UNSORTED = Side(edits=edit("images.py", ("sorted(glob.glob(", "list(glob.glob(")))
_BY_TIME = Side(
    edits=edit(
        "images.py",
        ("import glob\n", "import glob\nimport os\n"),
        ('glob.glob(f"{options.data}/*.bin"))', 'glob.glob(f"{options.data}/*.bin"), key=os.path.getmtime)'),
    )
)
_MOCK = Side(
    edits=edit(
        "images.py",
        (
            "images, labels = (",
            "if not shards:\n    shards = [(np.random.rand(96, SIDE, SIDE, 1).astype('float32'), "
            "np.zeros(96, 'int64'))]\nimages, labels = (",
        ),
    )
)
_CORE_BATCH = Side(
    edits=edit(
        "images.py",
        ("import glob\n", "import glob\nimport os\n"),
        (".batch(options.batch)", ".batch(16 * len(os.sched_getaffinity(0)))"),
    )
)
_SHUFFLE_VARIABLE = Side(
    edits=edit(
        "images.py",
        ("import glob\n", "import glob\nimport os\n"),
        ("seed=3", 'seed=int(os.environ.get("SHUFFLE_SEED", "3"))'),
    )
)
_BUCKETS = Side(
    edits=edit(
        "table.py",
        ("*(float(city == name) for name in CITIES)", "*(float(hash(city) % 4 == k) for k in range(4))"),
    )
)
_CARELESS = Side(edits=edit("table.py", ('encoding="utf-8"', 'errors="replace"')))
_BOTH_ENCODINGS = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "POSIX"}
_INTERLEAVED = Side(edits=edit("reading.py", ("read, cycle_length=2", "read")))

FILES = (
    Scenario(
        "one pixel of one shard",
        "images.py",
        diverges("files batch", r"part-2\.bin", confirmed=True),
        b=Side(files={"data/part-2.bin": _PIXEL}),
    ),
    Scenario(
        "a stray copy of a shard",
        "images.py",
        diverges("files batch", r"part-2 copy\.bin"),
        b=Side(files={"data/part-2 copy.bin": _SHARD}),
    ),
    Scenario(
        "a shard is missing",
        "images.py",
        diverges("files batch", r"part-3\.bin"),
        b=Side(files={"data/part-3.bin": None}),
    ),
    Scenario(
        "a shard cut off by a broken download",
        "images.py",
        diverges("files batch", r"part-2\.bin", confirmed=True),
        b=Side(files={"data/part-2.bin": _SHARD[: 145 * 11]}),
    ),
    Scenario(
        "other line ends",
        "table.py",
        diverges("files batch", r"payments\.csv", confirmed=True),
        b=Side(files={"payments.csv": payments().replace("\n", "\r\n")}),
    ),
    Scenario(
        "a scaler fitted anew",
        "table.py",
        diverges("files batch", r"scaler\.json", confirmed=True),
        b=Side(files={"scaler.json": scaler(455.5, 263.0)}),
    ),
    Scenario(
        "made-up data where there are none",
        "images.py",
        diverges("files batch", r"part-0\.bin|data"),
        both=_MOCK,
        b=Side(files=dict.fromkeys(shards())),
    ),
    Scenario(
        "a variable leads to other data",
        "reading.py",
        diverges("files batch", r"SHARDS|part-"),
        both=Side(files={name.replace("data", "newer"): c for name, c in shards(9).items()}),
        b=Side(environ={"SHARDS": "newer"}),
    ),
)

ORDER = (
    Scenario(
        "a folder listed unsorted",
        "images.py",
        Expected(("DIVERGENT", "UNSTABLE"), ("files", "batch"), (r"sorted|order",)),  # a copy is listed anew
        both=_UNSORTED,
        b=Side(reversed_files=True, memory=True),
        local=True,
    ),
    Scenario(
        "files sorted by the time of their copy",
        "images.py",
        diverges("files batch", r"order"),
        both=_BY_TIME,
        b=Side(reversed_files=True),
    ),
    Scenario(
        "interleave by the number of cores",
        "reading.py",
        diverges("batch", r"cores|cycle_length", confirmed=True),
        both=_INTERLEAVED,
        b=Side(cpus=1),
    ),
    Scenario(
        "a shuffle seed in a variable",
        "images.py",
        diverges("batch", r"SHUFFLE_SEED", confirmed=True),
        both=_SHUFFLE_VARIABLE,
        b=Side(environ={"SHUFFLE_SEED": "9"}),
    ),
    Scenario(
        "a shuffle seed in the code",
        "images.py",
        diverges("batch", r"images\.py", confirmed=True),
        b=Side(edits=edit("images.py", ("seed=3", "seed=4"))),
    ),
)

CONTENT = (
    Scenario(
        "another batch size",
        "images.py",
        diverges("batch", r"--batch|arguments", confirmed=True),
        b=Side(arguments=("--batch", "16")),
    ),
    Scenario(
        "a batch size made of cores",
        "images.py",
        diverges("batch", r"cores|CPU|processors", confirmed=True),
        both=_CORE_BATCH,
        b=Side(cpus=1),
    ),
    Scenario(
        "another scaling in a module",
        "images.py",
        diverges("batch", r"prepare\.py", confirmed=True),
        b=Side(edits=edit("prepare.py", ("raw / 255.0", "raw / 127.5 - 1.0"))),
    ),
    Scenario(
        "a multiplication for a division",
        "images.py",
        Expected(("DIVERGENT", "EQUIVALENT"), ("batch",), (r"prepare\.py",), True),
        b=Side(
            edits=edit("prepare.py", ('(raw / 255.0).astype("float32")', 'raw.astype("float32") * (1 / 255)'))
        ),
        a=Side(
            edits=edit("prepare.py", ('(raw / 255.0).astype("float32")', 'raw.astype("float32") / 255.0'))
        ),
    ),
    Scenario(
        "labels counted from the other end",
        "images.py",
        diverges("batch", r"images\.py", confirmed=True),
        b=Side(edits=edit("images.py", ('raw[:, 0].astype("int64")', '9 - raw[:, 0].astype("int64")'))),
    ),
    Scenario(
        "other sample weights",
        "loop.py",
        diverges("batch loss", r"loop\.py", confirmed=True),
        b=Side(edits=edit("loop.py", ('np.ones(96, "float32")', 'np.linspace(1, 2, 96).astype("float32")'))),
    ),
    Scenario(
        "hours by the local clock",
        "table.py",
        diverges("batch", r"TZ", confirmed=True),
        a=Side(environ={"TZ": "UTC0"}),
        b=Side(environ={"TZ": "JST-9"}),
    ),
    Scenario(
        "a text read in another encoding",
        "table.py",
        diverges("batch", r"LC_ALL|PYTHONUTF8|encoding|locale"),
        both=_CARELESS,
        b=Side(environ=_BOTH_ENCODINGS),
    ),
    Scenario(
        "buckets by Python's hash",
        "table.py",
        diverges("batch", r"PYTHONHASHSEED", confirmed=True),
        both=_BUCKETS,
        a=Side(environ={"PYTHONHASHSEED": "1"}),
        b=Side(environ={"PYTHONHASHSEED": "2"}),
    ),
)

SCENARIOS = (*FILES, *ORDER, *CONTENT)
