"""The three commands on the digits example: what the README promises, seen from outside."""

from __future__ import annotations

import hashlib
import json
import struct
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from tests.e2e.project import Project
from tests.unit.stack_locks import uv

pytestmark = [pytest.mark.machine, pytest.mark.tensorflow, pytest.mark.slow]


@pytest.fixture(scope="module")
def run(digits: Project) -> dict[str, object]:
    """The record of `orch train --local-parity`, as printed."""
    return digits.json("train", "--local-parity", "--run-id", "main")


def test_the_record_follows_its_published_schema(digits: Project, run: dict[str, object]) -> None:
    schema = json.loads(digits.orch("schema", "run").out)
    jsonschema.Draft202012Validator(schema).validate(run)
    assert json.loads((digits.folder / "runs/main/run.json").read_text()) | {"started": True} == run


def test_it_learned_what_it_learns_here(run: dict) -> None:
    ended = run["exit"]
    assert (ended["code"], ended["signal"], ended["reason"]) == (0, None, "completed")
    assert ended["retry"] is False and ended["noticed"] == []
    assert run["metrics"]["accuracy"] >= 0.96


def test_parity_is_identical_and_says_on_how_much(run: dict) -> None:
    assert run["parity"]["verdict"] == "IDENTICAL"
    assert run["parity"]["steps"] == 3
    assert run["parity"]["compared"] > 100


def test_the_stack_is_the_lock(run: dict) -> None:
    assert [d for d in run["stack"]["differences"] if not d["declared"]] == []
    assert run["stack"]["packages"] > 30


def test_the_data_are_counted(digits: Project, run: dict) -> None:
    files = [p for p in (digits.folder / "examples/digits/data").rglob("*") if p.is_file()]
    assert run["data"]["files"] == len(files)


def test_the_model_came_back_and_predicts_the_same(digits: Project, run: dict) -> None:
    assert run["model_check"]["loaded"] is True
    assert run["model_check"]["equal"] is True
    for artifact in run["artifacts"]:
        path = digits.folder / "runs/main" / artifact["path"]
        assert hashlib.sha256(path.read_bytes()).hexdigest() == artifact["sha256"]
    assert "outputs/out/model.keras" in [artifact["path"] for artifact in run["artifacts"]]


def test_the_profile_tells_where_the_time_went(run: dict) -> None:
    profile = run["profile"]
    assert profile["steps"] >= 12 * 45
    assert profile["steps_per_s"] > 0
    assert 0 <= profile["input_wait"] <= 1
    assert profile["peak_memory"] > 100 << 20
    assert profile["limited_by"]
    assert profile["pipeline"][0]["name"] == "Root" and profile["epoch_steps"] == 45
    assert profile["right_size"] or not run["machine"]["price_usd_hour"], "said only of a machine that costs"


def test_the_screen_shows_where_the_time_went(digits: Project, run: dict) -> None:
    screen = " ".join(digits.orch("train", "--run-id", "main").out.split())
    assert "waiting for input" in screen and run["profile"]["because"] in screen


def test_what_its_input_costs_is_measured_on_the_machine(digits: Project, run: dict) -> None:
    """As `orch train --io-analyze` does after the run, with fewer and shorter windows."""
    before = (digits.folder / "runs/main/run.json").read_bytes()
    program = (
        "from orchestrator.stalls.on_machine import analyse\n"
        "from orchestrator.stalls.scratch_run import Options\n"
        f"analyse({run['run_id']!r}, wish=Options(attempt=True, rounds=3, seconds=0.1))\n"
    )
    argv = [sys.executable, "-c", program]
    done = subprocess.run(argv, cwd=digits.folder, env=digits.env(), capture_output=True, timeout=280)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    found = json.loads((digits.folder / "runs/main/io/profile.json").read_text())
    assert found["measured"] and found["bottleneck"]["words"], found["why"]
    stalls = found["differential"]
    assert stalls["loop"] == "fit" and stalls["batch"] == 32 and stalls["files"] >= 10
    assert stalls["ideal_step"] > 0 and stalls["step"]["warm"] > 0
    assert found["tried"] or found["untried"]
    for fix in found["tried"]:
        assert fix["parity"]["same"] in ("order", "examples", None), fix
    assert (digits.folder / "runs/main/run.json").read_bytes() == before
    runs = [each["run_id"] for each in digits.json("status")["leases"][0]["runs"]]
    assert "main" in runs and "main-io1" not in runs, "it is no run of the user's"


def test_the_same_run_id_gives_the_same_run(digits: Project, run: dict) -> None:
    assert digits.json("train", "--run-id", "main") == {**run, "started": False}


def test_logs_of_a_pulled_run_need_no_machine(digits: Project, run: dict) -> None:
    del run
    assert "Test accuracy" in digits.orch("logs", "main").out


def test_up_again_keeps_the_machine_and_skips_the_stack(digits: Project) -> None:
    before = digits.json("status")["leases"][0]["machine"]
    said = digits.orch("up", "profiles/digits.yaml")
    assert digits.json("status")["leases"][0]["machine"] == before
    assert "already there" in said.err


def test_one_byte_of_data_is_named(digits: Project, tf_python: Path, tmp_path: Path) -> None:
    """Recorded here twice; one pixel of one image of the second differs."""
    example = digits.folder / "examples/digits"
    shard = sorted((example / "data").glob("train-*"))[0]
    original = shard.read_bytes()
    command = [str(tf_python), "examples/digits/train.py", "--data", "examples/digits/data", "--epochs", "1"]
    one = digits.json("record", "--run-id", "before", "--", *command, "--output", str(tmp_path / "a"))
    assert one["exit"]["reason"] == "completed"
    try:
        shard.write_bytes(_with_another_pixel(original))
        digits.json("record", "--run-id", "after", "--", *command, "--output", str(tmp_path / "b"))
    finally:
        shard.write_bytes(original)
    verdict = digits.json("compare", "before", "after", code=7)
    assert (verdict["verdict"], verdict["stage"]) == ("DIVERGENT", "files")
    assert verdict["tensor"].endswith(shard.name)
    assert verdict["shows"]["stage"] == "batch", "and what it did to the batch"
    assert "records" in verdict["shows"]["detail"]


def _with_another_pixel(shard: bytes) -> bytes:
    """The shard with every record's checksum right and one pixel of every image another."""
    out, at = b"", 0
    while at < len(shard):
        (length,) = struct.unpack_from("<Q", shard, at)
        body = bytearray(shard[at + 12 : at + 12 + length])
        place = body.index(b"image") + 5
        run = body.index(b"\x00" * 3, place)
        body[run + 1] = 7
        out += shard[at : at + 12] + bytes(body) + struct.pack("<I", _masked_crc32c(bytes(body)))
        at += 12 + length + 4
    return out


def _masked_crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def test_a_variable_of_this_shell_is_the_same_on_both_sides(digits: Project) -> None:
    record = digits.json("train", "--local-parity", TF_ENABLE_ONEDNN_OPTS="0")
    assert record["stack"]["inherited"] == {"TF_ENABLE_ONEDNN_OPTS": "0"}
    assert record["parity"]["verdict"] == "IDENTICAL"


def test_a_variable_that_is_right_for_one_machine_only_stops_the_run(digits: Project) -> None:
    error = digits.json("train", code=7, XLA_FLAGS="--xla_dump_to=/tmp/dump")["error"]
    assert error["kind"] == "StackMismatch"
    assert "XLA_FLAGS" in error["message"]


def test_a_variable_on_one_side_only_is_seen_in_the_numbers(digits: Project, other_onednn: str) -> None:
    """Allowed by name, it gets as far as parity, which names the first tensor that differs."""
    allowed = 'stack.allow=["TF_ENABLE_ONEDNN_OPTS"]'
    strict = ("--set", allowed, "--set", "parity.on_mismatch=stop")
    error = digits.json("train", "--local-parity", *strict, code=7, TF_ENABLE_ONEDNN_OPTS=other_onednn)[
        "error"
    ]
    assert error["kind"] == "ParityMismatch"
    assert "conv1" in error["message"]
    assert "TF_ENABLE_ONEDNN_OPTS" in error["message"]


def test_a_package_that_is_not_the_lock_is_put_right_and_named(digits: Project) -> None:
    """Somebody changed a file of an installed package on the machine."""
    stacks = digits.orch("ssh", "--", "ls", "/opt/orch/stacks").out.split()
    digest = next(name for name in stacks if "." not in name)
    target = f"/opt/orch/stacks/{digest}/lib/python3.*/site-packages/six.py"
    digits.orch("ssh", "--", "sh", "-c", f"echo '# changed' | tee -a {target}")
    said = digits.orch("up", "profiles/digits.yaml")
    assert "has changed since it was installed" in said.err


def test_a_local_environment_that_is_not_the_lock_stops_the_run(
    digits: Project, tf_python: Path, tmp_path: Path
) -> None:
    """The user's own environment has another version of one package than the lock."""
    own = tmp_path / "own"
    lock = digits.folder / "examples/digits/requirements.lock"
    uv("venv", "-q", "-p", tf_python, own, cwd=tmp_path)
    python = str(own / "bin/python")
    uv("pip", "sync", "-q", "-p", python, lock, cwd=tmp_path)
    uv("pip", "install", "-q", "-p", python, "six==1.16.0", cwd=tmp_path)
    error = digits.json("train", "--set", f"stack.python={python}", code=7)["error"]
    assert error["kind"] == "StackMismatch"
    assert "six" in error["message"]
    assert "1.16.0" in error["message"]
