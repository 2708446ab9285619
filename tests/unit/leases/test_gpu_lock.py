"""A rented GPU and the lock: what cannot use it is refused with its place, before anything is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import ProfileError
from orchestrator.leases.gpu_lock import require_gpu_lock
from orchestrator.leases.offered import foreseen_plan
from orchestrator.model import Pin
from orchestrator.profile import Profile, load
from orchestrator.session.project import Project
from orchestrator.stack.gpu_lock import Framework, Lack, able, cuda_of, frameworks, unfit
from orchestrator.stack.lock import read_lock

ROOT = Path(__file__).parents[3]
HASH = "--hash=sha256:" + "a" * 64
PROFILE = """\
version: 1
name: gpu
cloud: {cloud}
resources: {{accelerator: {gpu}, arch: {arch}}}
max_duration: 1h
stack: {{lock: {lock}{allow}}}
train: {{command: python train.py, env: {{KERAS_BACKEND: "{backend}"}}}}
"""
TF_GPU = ("tensorflow==2.21.0", "nvidia-cudnn-cu12==9.1", "nvidia-cublas-cu12==12.9.3")


def pins(*wanted: str) -> tuple[Pin, ...]:
    return tuple(Pin(*each.split("=="), ()) for each in wanted)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wanted", "arch", "backend", "lack"),
    [
        (("tensorflow-cpu==2.21.0",), "x86_64", None, (Framework.TENSORFLOW, Lack.CPU_BUILD)),
        (("tensorflow==2.21.0",), "x86_64", None, (Framework.TENSORFLOW, Lack.NO_LIBRARIES)),
        (TF_GPU, "x86_64", None, None),
        (TF_GPU, "arm64", None, (Framework.TENSORFLOW, Lack.NO_SUCH_WHEEL)),
        (("jax==0.8.0", "jaxlib==0.8.0"), "x86_64", None, (Framework.JAX, Lack.NO_LIBRARIES)),
        (("jax==0.8.0", "jax-cuda12-plugin==0.8.0"), "x86_64", None, None),
        (("jax==0.8.0", "jax-cuda13-plugin==0.8.0"), "arm64", None, None),
        (("torch==2.9.0+cpu",), "x86_64", None, (Framework.TORCH, Lack.CPU_BUILD)),
        (("torch==2.9.0",), "x86_64", None, (Framework.TORCH, Lack.NO_LIBRARIES)),
        (("torch==2.9.0", "nvidia-cudnn-cu12==9.1"), "x86_64", None, None),
        (("torch==2.9.0+cu128",), "x86_64", None, None),
        # tf.data on the CPU beside another framework that trains is usual
        (("tensorflow-cpu==2.21.0", "torch==2.9.0+cu128"), "x86_64", None, None),
        (("tensorflow-cpu==2.21.0", "torch==2.9.0+cu128"), "x86_64", "torch", None),
        (
            ("tensorflow-cpu==2.21.0", "torch==2.9.0+cu128"),
            "x86_64",
            "tensorflow",
            (Framework.TENSORFLOW, Lack.CPU_BUILD),
        ),
        ((*TF_GPU, "jax==0.8.0"), "x86_64", "jax", (Framework.JAX, Lack.NO_LIBRARIES)),
        (("xgboost==3.0.0",), "x86_64", None, None),
    ],
)
def test_what_can_use_a_gpu(
    wanted: tuple[str, ...], arch: str, backend: str | None, lack: tuple[Framework, Lack] | None
) -> None:
    found = unfit(pins(*wanted), arch, backend)
    assert (found and (found.framework, found.lack)) == lack
    expected = () if lack else frameworks(pins(*wanted), backend)
    assert set(able(pins(*wanted), arch, backend)) <= set(expected)


@pytest.mark.parametrize(
    ("wanted", "cuda"),
    [
        (TF_GPU, 12),
        (("nvidia-cuda-runtime==13.0.96", "nvidia-cublas==13.1.0.3"), 13),
        (("jax-cuda13-plugin==0.8.0",), 13),
        (("torch==2.9.0+cu128",), 12),
        (("torch==2.9.0+cu130",), 13),
        (("nvidia-ml-py==13.580.82",), None),
        (("six==1.17.0",), None),
    ],
)
def test_the_cuda_of_the_pins(wanted: tuple[str, ...], cuda: int | None) -> None:
    assert cuda_of(pins(*wanted)) == cuda


def profile(
    folder: Path,
    *lines: str,
    gpu: str = "T4",
    arch: str = "x86_64",
    cloud: str = "aws",
    allow: str = "",
    backend: str = "tensorflow",
    more: str = "",
) -> Profile:
    (folder / "requirements.lock").write_text("".join(f"{line} {HASH}\n" for line in ("# pins", *lines)))
    (folder / "train.py").write_text("")
    text = PROFILE.format(
        lock="requirements.lock",
        gpu=gpu,
        arch=arch,
        cloud=cloud,
        backend=backend,
        allow=f", allow: [{allow}]" if allow else "",
    )
    (folder / "orch.yaml").write_text(text + more)
    return load(folder / "orch.yaml", files=True)


MARKED = (
    'tensorflow-cpu==2.21.0 ; sys_platform == "linux" and platform_machine == "x86_64"',
    'tensorflow==2.21.0 ; sys_platform == "darwin"',
)


def test_a_lock_is_judged_for_the_machine_and_its_line_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProfileError) as error:
        require_gpu_lock(profile(tmp_path, *MARKED))
    assert error.value.exit_code == 2
    assert error.value.where == f"{tmp_path}/requirements.lock:2:1"
    assert "tensorflow[and-cuda]==2.21.0" in error.value.message
    assert "stack.allow: [lock-without-gpu]" in error.value.message
    assert str(error.value.next_command).startswith("uv pip compile --universal --generate-hashes ")
    (tmp_path / "requirements-gpu.lock").write_text("")
    with pytest.raises(ProfileError) as error:
        require_gpu_lock(load(tmp_path / "orch.yaml"))
    assert str(error.value.next_command).endswith(f"--set stack.lock={tmp_path}/requirements-gpu.lock")


def test_the_plan_refuses_it_too_and_what_is_allowed_by_name_passes(tmp_path: Path) -> None:
    project = Project(tmp_path)
    with pytest.raises(ProfileError, match="tensorflow-cpu"):
        foreseen_plan(project, profile(tmp_path, *MARKED), ())
    allowed = profile(tmp_path, *MARKED, allow="lock-without-gpu")
    assert foreseen_plan(project, allowed, ()).offers


def test_another_processor_and_another_vendor(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="arm64") as error:
        require_gpu_lock(profile(tmp_path, *TF_GPU, gpu="T4G", arch="arm64"))
    assert str(error.value.next_command).endswith("resources.arch=x86_64")
    require_gpu_lock(profile(tmp_path, *MARKED, gpu="TRAINIUM"))  # its frameworks are others


def test_cuda_13_knows_no_gpu_before_turing(tmp_path: Path) -> None:
    """CUDA Toolkit 13.0 release notes: Maxwell, Pascal and Volta are gone."""
    newer = ("torch==2.9.0+cu130",)
    with pytest.raises(ProfileError, match="Turing"):
        require_gpu_lock(profile(tmp_path, *newer, gpu="V100", backend="torch"))
    require_gpu_lock(profile(tmp_path, *newer, gpu="T4", backend="torch"))
    require_gpu_lock(profile(tmp_path, "torch==2.9.0+cu128", gpu="V100", backend="torch"))


@pytest.mark.parametrize(("driver", "cuda", "refused"), [(570, 13, True), (580, 13, False), (570, 12, False)])
def test_an_image_whose_name_tells_its_driver(tmp_path: Path, driver: int, cuda: int, refused: bool) -> None:
    image = f"image: deeplearning-platform-release/common-cu128-ubuntu-2204-nvidia-{driver}\n"
    wanted = profile(tmp_path, f"torch==2.9.0+cu{cuda}0", cloud="gcp", backend="torch", more=image)
    if not refused:
        require_gpu_lock(wanted)
        return
    with pytest.raises(ProfileError, match=r"driver is 570.*580\.65") as error:
        require_gpu_lock(wanted)
    assert error.value.where == f"{tmp_path}/orch.yaml:8:8"


UV_LOCK = """\
version = 1
requires-python = ">=3.11"

[[package]]
name = "demo"
version = "0.1"
source = { virtual = "." }
dependencies = [
    { name = "torch" },
]

[package.metadata]
requires-dist = [{ name = "torch", specifier = "==2.9.0+cpu" }]

[[package]]
name = "torch"
version = "2.9.0+cpu"
source = { registry = "https://index.example/simple" }
wheels = [
    { url = "https://index.example/torch-2.9.0%2Bcpu-cp311-cp311-linux_x86_64.whl", hash = "sha256:HASH" },
]
"""
PYLOCK = """\
lock-version = "1.0"
created-by = "a test"

[[packages]]
name = "torch"
version = "2.9.0+cpu"
wheels = [{ url = "https://index.example/torch-2.9.0%2Bcpu-py3-none-any.whl", hashes = { sha256 = "HASH" } }]
"""


@pytest.mark.parametrize(
    ("name", "text", "line"), [("uv.lock", UV_LOCK, 16), ("pylock.toml", PYLOCK, 5)], ids=["uv", "pylock"]
)
def test_other_kinds_of_locks_name_their_line_as_well(
    tmp_path: Path, name: str, text: str, line: int
) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "demo"\nversion = "0.1"\nrequires-python = ">=3.11"\n'
        'dependencies = ["torch==2.9.0+cpu"]\n'
    )
    (tmp_path / name).write_text(text.replace("HASH", "a" * 64))
    wanted = profile(tmp_path, backend="torch")
    (tmp_path / "requirements.lock").unlink()
    text = (tmp_path / "orch.yaml").read_text().replace("requirements.lock", name)
    (tmp_path / "orch.yaml").write_text(text)
    wanted = load(tmp_path / "orch.yaml", files=True)
    with pytest.raises(ProfileError) as error:
        require_gpu_lock(wanted)
    assert error.value.where == f"{tmp_path}/{name}:{line}:9"


@pytest.mark.parametrize("name", ["aws-t4", "gcp-l4"])
def test_the_profiles_that_ship_can_use_their_gpu(name: str) -> None:
    wanted = load(ROOT / f"profiles/{name}.yaml")
    require_gpu_lock(wanted)
    assert wanted.stack.lock is not None and wanted.stack.lock.name == "requirements-gpu.lock"


def test_the_lock_for_gpus_pins_the_same_as_the_other_and_resolves_on_macos() -> None:
    plain, gpu = (read_lock(ROOT / "examples/digits" / name) for name in LOCKS)
    versions = {
        pin.name: {each.version for each in plain.pins if each.name == pin.name} for pin in plain.pins
    }
    cuda = [pin for pin in gpu.pins if pin.name.startswith("nvidia-")]
    assert cuda_of(cuda) == 12
    assert all("sys_platform == 'linux'" in pin.marker for pin in cuda)
    others = {pin for pin in gpu.pins if pin not in cuda}
    assert all(pin.version in versions[pin.name] for pin in others)


LOCKS = ("requirements.lock", "requirements-gpu.lock")
