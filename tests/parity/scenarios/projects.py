"""The projects of the scenarios: scripts of this folder, and small data made here."""

from __future__ import annotations

import json
import random
import sqlite3
import struct
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.parity.scenarios.model import Content

SCRIPTS = Path(__file__).parent / "scripts"


def shards(seed: int = 1, count: int = 4, records: int = 24) -> dict[str, Content]:
    """data/part-0.bin, …: records of one label byte and 12 × 12 grey values."""
    source = random.Random(seed)
    return {
        f"data/part-{index}.bin": b"".join(_record(source) for _ in range(records)) for index in range(count)
    }


def _record(source: random.Random) -> bytes:
    return bytes([source.randrange(10)]) + source.randbytes(144)


def payments(seed: int = 2, rows: int = 64) -> str:
    """A table with a header; semicolons between, unix time, amount, city, kind."""
    source = random.Random(seed)
    lines = ["when;amount;city;kind"]
    for _ in range(rows):
        when = 1_760_000_000 + source.randrange(40_000_000)
        city = source.choice(("Aarhus", "Bergen", "Malmö", "Turku"))
        kind = source.choice(("paid", "returned", "late"))
        lines.append(f"{when};{source.uniform(1, 900):.2f};{city};{kind}")
    return "\n".join(lines) + "\n"


def scaler(mean: float = 450.0, scale: float = 260.0) -> str:
    return json.dumps({"mean": mean, "scale": scale})


def config(**values: float) -> str:
    return json.dumps({"seed": 3, "batch": 32, "epochs": 2, "clip": 0.5, **values})


def matrix(seed: int = 3, rows: int = 16, columns: int = 16) -> bytes:
    """A .npy file of float32."""
    source = random.Random(seed)
    numbers = [source.uniform(-0.4, 0.4) for _ in range(rows * columns)]
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {columns}), }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    head = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header
    return head + struct.pack(f"<{len(numbers)}f", *numbers)


def values(seed: int = 5, changed: int | None = None) -> bytes:
    """96 rows of 16 numbers as a .npy file; of one row, if asked for, one number is another."""
    file = matrix(seed, 96)
    if changed is None:
        return file
    place = len(file) - (96 - changed) * 64
    return file[:place] + struct.pack("<f", 0.5) + file[place + 4 :]


VOCABULARY = ["ash", "birch", "elm", "fir", "hazel", "larch", "lime", "maple", "oak", "pine", "rowan", "yew"]


def texts(seed: int = 6) -> dict[str, Content]:
    """texts/0.txt, …: lines of four words."""
    source = random.Random(seed)
    return {
        f"texts/{index}.txt": "".join(" ".join(source.choices(VOCABULARY, k=4)) + "\n" for _ in range(32))
        for index in range(3)
    }


def database(seed: int = 5) -> bytes:
    """A file of SQLite: a table `numbers` of 96 rows of 16."""
    source = random.Random(seed)
    with sqlite3.connect(":memory:") as connection:
        connection.execute(f"create table numbers ({', '.join(f'c{k} real' for k in range(16))})")
        rows = [[source.uniform(-0.4, 0.4) for _ in range(16)] for _ in range(96)]
        connection.executemany(f"insert into numbers values ({', '.join('?' * 16)})", rows)
        connection.commit()
        return connection.serialize()


def _scripts(*names: str) -> dict[str, Content]:
    return {name: (SCRIPTS / name).read_text(encoding="utf-8") for name in names}


PROJECTS: Mapping[str, Callable[[], dict[str, Content]]] = {
    "images.py": lambda: {**_scripts("images.py", "prepare.py"), **shards()},
    "table.py": lambda: {**_scripts("table.py"), "payments.csv": payments(), "scaler.json": scaler()},
    "reading.py": lambda: {**_scripts("reading.py"), **shards()},
    "loop.py": lambda: {**_scripts("loop.py"), "config.json": config(), "start.npy": matrix()},
    "styles.py": lambda: {
        **_scripts("styles.py", "parts.py"),
        "config.json": config(rate=0.01),
        "values.npy": values(),
    },
    "legacy.py": lambda: {**_scripts("legacy.py"), "values.npy": values()},
    "sessions.py": lambda: {**_scripts("sessions.py"), "values.npy": values()},
    "scaled.py": lambda: {**_scripts("scaled.py"), "values.npy": values()},
    "words.py": lambda: {
        **_scripts("words.py"),
        **texts(),
        "vocabulary.txt": "\n".join(VOCABULARY) + "\n",
        "config.json": config(batch=16),
    },
    "workers.py": lambda: {**_scripts("workers.py"), "values.npy": values()},
    "case.py": dict,
    "photos.py": lambda: _scripts("photos.py"),
}
"""The files of each project, by the name of its script."""
