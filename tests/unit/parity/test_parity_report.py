"""The letter, word for word, as a terminal of 80 columns shows it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.model import Divergence, DriftBand, Tried, Verdict
from orchestrator.parity.naming import HERE_AND_THERE, LETTERS, SideNames
from orchestrator.report.parity import letter
from tests.conftest import ROOT

GOLDEN = ROOT / "tests/golden/report"


def _equal(names: SideNames = LETTERS) -> str:
    repeated = f"the first steps {names.of_a}, repeated with this alone changed"
    return f"{repeated}, are bitwise identical to those {names.of_b}"


_EQUAL = _equal()
_LEFT = "left as it was, and the runs are equal without it"

_GAP = "7,598 of 65,536 elements differ, largest absolute difference 5.96e-08"

ROUNDED = Verdict(
    "EQUIVALENT",
    Divergence(1, "activation", "digits/conv1", 5.5e-8, _GAP, others=7),
    cause="Confirmed: TF_ENABLE_ONEDNN_OPTS is not set in A and 0 in B.",
    confirmed=True,
    fix="Unset TF_ENABLE_ONEDNN_OPTS in B, or export TF_ENABLE_ONEDNN_OPTS=0 in A too.",
    tried=(
        Tried("TF_ENABLE_ONEDNN_OPTS is not set in A and 0 in B", "confirmed", _EQUAL, topic="onednn"),
        Tried("the working folder's path is /home/a in A and /home/b in B", "cleared", _LEFT),
        Tried("TZ is not set in A and JST-9 in B", "cleared", _LEFT),
    ),
    band=DriftBand(
        {
            "activation": (1e-7, 6.3e-7),
            "loss": (0.0, 0.0),
            "gradient": (1e-7, 1.3e-6),
            "update": (0.0, 1.9e-7),
        },
        {
            "activation": (5e-8, 1.6e-7),
            "loss": (0.0, 0.0),
            "gradient": (1e-7, 3.1e-7),
            "update": (0.0, 4.7e-8),
        },
        ("one thread within an operation", "instructions up to AVX2"),
        4.0,
    ),
)


def changed_file(names: SideNames) -> Verdict:
    return Verdict(
        "DIVERGENT",
        Divergence(
            1,
            "files",
            "data/train-00.tfrecord",
            None,
            f"data/train-00.tfrecord has other content: 50910 bytes (sha256 1f4c27aa) {names.in_a}, "
            f"50910 bytes (sha256 09be7d31) {names.in_b}",
            Divergence(
                1,
                "batch",
                "data/0",
                0.0013,
                "1 of 64 records differs, the others are equal and in place; 1 of 4,096 elements differ, "
                "largest absolute difference 0.502",
            ),
        ),
        cause="Confirmed: the file data/train-00.tfrecord is not the same.",
        confirmed=True,
        fix=f"Decide which is right, /a/data/train-00.tfrecord {names.of_a} or /b/data/train-00.tfrecord "
        f"{names.of_b}, and copy it over the other.",
        tried=(
            Tried(
                "the file data/train-00.tfrecord is not the same", "confirmed", _equal(names), topic="data"
            ),
            Tried(
                f"the working folder's path is /a {names.in_a} and /b {names.in_b}",
                "cleared",
                _LEFT,
                topic="folder",
            ),
        ),
    )


TWO = Verdict(
    "DIVERGENT",
    Divergence(1, "batch", "data/0", 0.98, "none of the 32 records is the same"),
    cause="Confirmed: the code differs: prepare.py; together with: SEED is 1 in A and 2 in B.",
    confirmed=True,
    fix="Run the same code on both sides: decide on one prepare.py, and sync. "
    "Export SEED=1 on both sides (or 2 on both).",
    tried=tuple(
        Tried(words, "confirmed", _EQUAL.replace("this alone", "all of this") + ", and with nothing less")
        for words in ("the code differs: prepare.py", "SEED is 1 in A and 2 in B")
    ),
)

UNTRIED = replace(
    TWO,
    cause="Suspected: the code differs: prepare.py.",
    confirmed=False,
    fix="Run the same code on both sides: decide on one prepare.py, and sync.",
    tried=(
        Tried("the code differs: prepare.py", "not tried", "the other side's code is not on this computer"),
        Tried("sorted folder listings", "not tried", "the budget of 5 s was used up", "probe", "order"),
        Tried("TZ is not set in A and JST-9 in B", "cleared", "tried: it changes nothing"),
        *(Tried(f"NAME_{n} is 1 in A and 2 in B", "cleared", "tried: it changes nothing") for n in range(9)),
    ),
)

UNSTABLE = Verdict(
    "UNSTABLE",
    Divergence(1, "batch", "data/0", 0.7, "the same 32 records in another order"),
    cause="Confirmed: a generator is made without a seed: random.Random() in train.py:31.",
    confirmed=True,
    fix="Give it a seed: random.Random(1).",
)

IDENTICAL = Verdict(
    "IDENTICAL",
    compared=168,
    steps=3,
    summary="All 168 tensors of the first 3 steps are bitwise identical: batches, initial weights, layer "
    "outputs, losses, gradients, updated weights and optimizer state.",
    not_compared=("metrics of the compiled part: XLA",),
)

NOTHING = Verdict(
    "NOT COMPARED",
    detail="Nothing was observed of A: it was not recorded (there is no observe folder).",
    fix="Record it again, until its first training steps are complete: orch record -- python train.py …; "
    "what it printed is in output.log of its run.",
)

LETTERS_SHOWN = {
    "parity-rounding.txt": ROUNDED,
    "parity-file.txt": changed_file(LETTERS),
    "parity-file-there.txt": changed_file(HERE_AND_THERE),
    "parity-two.txt": TWO,
    "parity-untried.txt": UNTRIED,
    "parity-unstable.txt": UNSTABLE,
    "parity-identical.txt": IDENTICAL,
    "parity-nothing.txt": NOTHING,
}


@pytest.mark.parametrize("name", LETTERS_SHOWN)
def test_the_letter(name: str) -> None:
    """To accept a new text: write it into tests/golden/report and read it there as a user would."""
    assert letter(LETTERS_SHOWN[name].as_json()) + "\n" == (GOLDEN / name).read_text()


@pytest.mark.parametrize("name", LETTERS_SHOWN)
@pytest.mark.parametrize("width", [80, 90, 100])
def test_it_is_one_screen_and_keeps_to_the_width(name: str, width: int) -> None:
    lines = letter(LETTERS_SHOWN[name].as_json(), width=width).splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) <= 24


def test_colours_change_no_word() -> None:
    parity = ROUNDED.as_json()
    coloured = letter(parity, colour=True)
    assert "\x1b[" in coloured
    for code in ("\x1b[1;33m", "\x1b[1m", "\x1b[0m"):
        coloured = coloured.replace(code, "")
    assert coloured == letter(parity)
