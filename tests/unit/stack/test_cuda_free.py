"""A computer without NVIDIA's driver installs no CUDA for a GPU lock's own environment."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.model import Distribution, Fingerprint, Pin
from orchestrator.stack import (
    attest_here,
    cuda_free,
    differences,
    existing_environment,
    foreseen,
    local_environment,
    read_lock,
)
from tests.said import Said
from tests.unit.leases.test_gpu_ready import wheel

ROOT = Path(__file__).resolve().parents[3]
GPU_LOCK = ROOT / "examples/digits/requirements-gpu.lock"


def pin(name: str, version: str = "1.0") -> Pin:
    return Pin(name, version, ())


TENSORFLOW = (pin("tensorflow"), pin("numpy"), pin("nvidia-cublas-cu12"), pin("nvidia-nccl-cu12"))
JAX = (pin("jax"), pin("jaxlib"), pin("jax-cuda12-plugin"), pin("jax-cuda12-pjrt"), pin("nvidia-cudnn-cu12"))
TORCH = (pin("torch", "2.9.0+cu128"), pin("nvidia-cublas-cu12"))


@pytest.mark.parametrize(
    ("pins", "driver", "idle"),
    [
        (TENSORFLOW, None, {"nvidia-cublas-cu12", "nvidia-nccl-cu12"}),
        (TENSORFLOW, "", {"nvidia-cublas-cu12", "nvidia-nccl-cu12"}),
        (TENSORFLOW, "580.65", set()),
        (JAX, None, {"jax-cuda12-plugin", "jax-cuda12-pjrt", "nvidia-cudnn-cu12"}),
        (TORCH, None, set()),
        ((*TENSORFLOW, pin("torch")), None, set()),
        ((pin("cupy"), pin("nvidia-cublas-cu12")), None, set()),
    ],
)
def test_what_nothing_uses_without_a_driver(
    pins: tuple[Pin, ...], driver: str | None, idle: set[str]
) -> None:
    assert cuda_free.idle(pins, driver) == idle


def test_the_gpu_lock_of_the_example_is_a_tenth_of_its_size_then() -> None:
    lock = read_lock(GPU_LOCK)
    markers = {"sys_platform": "linux", "platform_machine": "x86_64"}
    left = cuda_free.idle([p for p in lock.pins if "linux" in p.marker or not p.marker], None)
    assert len(left) >= 10 and all(name.startswith("nvidia-") for name in left), markers
    text = cuda_free.without(GPU_LOCK.read_text(), "requirements", left)
    assert "nvidia" not in text and "tensorflow==" in text and "--hash=sha256:" in text


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ORCH_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.setattr(cuda_free, "DRIVER", tmp_path / "driver")
    monkeypatch.setenv("UV_NO_INDEX", "1")
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def locked(project: Path, kind: str) -> Path:
    """A lock of look-alike wheels: tensorflow, and a library of CUDA."""
    made = {"tensorflow": "2.20.0", "nvidia-cublas-cu12": "12.5"}
    lines = [
        wheel(project / "wheels", name, version, f"m{len(name)}.py", "") for name, version in made.items()
    ]
    if kind == "requirements":
        path = project / "requirements.lock"
        path.write_text(f"--find-links {project / 'wheels'}\n{''.join(lines)}")
        return path
    path = project / "pylock.toml"
    blocks = (_block(project / "wheels", line) for line in lines)
    path.write_text('lock-version = "1.0"\ncreated-by = "t"\n' + "".join(blocks))
    return path


def _block(folder: Path, line: str) -> str:
    name, version, digest = re.fullmatch(r"([^=]+)==(\S+) --hash=sha256:(\w+)\n", line).groups()  # type: ignore[union-attr]
    file = folder / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    return (
        f'\n[[packages]]\nname = "{name}"\nversion = "{version}"\n'
        f'wheels = [{{ url = "{file.as_uri()}", hashes = {{ sha256 = "{digest}" }} }}]\n'
    )


def installed(python: Path) -> set[str]:
    return {d.name for d in attest_here(python).distributions}


@pytest.mark.parametrize("kind", ["requirements", "pylock"])
def test_the_local_environment_has_no_cuda_without_a_driver(project: Path, kind: str) -> None:
    lock, tell = read_lock(locked(project, kind)), Said()
    made = local_environment(lock, project, progress=tell)
    assert "tensorflow" in installed(made.python)
    assert "nvidia-cublas-cu12" not in installed(made.python)
    assert made == existing_environment(lock, project)
    (said,) = tell.lines
    assert "without 1 of CUDA: there is no NVIDIA driver here" in said
    cuda_free.DRIVER.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06")
    with_driver = local_environment(lock, project)
    assert "nvidia-cublas-cu12" in installed(with_driver.python)
    assert with_driver.python != made.python


def fingerprint(*pins: Pin, driver: str = "") -> Fingerprint:
    found = tuple(Distribution(p.name, p.version, "r") for p in pins)
    markers = {"marker.sys_platform": "linux", "marker.platform_machine": "x86_64"}
    return Fingerprint("d", "3.11.7", found, {**markers, "driver": driver}, {})


def test_what_is_left_out_is_a_declared_difference(project: Path) -> None:
    lock = replace(read_lock(locked(project, "requirements")), pins=TENSORFLOW)
    here, there = fingerprint(*TENSORFLOW[:2]), fingerprint(*TENSORFLOW, driver="580.65")
    assert foreseen(lock, here, {}) == ()
    found = {d.name: d for d in differences(lock, here, there)}
    assert found["nvidia-cublas-cu12"].declared and "no NVIDIA driver" in found["nvidia-cublas-cu12"].reason
    with_driver = fingerprint(*TENSORFLOW[:2], driver="580.65")
    assert [d.name for d in foreseen(lock, with_driver, {})] == ["nvidia-cublas-cu12", "nvidia-nccl-cu12"]
    assert not {d.name: d for d in differences(lock, with_driver, there)}["nvidia-nccl-cu12"].declared
