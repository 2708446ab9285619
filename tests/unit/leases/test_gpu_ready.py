"""`up` ends a machine whose driver or packages do not use its GPU, and says why. All are look-alikes."""

from __future__ import annotations

import hashlib
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest

import orchestrator as orch
from orchestrator.errors import MalformedAnswer, StackError
from orchestrator.leases.gpu_ready import parse_listing
from tests.said import Said
from tests.unit import here_cloud
from tests.unit.leases.test_unprepared import Job
from tests.unit.runtime.test_gpus import TORCH

SMI = """#!/bin/sh
case "$*" in
-L) echo "GPU 0: Tesla T4 (UUID: GPU-0)" ;;
--query-gpu=driver_version*) cat "$(dirname "$0")/driver" ;;
*) exit 6 ;;
esac
"""


def wheel(folder: Path, name: str, version: str, module: str, text: str) -> str:
    """A wheel of one module in `folder`; its line in a lock."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    files = {
        module: text,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = "".join(f"{each},,\n" for each in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(path, "w") as archive:
        for each, content in {**files, f"{info}/RECORD": rows}.items():
            archive.writestr(each, content)
    return f"{name}=={version} --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """A project whose lock has PyTorch with CUDA 12; its machines have a driver that serves it."""
    monkeypatch.setenv("ORCH_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/nvidia-smi").write_text(SMI)
    (tmp_path / "bin/nvidia-smi").chmod(0o755)
    (tmp_path / "bin/driver").write_text("570.195.03\n")
    made = here_cloud.cloud(tmp_path / "machines", monkeypatch, prepared=True)
    job = Job(made, here_cloud.project(tmp_path / "p", "print('hello')\n"), Said())
    torch = wheel(tmp_path / "wheels", "torch", "2.9.0", "torch.py", TORCH)
    cuda = wheel(tmp_path / "wheels", "nvidia-cuda-runtime-cu12", "12.8.90", "cuda_look_alike.py", "")
    lock = f"--find-links {tmp_path / 'wheels'}\n{torch}{cuda}"
    (job.profile.parent / "requirements.lock").write_text(lock)
    return job


def wanted(job: Job, **variables: str) -> None:
    text = job.profile.read_text().replace("{cpus: 2}", "{accelerator: T4}")
    job.profile.write_text(text + f"  env: {variables}\n")


def refused(job: Job, **options: Any) -> StackError:
    with pytest.raises(StackError) as failed:
        job.up(**options)
    return failed.value


def test_gpus_that_the_packages_list_are_enough(job: Job) -> None:
    wanted(job, TORCH_GPUS="1")
    assert job.up().state == "running"
    assert "Checking that torch can use the GPUs" in job.told.lines


def test_where_fewer_are_listed_the_cause_is_named_and_the_machine_ended(job: Job) -> None:
    wanted(job, TORCH_GPUS="1", LD_LIBRARY_PATH="/opt/shadow", CUDA_VISIBLE_DEVICES="-1")
    kept = refused(job, keep=True)
    assert "torch lists 0 of 1 GPU on" in kept.message
    assert "CUDA_VISIBLE_DEVICES='-1' hides them" in kept.message
    assert job.alive == 1
    again = refused(job)
    assert again.message == kept.message, "an installed stack is asked again"
    assert job.alive == 1, "the machine of an earlier call"
    orch.down(folder=job.profile.parent)
    ended = refused(job)
    assert ended.exit_code == 5 and job.alive == 0
    assert "was deleted, and cost" in str(ended.exists)


def test_a_driver_too_old_for_the_lock_is_seen_before_anything_is_installed(job: Job, tmp_path: Path) -> None:
    wanted(job, TORCH_GPUS="1")
    (tmp_path / "bin/driver").write_text("470.256.02\n")
    error = refused(job)
    assert "is 470.256, and CUDA 12, which the lock pins, needs 525.60 or newer" in error.message
    assert job.alive == 0
    assert not any(line.startswith("Installing") for line in job.told.lines)


def test_an_image_without_a_driver_is_named_with_its_remedy(job: Job, tmp_path: Path) -> None:
    wanted(job, TORCH_GPUS="1")
    (tmp_path / "bin/nvidia-smi").write_text("#!/bin/sh\nexit 127\n")
    plain = refused(job)
    assert "there is no nvidia-smi" in plain.message
    assert plain.next_command == f"orch up {job.profile}"
    job.profile.write_text(f"{job.profile.read_text()}image: plain\n")
    assert "without `image`" in str(refused(job).next_command)


def test_a_gpu_that_may_stay_idle_is_not_asked_for(job: Job) -> None:
    wanted(job, TORCH_GPUS="0")
    job.profile.write_text(f"{job.profile.read_text()}stack: {{allow: [lock-without-gpu]}}\n")
    assert job.up().state == "running"


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"[]",
        b'{"listed": {"torch": -1}, "framework": "", "cause": "", "detail": ""}',
        b'{"listed": {}, "framework": "torch", "cause": "made up", "detail": ""}',
    ],
)
def test_an_answer_that_the_verb_never_gives_is_refused(answer: bytes) -> None:
    with pytest.raises(MalformedAnswer):
        parse_listing(answer, "m")
