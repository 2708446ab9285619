"""The model check for an ordinary user, and on kernels that lack part of what confines it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.models import places

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
SECRET = "canary-3141592653"
MEMORY = 256 << 20

pytestmark = pytest.mark.skipif(not places.possible(), reason="seccomp filters for x86-64 and ARM64")

CONFINED = {"all": [], "no namespaces": ["unshare"], "no Landlock": ["landlock"], "no seccomp": ["prctl"]}
OPEN = {"neither for files": ["unshare", "landlock"], "nothing": ["unshare", "landlock", "prctl"]}


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user passes; pytest's own are closed."""
    with tempfile.TemporaryDirectory(prefix="orch-places-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def lay_out(folder: Path, port: int, *, stays: bool = False) -> Path:
    """The hostile module beside a pickle, and a file of the user's that it is to leave alone."""
    artifacts = folder / "artifacts"
    artifacts.mkdir()
    for place in (artifacts, folder):
        if os.geteuid() == 0:
            os.chown(place, 12345, 12345)
    (artifacts / "attacker.py").write_text((HERE / "attacker.py").read_text())
    (artifacts / "data.pkl").write_bytes(b"\x80\x04N.")
    (artifacts / "model.h5").write_bytes(b"\x89HDF\r\n\x1a\nx")
    (artifacts / "labels.txt").write_text("one\n")
    (folder / "victim").write_text("the user's")
    ask = {
        "victim": str(folder / "victim"),
        "artifact": str(artifacts / "data.pkl"),
        "parent": os.getpid(),
        "port": port,
        "variable": "AWS_SECRET_ACCESS_KEY",
        "memory": 2 * MEMORY,
        "stays": stays,
    }
    (artifacts / "attack.json").write_text(json.dumps(ask))
    for file in (*artifacts.iterdir(), folder / "victim"):
        if os.geteuid() == 0:
            os.chown(file, 12345, 12345)
    return artifacts


def started(
    folder: Path, refused: list[str], *words: str, ordinary: bool = True, stdin: int | None = None
) -> subprocess.Popen[bytes]:
    """`check-model` in `folder`, with secrets around it."""
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from orchestrator.runtime.__main__ import main\n"
        f"sys.exit(main(['check-model', *{words!r}, '--memory', '{MEMORY >> 20}']))"
    )
    needed = sorted({str(Path(sys.base_prefix).resolve()), sys.prefix, str(ROOT)})
    ask = json.dumps({"ordinary": ordinary, "refused": refused, "needed": needed})
    return subprocess.Popen(
        [sys.executable, "-I", str(HERE / "places.py"), ask, sys.executable, "-I", "-c", code],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=folder,
        env={"PATH": os.environ["PATH"], "AWS_SECRET_ACCESS_KEY": SECRET},
    )


def check(folder: Path, refused: list[str], *words: str, ordinary: bool = True) -> dict[str, dict[str, Any]]:
    """Answers by name of the file."""
    child = started(folder, refused, *words, ordinary=ordinary)
    out, err = child.communicate(timeout=100)
    assert child.returncode == 0, err.decode()[-2000:]
    assert SECRET not in out.decode() and SECRET not in err.decode()
    value = json.loads(out)
    return {each["path"]: each for each in value.get("results", [value])}


def facts(path: Path) -> tuple[Any, ...]:
    about = path.stat()
    return about.st_mode, about.st_uid, about.st_mtime_ns, path.read_bytes(), os.listxattr(path)


@pytest.mark.parametrize("ordinary", [True, False], ids=["ordinary", "this user"])
@pytest.mark.parametrize("lacking", CONFINED)
def test_code_that_was_let_in_can_do_nothing(folder: Path, lacking: str, ordinary: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        artifacts = lay_out(folder, server.getsockname()[1])
        watched = [folder / "victim", artifacts / "data.pkl"]
        before = [facts(path) for path in watched]
        words = ("data.pkl", "--folder", str(artifacts), "--import", "attacker")
        found = check(artifacts, CONFINED[lacking], *words, ordinary=ordinary)["data.pkl"]
    assert found["loaded"] is False
    if lacking == "no seccomp":  # namespaces and Landlock are left
        return
    assert "(RuntimeError: [])" in found["reason"], found["reason"]
    assert [facts(path) for path in watched] == before


@pytest.mark.parametrize("ordinary", [True, False], ids=["ordinary", "this user"])
@pytest.mark.parametrize("lacking", OPEN)
def test_where_nothing_confines_it_no_reader_of_models_starts(
    folder: Path, lacking: str, ordinary: bool
) -> None:
    artifacts = lay_out(folder, 1)
    (artifacts / "saved.json").mkdir()
    (artifacts / "saved.json" / "saved_model.pb").write_bytes(b"x")
    for name in ("vocab.txt", "vocab.txt.index", "vocab.txt.data-00000-of-00001"):
        (artifacts / name).write_bytes(b"x")
    hostile = ("data.pkl", "model.h5", "saved.json", "vocab.txt")
    names = (*hostile, "labels.txt")
    words = (*names, "--folder", str(artifacts), "--import", "attacker")
    found = check(artifacts, OPEN[lacking], *words, ordinary=ordinary)
    for name in hostile:
        assert found[name]["not_checked"] == "not-isolated", found[name]
        assert found[name]["reason"].startswith("not checked: ") and found[name]["way_out"]
    assert found["labels.txt"]["loaded"] is True


@pytest.mark.parametrize("lacking", ["all", "no namespaces"])
def test_nothing_stays_behind_after_its_time(folder: Path, lacking: str) -> None:
    artifacts = lay_out(folder, 1, stays=True)
    words = ("data.pkl", "--folder", str(artifacts), "--import", "attacker", "--seconds", "8")
    found = check(artifacts, CONFINED[lacking], *words)["data.pkl"]
    assert found["not_checked"] == "time"
    deadline = time.monotonic() + 20
    while (left := running(str(artifacts))) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left


def running(word: str) -> list[int]:
    """Processes whose command line has the word."""
    found = []
    for pid in (int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()):
        try:
            if word.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
        except OSError:
            continue
    return found
