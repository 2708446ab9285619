"""The rooms keep their order, heavy packages stay in their rooms, the runtime needs nothing but Python."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "orchestrator"
RUNTIME = PACKAGE / "runtime"
FRAMEWORKS = {"tensorflow", "keras", "tf_keras", "numpy"}
HEAVY = {*FRAMEWORKS, "boto3", "botocore", "google", "paramiko", "pydantic", "yaml", "typer", "rich"}

# one forbidden import for each contract: (room's file, statement, contract's name)
PLANTED = [
    ("model.py", "from orchestrator import ledger", "Rooms import only rooms below, never a stranger beside"),
    ("ledger.py", "import boto3", "Cloud SDKs are known to providers and catalog alone"),
    ("plan.py", "import paramiko", "SSH is known to hosts alone"),
    ("hosts/here.py", "import numpy", "TensorFlow, Keras and NumPy are known to the runtime alone"),
    ("errors.py", "import yaml", "YAML and pydantic are known to the profile alone"),
]


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """import-linter on the package in `folder`, with nothing cached and nothing of another folder."""
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-logo", "--no-cache"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)


def test_the_rooms_keep_their_order() -> None:
    found = lint(ROOT)
    assert found.returncode == 0, found.stdout + found.stderr


def test_each_contract_notices_what_it_forbids(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "orchestrator", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / ".importlinter", tmp_path)
    for name, statement, _ in PLANTED:
        with (tmp_path / "orchestrator" / name).open("a") as file:
            file.write(f"\n{statement}\n")
    found = lint(tmp_path)
    said = " ".join(found.stdout.split())
    assert found.returncode == 1, found.stdout + found.stderr
    assert [name for *_, name in PLANTED if f"{name} BROKEN" not in said] == [], found.stdout


def test_importing_orchestrator_is_light() -> None:
    program = (
        "import json, sys, orchestrator; print(json.dumps(sorted({m.split('.')[0] for m in sys.modules})))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert HEAVY & set(json.loads(answer.stdout)) == set()


# ---------------------------------------------------------------- the runtime


def runtime_files() -> list[Path]:
    return sorted(RUNTIME.rglob("*.py"))


def imports(
    tree: ast.AST, *, inside_function: bool = False
) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Every import statement below `tree`, and whether it runs only when a function is called."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, inside_function
        lazily = inside_function or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from imports(child, inside_function=lazily)


def foreign(statement: ast.Import | ast.ImportFrom, lazily: bool, depth: int) -> list[str]:
    """The packages of `statement` that the runtime must not have there; `depth` folders below the runtime."""
    if isinstance(statement, ast.ImportFrom) and statement.level:
        return [] if statement.level <= depth + 1 else [f"{'.' * statement.level}{statement.module or ''}"]
    names = (
        [statement.module or ""]
        if isinstance(statement, ast.ImportFrom)
        else [alias.name for alias in statement.names]
    )
    allowed = sys.stdlib_module_names | {"orch_runtime"} | (FRAMEWORKS if lazily else set())
    return [name for name in names if name.split(".")[0] not in allowed]


@pytest.mark.parametrize("path", runtime_files(), ids=lambda path: str(path.relative_to(RUNTIME)))
def test_the_runtime_is_python_3_9_and_its_standard_library(path: Path) -> None:
    tree = ast.parse(path.read_text(), filename=str(path), feature_version=(3, 9))
    depth = len(path.relative_to(RUNTIME).parts) - 1
    wrong = {
        f"line {statement.lineno}: {name}"
        for statement, lazily in imports(tree)
        for name in foreign(statement, lazily, depth)
    }
    assert wrong == set()
    if any(isinstance(node, ast.AnnAssign | ast.FunctionDef) for node in ast.walk(tree)):
        assert "from __future__ import annotations" in path.read_text(), (
            "annotations would be evaluated on 3.9"
        )


def test_the_check_of_imports_sees_what_it_must() -> None:
    source = "import os, numpy\ndef f():\n    import keras, requests\nfrom ...x import y\nfrom . import z\n"
    wrong = [
        name for statement, lazily in imports(ast.parse(source)) for name in foreign(statement, lazily, 1)
    ]
    assert wrong == ["numpy", "requests", "...x"]


def test_the_runtime_imports_alone_without_site_packages(tmp_path: Path) -> None:
    """As on a machine: copied as orch_runtime, by an interpreter that sees no installed package."""
    shutil.copytree(RUNTIME, tmp_path / "orch_runtime", ignore=shutil.ignore_patterns("__pycache__"))
    modules = [
        ".".join(("orch_runtime", *path.relative_to(RUNTIME).with_suffix("").parts))
        for path in runtime_files()
        if path.stem not in ("__init__", "__main__", "sitecustomize")
    ]
    program = (
        f"import sys, importlib; sys.path.insert(0, {str(tmp_path)!r})\n"
        f"for name in {modules!r}: importlib.import_module(name)"
    )
    answer = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert answer.returncode == 0, answer.stderr
