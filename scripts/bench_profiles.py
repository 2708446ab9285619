"""Where the time goes of rows that miss their goal: by profiles, not by the benches."""

from __future__ import annotations

from collections.abc import Mapping

WHERE: Mapping[str, str] = {
    "sync.open.full": (
        "Every file is read and hashed before the first is sent (0.4 s of processor time), and there "
        "each is staged, hashed, renamed and listed again: Python on both sides, where rsync is C and "
        "proves less; both share two cores here."
    ),
    "sync.open.same": (
        "The scan here (0.2 s) and, beside it, starting Python there, reading its record and listing "
        "10,000 files take about as long as rsync's connection."
    ),
    "sync.open.changed": (
        "As above, and then 100 files through the stage, the last listing, and the record of 10,000 "
        "rows there."
    ),
    "sync.pull": (
        "Receiving, hashing and renaming in Python is 1 s for 10,000 files; 0.2 to 0.5 s is waiting "
        "until they are on the disk, for which rsync does not wait."
    ),
    "sync.large": (
        "The file is hashed here before it is sent, and the ssh library encrypts in Python's process."
    ),
    "link.20ms.full": "Beyond the round trips it is what both Pythons do, as in the first row.",
    "link.20ms.changed": "As above; the round trips themselves are fewer than rsync's.",
    "link.100ms.full": "As at 20 ms.",
    "link.50mbit.full": (
        "The link is the limit. Ours compresses what it can: half of the files are random, the others "
        "become half; the first 3 MB pass before the link is known to be slow."
    ),
    "loop.first": "By hand it is one rsync over an open connection and one Python; see the row below.",
    "loop.own": (
        "0.8 s are imports and checks here (pydantic, paramiko, lint: 400 modules), 0.4 s the proof of "
        "the stack there beside sending the code, 0.2 s the run's folder and supervisor, 0.1 s the "
        "login, the rest Python's start; both sides share two cores here."
    ),
    "boot.warm": (
        "Bytecode: a new environment, beside which there is no other, compiles all of TensorFlow, so that "
        "the first import is 9 s faster; uv by itself compiles none."
    ),
    "boot.compiled": (
        "Beyond uv's work, wheels are sent and unpacked, and every file is hashed against its RECORD."
    ),
    "boot.skip": (
        "It is the proof of 19,000 files by their stamps (0.3 s), and one listing of what the machine has."
    ),
    "parity.record": (
        "1 s is orch's own start, before and after; the rest is in the job: tensors are read within "
        "the graph of the first steps, which is traced with them, and written as files."
    ),
    "store.large": "Ours computes SHA-256 beside the MD5 that both compare.",
    "store.small": "Python opens, hashes and renames each object; rclone is Go.",
    "many.ledger": (
        "`json.loads` of its lines alone takes 0.9 to 1.0 s; the rest is 100,000 checked events. A "
        "lease has tens of them."
    ),
}
