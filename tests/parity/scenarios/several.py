"""Several causes at once, and scripts that differ from themselves."""

from __future__ import annotations

from tests.parity.scenarios.model import Scenario, Side, diverges, edit, rounds, unstable
from tests.parity.scenarios.projects import scaler

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
        "a vocabulary in the order of a set",
        "table.py",
        unstable("PYTHONHASHSEED|hash|set"),
        both=Side(
            edits=edit(
                "table.py", ('["Aarhus", "Bergen", "Malmö", "Turku"]', "list({row[2] for row in rows})")
            )
        ),
    ),
)

SCENARIOS = (*TWO, *UNSTABLE)
