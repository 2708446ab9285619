"""The isolation of a process, by each layer alone and by all: what it can still reach is tried, not asked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from orchestrator.runtime.isolation import LAYERS

ROOT = Path(__file__).resolve().parents[3]
PROBE = """
import json, os, socket, subprocess, sys
sys.path.insert(0, sys.argv[1])
from orchestrator.runtime import isolation
ask = json.loads(sys.argv[2])
view = isolation.View((*ask["read"], sys.prefix, sys.base_prefix, "/usr", "/lib", "/lib64"),
                      ask["scratch"], 1 << 30, 1 << 20, 60)
found = {"held": isolation.isolate(view, tuple(ask["layers"]))}

def tried(name, action):
    try:
        found[name] = str(action())
    except BaseException as error:
        found[name] = type(error).__name__

def written(path):
    with open(path, "w") as file:
        return file.write("x")

def connected():
    socket.create_connection(("127.0.0.1", ask["port"]), 2).close()
    return "connected"

tried("read", lambda: open(ask["read"][0] + "/artifact").read())
tried("secret", lambda: open(ask["secret"]).read())
tried("through link", lambda: open(ask["read"][0] + "/link").read())
tried("environ of parent", lambda: b"CANARY" in open(f"/proc/{ask['parent']}/environ", "rb").read())
tried("write artifact", lambda: written(ask["read"][0] + "/artifact"))
tried("make artifact", lambda: written(ask["read"][0] + "/new"))
tried("write elsewhere", lambda: written(ask["elsewhere"] + "/new"))
tried("write scratch", lambda: written(ask["scratch"] + "/new"))
tried("connect", connected)
tried("start", lambda: subprocess.run(["/bin/sh", "-c", "true"], check=True).returncode)
tried("fork", os.fork if "seccomp" in ask["layers"] else lambda: "not tried")
tried("kill", lambda: os.kill(ask["parent"], 0))
tried("memory", lambda: len(bytearray(2 << 30)))
tried("threads", lambda: __import__("threading").Thread(target=print).start())
print(json.dumps(found))
"""


def probe(tmp_path: Path, layers: tuple[str, ...]) -> dict[str, Any]:
    """Try forbidden actions in the isolation of `layers`. A listening port and two folders are outside."""
    import socket

    for name in ("artifacts", "home", "elsewhere"):
        (tmp_path / name).mkdir()
    (tmp_path / "artifacts" / "artifact").write_text("weights")
    (tmp_path / "home" / "credentials").write_text("canary")
    (tmp_path / "artifacts" / "link").symlink_to(tmp_path / "home" / "credentials")
    with socket.create_server(("127.0.0.1", 0)) as server, tempfile.TemporaryDirectory() as scratch:
        ask = {
            "layers": layers,
            "read": [str(tmp_path / "artifacts"), str(ROOT / "orchestrator")],
            "secret": str(tmp_path / "home" / "credentials"),
            "elsewhere": str(tmp_path / "elsewhere"),
            "scratch": scratch,
            "port": server.getsockname()[1],
            "parent": os.getpid(),
        }
        argv = [sys.executable, "-I", "-c", PROBE, str(ROOT), json.dumps(ask)]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, env={})
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


ALONE = [("namespaces",), ("landlock",), ("seccomp",), LAYERS]


@pytest.mark.parametrize("layers", ALONE, ids="+".join)
def test_what_a_layer_says_it_holds_holds(tmp_path: Path, layers: tuple[str, ...]) -> None:
    found = probe(tmp_path, layers)
    held = found["held"]
    assert found["read"] == "weights" and found["write scratch"] == "1", found
    if held["files"]:
        refused = ("FileNotFoundError", "PermissionError", "OSError", "NotADirectoryError")
        for name in ("secret", "through link", "environ of parent", "write artifact", "make artifact"):
            assert found[name] in refused, (name, found)
        assert found["write elsewhere"] in refused and found["start"] in refused
        assert not (tmp_path / "artifacts" / "new").exists()
        assert not (tmp_path / "elsewhere" / "new").exists()
        assert (tmp_path / "artifacts" / "artifact").read_text() == "weights"
    if held["network"]:
        assert found["connect"] in ("PermissionError", "OSError", "ConnectionRefusedError"), found
    if held["processes"]:
        assert found["kill"] in ("ProcessLookupError", "PermissionError"), found
    if held["processes"] == "seccomp":
        assert found["start"] == found["fork"] == "PermissionError", found
    assert found["memory"] == "MemoryError" and found["threads"] == "None", found


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="namespaces are Linux'")
def test_all_layers_together_hold_everything_here(tmp_path: Path) -> None:
    held = probe(tmp_path, LAYERS)["held"]
    if os.environ.get("ORCH_TEST_ISOLATION") == "partial":
        pytest.skip("this computer was said to lack some of it")
    assert held["files"] and held["network"] and held["processes"], held
