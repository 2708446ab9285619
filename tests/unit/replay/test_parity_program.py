"""Command lines, understood and put in other words."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.replay.command_line import folder_of, localise, normalise


@pytest.mark.parametrize(
    ("argv", "folder"),
    [
        ("python train.py", "."),
        ("python -u src/train.py --lr 1", "src"),
        ("python -m pkg.train", "pkg"),
        ("python -m pkg", "pkg"),
        ("python -m gone.train", None),
        ("sh run.sh", None),
    ],
)
def test_where_a_program_lies(tmp_path: Path, argv: str, folder: str | None) -> None:
    (tmp_path / "pkg").mkdir()
    for name in ("train.py", "__main__.py"):
        (tmp_path / "pkg" / name).touch()
    assert folder_of(argv.split(), tmp_path) == (None if folder is None else tmp_path / folder)


def test_a_command_is_put_in_the_words_of_another_computer() -> None:
    mine = ["env", "LR=0.1", "/home/a/venv/bin/python", "/home/a/p/train.py"]
    theirs = ["env", "LR=0.2", "/opt/bin/python3.11", "/srv/p/train.py"]
    assert normalise(mine, Path("/home/a/p")) == ("env", "LR=0.1", "python", "./train.py")
    wanted = normalise(theirs, Path("/srv/p"))
    assert localise(mine, Path("/home/a/p"), wanted) == ("env", "LR=0.2", *mine[2:])
    shell = ["sh", "-c", "LR=0.1 /v/bin/python train.py --out=/data/python-runs"]
    wanted = ("sh", "-c", "LR=0.2 python train.py --out=/data/python-runs")
    assert localise(shell, Path("/p"), wanted)[2] == "LR=0.2 /v/bin/python train.py --out=/data/python-runs"
