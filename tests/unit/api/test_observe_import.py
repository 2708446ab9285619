"""How observation gets into a job's Python, and that it leaves everything else as it was."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

RUNTIME = Path(__file__).resolve().parents[3] / "orchestrator" / "runtime"

FRAMEWORK = "import sys\n__version__ = '0.0'\nVALUE = 7\nLOADER = type(__loader__).__name__\n"
"""A package named tensorflow that is none: hooks into it must fail, and the job must go on."""


@pytest.fixture
def runtime(tmp_path: Path) -> Path:
    """The runtime as it lies on a machine."""
    shutil.copytree(RUNTIME, tmp_path / "root" / "orch_runtime", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "root" / "orch_runtime"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a package named tensorflow in it."""
    folder = tmp_path / "project"
    (folder / "tensorflow").mkdir(parents=True)
    (folder / "tensorflow" / "__init__.py").write_text(FRAMEWORK)
    return folder


def python(
    runtime: Path, project: Path, code: str, *, path: Path | None = None, steps: str = "2", trace: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run `code` as a job would be run, `path` being the user's own PYTHONPATH."""
    paths = [str(runtime / "hook"), *([str(path)] if path else [])]
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(paths)}
    if steps:
        environ.update(ORCH_OBSERVE_DIR=str(project / "observe"), ORCH_OBSERVE_STEPS=steps)
    if trace:
        environ["ORCH_TRACE"] = trace
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=project,
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_framework_that_cannot_be_hooked_is_noted_and_the_job_goes_on(runtime: Path, project: Path) -> None:
    done = python(runtime, project, "import tensorflow as tf; print(tf.VALUE, tf.LOADER, tf.__loader__)")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("7 SourceFileLoader <_frozen_importlib_external.SourceFileLoader")
    status = json.loads((project / "observe" / "status.json").read_text())
    assert "hooking TensorFlow 0.0 failed" in status["not_compared"][0]["why"]
    assert status["steps"] == 0


def test_looking_for_a_framework_is_no_import(runtime: Path, project: Path) -> None:
    code = "import importlib.util as u; u.find_spec('tensorflow'); u.find_spec('tensorflow')"
    assert python(runtime, project, code).returncode == 0
    assert not (project / "observe").exists()
    done = python(runtime, project, f"{code}; import tensorflow")
    assert done.returncode == 0 and (project / "observe" / "status.json").exists()


def test_an_import_error_is_the_jobs_own(runtime: Path, project: Path) -> None:
    (project / "tensorflow" / "__init__.py").write_text("raise ImportError('no such library')")
    done = python(runtime, project, "import tensorflow")
    assert done.returncode == 1 and done.stderr.strip().endswith("ImportError: no such library")


def test_without_a_wish_python_is_as_it_was(runtime: Path, project: Path, tmp_path: Path) -> None:
    code = (
        "import json, sys, tensorflow; "
        "finders = [getattr(f, '__name__', type(f).__name__) for f in sys.meta_path]; "
        "print(json.dumps([sorted({*sys.modules} - {'sitecustomize'}), finders, sys.path]))"
    )
    elsewhere = tmp_path / "elsewhere"
    plain = json.loads(python(elsewhere, project, code, steps="").stdout)
    plain[2].remove(str(elsewhere / "hook"))
    assert json.loads(python(runtime, project, code, steps="").stdout) == plain
    assert not (project / "observe").exists()


@pytest.mark.parametrize("steps", ["", "2"])
def test_a_sitecustomize_of_the_user_still_runs(
    runtime: Path, project: Path, tmp_path: Path, steps: str
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import builtins; builtins.mine = __file__")
    code = "import sys; print(mine); print(sys.modules['sitecustomize'].__file__)"
    done = python(runtime, project, code, path=own, steps=steps)
    assert done.stdout.splitlines() == [str(own / "sitecustomize.py")] * 2, done.stderr


def test_processes_that_the_job_starts_are_watched_too(runtime: Path, project: Path) -> None:
    code = "import subprocess as s, sys; s.run(['sh', '-c', sys.executable + ' -c \"import tensorflow\"'])"
    assert python(runtime, project, code).returncode == 0
    assert (project / "observe" / "status.json").exists()


def test_the_step_clock_is_told(runtime: Path, project: Path) -> None:
    (runtime / "steps" / "clock.py").write_text("def on_tensorflow(tf): print('told', tf.VALUE)")
    done = python(runtime, project, "import tensorflow", steps="", trace=str(project / "trace.jsonl"))
    assert done.stdout == "told 7\n", done.stderr


def test_a_broken_runtime_does_not_break_the_job(runtime: Path, project: Path) -> None:
    (runtime / "observe" / "__init__.py").write_text("raise RuntimeError('broken')")
    (runtime / "steps" / "clock.py").write_text("raise RuntimeError('broken')")
    done = python(runtime, project, "import tensorflow; print('done')", trace="t")
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@pytest.mark.parametrize("steps", ["0", "-1", "many"])
def test_a_number_that_is_none_observes_nothing(runtime: Path, project: Path, steps: str) -> None:
    code = "import tensorflow, sys; print('orch_runtime.observe.hooks' in sys.modules)"
    done = python(runtime, project, code, steps=steps)
    assert done.stdout == "False\n" and not (project / "observe").exists()


def test_the_runner_runs_scripts_and_modules(runtime: Path, project: Path) -> None:
    (project / "train.py").write_text("import sys, tensorflow; print(__name__, sys.argv[1:]); sys.exit(3)")
    for words in (["train.py"], ["-m", "train"]):
        shutil.rmtree(project / "observe", ignore_errors=True)
        code = f"import sys; sys.path.insert(0, {str(runtime.parent)!r}); "
        code += "from orch_runtime.observe import runner; "
        code += f"runner.main({['run', *words, '--epochs', '2']!r})"
        environ = {**os.environ, "ORCH_OBSERVE_DIR": str(project / "observe"), "ORCH_OBSERVE_STEPS": "1"}
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=project,
            env=environ,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stdout) == (3, "__main__ ['--epochs', '2']\n"), done.stderr
        assert (project / "observe" / "status.json").exists()
