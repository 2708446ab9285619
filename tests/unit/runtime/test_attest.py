"""What an environment says of itself: every altered byte, no false alarm, no secret."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.errors import StackError
from orchestrator.hosts.here import HereHost
from orchestrator.model import Agent, Fingerprint
from orchestrator.runtime.acting import inheritable
from orchestrator.runtime.attest.facts import environment, tensorflow_build
from orchestrator.runtime.attest.packages import is_payload
from orchestrator.runtime.attest.probe import markers
from orchestrator.stack import attest, attest_here, local_agent
from orchestrator.stack.attest import parse_fingerprint
from tests.unit.stack_locks import uv


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCH_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    return local_agent(tmp_path / "here")


def make(folder: Path, *packages: str, python: str = sys.executable) -> Path:
    uv("venv", "--python", python, folder, cwd=folder.parent)
    if packages:
        uv("pip", "install", "--python", folder / "bin/python", "--no-deps", *packages, cwd=folder.parent)
    return folder / "bin/python"


@pytest.fixture
def python(tmp_path: Path) -> Path:
    return make(tmp_path / "venv", "six==1.17.0", "packaging==24.2")


def site_packages(python: Path) -> Path:
    return next(python.parent.parent.glob("lib/python*/site-packages"))


def altered(found: Fingerprint) -> dict[str, tuple[str, ...]]:
    return {d.name: d.altered for d in found.distributions if d.altered}


def test_packages_versions_and_interpreter(agent: Agent, python: Path) -> None:
    found = attest(HereHost(), agent, str(python))
    assert [(d.name, d.version) for d in found.distributions] == [("packaging", "24.2"), ("six", "1.17.0")]
    assert found.python == ".".join(map(str, sys.version_info[:3])) == found.facts["python"]
    assert found.facts["executable"] == str(python)
    assert found.facts["wheel.six"] == "py2-none-any py3-none-any"
    assert {n.removeprefix("marker."): v for n, v in found.facts.items() if "marker." in n} == markers()
    assert "strays" not in found.facts
    assert altered(found) == {}


@pytest.mark.parametrize("remember", [False, True])
def test_one_changed_byte_anywhere_is_found(
    agent: Agent, python: Path, tmp_path: Path, remember: bool
) -> None:
    """With size and modification time as before, and after a look that remembered all files as whole."""
    cache = str(tmp_path / "seen.json") if remember else None
    before = attest(HereHost(), agent, str(python), cache=cache)
    for name in ("packaging/version.py", "packaging/py.typed", "six.py"):
        path = site_packages(python) / name
        content = path.read_bytes()
        facts = path.stat()
        path.unlink()  # another file than the one in uv's cache, to which it is linked
        path.write_bytes(content[:-1] + b"#" if content else b"#")
        os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    after = attest(HereHost(), agent, str(python), cache=cache)
    assert altered(after) == {"packaging": ("packaging/py.typed", "packaging/version.py"), "six": ("six.py",)}
    assert after.digest != before.digest
    again = attest(HereHost(), agent, str(python), cache=cache)
    assert altered(again) == altered(after)


def test_a_change_in_place_shows_by_the_change_time(agent: Agent, python: Path, tmp_path: Path) -> None:
    path = site_packages(python) / "six.py"
    path.write_bytes(path.read_bytes())  # no longer linked to uv's cache? it may be: give it its own file
    own = path.read_bytes()
    path.unlink()
    path.write_bytes(own)
    cache = str(tmp_path / "seen.json")
    assert altered(attest(HereHost(), agent, str(python), cache=cache)) == {}
    facts = path.stat()
    with path.open("r+b") as stream:
        stream.seek(50)
        stream.write(b"\x00")
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert (path.stat().st_ino, path.stat().st_size) == (facts.st_ino, facts.st_size)
    assert altered(attest(HereHost(), agent, str(python), cache=cache)) == {"six": ("six.py",)}


def test_a_missing_file_is_an_altered_one(agent: Agent, python: Path) -> None:
    (site_packages(python) / "packaging/tags.py").unlink()
    assert altered(attest(HereHost(), agent, str(python))) == {"packaging": ("packaging/tags.py",)}


def test_two_installers_two_places_and_bytecode_are_no_difference(
    agent: Agent, python: Path, tmp_path: Path
) -> None:
    other = make(tmp_path / "another place", "pip")
    argv = [str(other), "-m", "pip", "install", "--quiet", "--no-deps", "six==1.17.0", "packaging==24.2"]
    subprocess.run(argv, check=True, env={**os.environ, "PYTHONDONTWRITEBYTECODE": ""}, timeout=120)
    assert list(site_packages(other).rglob("*.pyc"))
    here, there = attest(HereHost(), agent, str(python)), attest(HereHost(), agent, str(other))
    by_pip = [d for d in there.distributions if d.name != "pip"]
    assert tuple(by_pip) == here.distributions


@pytest.mark.parametrize(
    ("path", "counts"),
    [
        ("six.py", True),
        ("six-1.17.0.dist-info/METADATA", True),
        ("tensorflow/libtensorflow_cc.so.2", True),
        ("../../../share/jupyter/kernel.json", True),
        ("__pycache__/six.cpython-311.pyc", False),
        ("six-1.17.0.dist-info/INSTALLER", False),
        ("six-1.17.0.dist-info/direct_url.json", False),
        ("../../../bin/tool", False),
        ("../../../include/site/python3.11/x.h", False),
        ("package/RECORD", True),
    ],
)
def test_what_counts_as_the_packages_own(path: str, counts: bool) -> None:
    assert is_payload(path) is counts


def test_a_module_that_no_package_brought_is_named(agent: Agent, python: Path) -> None:
    (site_packages(python) / "helper.py").write_text("x = 1\n")
    (site_packages(python) / "hidden.pth").write_text("import os\n")
    assert attest(HereHost(), agent, str(python)).facts["strays"] == "helper.py,hidden.pth"


def test_the_project_itself_is_told_apart(agent: Agent, python: Path, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "my_project"\nversion = "1"\n[build-system]\nrequires = ["setuptools>=77"]\n'
        'build-backend = "setuptools.build_meta"\n[tool.setuptools]\npy-modules = []\n'
    )
    uv("pip", "install", "--python", python, "--editable", ".", cwd=tmp_path)
    assert attest(HereHost(), agent, str(python)).facts["projects"] == "my-project"


def test_only_variables_that_matter_and_no_secret(
    agent: Agent, python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "0")
    monkeypatch.setenv("NVIDIA_API_KEY", "word")
    monkeypatch.setenv("DATABASE_PASSWORD", "word")
    found = attest(HereHost(), agent, str(python), environment={"OMP_NUM_THREADS": "1", "HOMEPAGE": "word"})
    assert found.environment["TF_ENABLE_ONEDNN_OPTS"] == "0"
    assert found.environment["OMP_NUM_THREADS"] == "1"
    assert found.environment["NVIDIA_API_KEY"] == "(set)"
    assert not {"DATABASE_PASSWORD", "HOMEPAGE", "PATH", "HOME"} & set(found.environment)
    assert "word" not in json.dumps([dict(found.environment), dict(found.facts)])
    assert environment({"XLA_FLAGS": "--a", "LC_ALL": "C", "PS1": "$"}) == {"LC_ALL": "C", "XLA_FLAGS": "--a"}


def test_what_tensorflow_was_built_with_is_read_without_it(tmp_path: Path) -> None:
    info = tmp_path / "tensorflow/python/platform/build_info.py"
    info.parent.mkdir(parents=True)
    info.write_text(
        "import collections\nbuild_info = collections.OrderedDict([('cuda_version', '12.5.1'), "
        "('is_cuda_build', True), ('cuda_compute_capabilities', ['sm_60', 'sm_70'])])\n"
    )
    assert tensorflow_build([str(tmp_path)])["tensorflow.cuda_version"] == "12.5.1"
    assert tensorflow_build([str(tmp_path)])["tensorflow.is_cuda_build"] == "True"
    info.write_text("not python (")
    assert tensorflow_build([str(tmp_path)]) == {}


def test_here_is_asked_as_a_machine_is(python: Path, agent: Agent) -> None:
    assert attest_here(python).digest == attest(HereHost(), agent, str(python)).digest
    with pytest.raises(StackError, match="could not be read back"):
        attest_here(Path("/bin/false"))


def _old_pythons() -> list[Path]:
    """Interpreters of 3.9 or 3.10 on this computer."""
    root = Path(os.environ.get("PYENV_ROOT", "/nowhere"))
    installed = root.glob("versions/3.*/bin/python3.*") if os.access(root, os.X_OK) else ()
    found = [*map(shutil.which, ("python3.9", "python3.10")), *map(str, sorted(installed))]
    names = ("python3.9", "python3.10")
    return [Path(path) for path in found if path and Path(path).name in names and "shims" not in path]


@pytest.mark.skipif(not _old_pythons(), reason="needs Python 3.9 or 3.10")
def test_an_old_python_describes_itself(agent: Agent, tmp_path: Path) -> None:
    old = _old_pythons()[0]
    found = attest(HereHost(), agent, str(make(tmp_path / "old", "six==1.17.0", python=str(old))))
    assert found.python.startswith(old.name.removeprefix("python") + ".")
    assert [(d.name, d.altered) for d in found.distributions] == [("six", ())]


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"digest": 1}', b"Traceback"])
def test_what_is_no_fingerprint(text: bytes) -> None:
    with pytest.raises(ValueError):
        parse_fingerprint(text)


@pytest.mark.parametrize(
    ("name", "value", "inherited"),
    [
        ("OPENBLAS_CORETYPE", "Haswell", True),
        ("OMP_NUM_THREADS", "2", True),
        ("TF_DETERMINISTIC_OPS", "1", True),
        ("NVIDIA_TF32_OVERRIDE", "0", True),
        ("XLA_FLAGS", "--xla_cpu_enable_fast_math=false", True),
        ("XLA_FLAGS", "--xla_dump_to=/home/me", False),
        ("KERAS_HOME", "~/keras", False),
        ("TF_XLA_FLAGS", r"--dump=C:\me", False),
        ("CUDA_VISIBLE_DEVICES", "", False),
        ("JAX_PLATFORMS", "cpu", False),
        ("KERAS_API_TOKEN", "abc", False),
        ("TF_VAR_region", "x", False),
        ("TZ", "UTC", False),
        ("EDITOR", "vi", False),
    ],
)
def test_what_means_the_same_on_any_machine_is_inherited(name: str, value: str, inherited: bool) -> None:
    assert inheritable({name: value}) == ({name: value} if inherited else {})
