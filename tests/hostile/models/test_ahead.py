"""A check that is started before its files are there: confined as any other, and gone with whoever asked."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.models import places
from tests.hostile.models.test_places import (
    CONFINED,
    OPEN,
    SECRET,
    facts,
    folder,
    lay_out,
    running,
    started,
)

pytestmark = pytest.mark.skipif(not places.possible(), reason="seccomp filters for x86-64 and ARM64")
__all__ = ["folder"]


def begun(artifacts: Path, lacking: list[str], *words: str) -> subprocess.Popen[bytes]:
    """`check-model --ahead` for `artifacts`, confined and waiting for its files."""
    words = ("--ahead", str(artifacts), *words)
    child = started(artifacts, lacking, *words, ordinary=False, stdin=subprocess.PIPE)
    wait_for(lambda: any("modelcheck.inside" in line for line in commands(artifacts)))
    return child


def commands(folder: Path) -> list[str]:
    return [_of(pid, "cmdline").replace("\0", " ") for pid in running(str(folder))]


def _of(pid: int, name: str) -> str:
    """What /proc tells of a process; "" when it is gone."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes().decode()
    except OSError:
        return ""


def wait_for(true: Any, seconds: float = 60.0) -> None:
    limit = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < limit
        time.sleep(0.05)


def answers(child: subprocess.Popen[bytes], *paths: Path) -> dict[str, dict[str, Any]]:
    line = json.dumps({"paths": [str(path) for path in paths]}).encode() + b"\n"
    out, err = child.communicate(line, timeout=100)
    assert child.returncode == 0, err.decode()[-2000:]
    assert SECRET not in out.decode() and SECRET not in err.decode()
    value = json.loads(out)
    return {Path(each["path"]).name: each for each in value.get("results", [value])}


def test_what_arrives_later_is_read(folder: Path) -> None:
    artifacts = lay_out(folder, 1)
    with begun(artifacts, []) as child:
        inner = artifacts / "out"
        inner.mkdir()
        (inner / "labels.txt.part").write_text("one\ntwo\n")
        (inner / "labels.txt.part").rename(inner / "labels.txt")
        found = answers(child, inner / "labels.txt")["labels.txt"]
    assert found["loaded"] is True and found["isolation"]["files"]


@pytest.mark.parametrize("lacking", [name for name in CONFINED if name != "no seccomp"])
def test_code_that_was_let_in_can_do_nothing(folder: Path, lacking: str) -> None:
    artifacts = lay_out(folder, 1)
    watched = [folder / "victim", artifacts / "data.pkl"]
    before = [facts(path) for path in watched]
    with begun(artifacts, CONFINED[lacking], "--folder", str(artifacts), "--import", "attacker") as child:
        found = answers(child, artifacts / "data.pkl")["data.pkl"]
    assert found["loaded"] is False and "(RuntimeError: [])" in found["reason"], found["reason"]
    assert [facts(path) for path in watched] == before


@pytest.mark.parametrize("lacking", OPEN)
def test_where_nothing_confines_it_no_reader_of_models_starts(folder: Path, lacking: str) -> None:
    artifacts = lay_out(folder, 1)
    with begun(artifacts, OPEN[lacking]) as child:
        found = answers(child, artifacts / "model.h5")["model.h5"]
    assert found["not_checked"] == "not-isolated", found


def test_a_file_elsewhere_is_read_by_a_new_process_with_a_view_of_it(folder: Path) -> None:
    artifacts = lay_out(folder, 1)
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere" / "labels.txt").write_text("one\n")
    with begun(artifacts, []) as child:
        assert answers(child, folder / "elsewhere" / "labels.txt")["labels.txt"]["loaded"] is True


def test_another_folder_in_its_place_is_read_by_a_new_process(folder: Path) -> None:
    artifacts = lay_out(folder, 1)
    with begun(artifacts, []) as child:
        artifacts.rename(folder / "before")
        artifacts.mkdir()
        (artifacts / "labels.txt").write_text("another\n")
        found = answers(child, artifacts / "labels.txt")["labels.txt"]
    assert found["loaded"] is True and found["tensors"][0]["shape"] == [1]


@pytest.mark.parametrize("how", ["end of input", "killed"])
def test_nothing_stays_when_nobody_asks(folder: Path, how: str) -> None:
    artifacts = lay_out(folder, 1)
    child = begun(artifacts, [])
    if how == "killed":
        for pid in running(str(artifacts)):
            if "modelcheck.inside" not in Path(f"/proc/{pid}/cmdline").read_text():
                os.kill(pid, signal.SIGKILL)
    assert child.stdin
    child.stdin.close()
    child.wait(60)
    wait_for(lambda: not running(str(artifacts)))


def test_it_gives_way_until_it_is_asked(folder: Path) -> None:
    artifacts = lay_out(folder, 1)
    with begun(artifacts, []) as child:
        wait_for(
            lambda: any(
                "modelcheck.inside" in _of(pid, "cmdline") and _of(pid, "oom_score_adj").strip() == "1000"
                for pid in running(str(artifacts))
            )
        )
        answers(child, artifacts / "labels.txt")
    assert sys.platform == "linux"
