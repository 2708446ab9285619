"""The rooms keep their order, heavy packages stay in their rooms, the runtime needs nothing but Python."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

import pytest

from orchestrator.model import clouds

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "orchestrator"
RUNTIME = PACKAGE / "runtime"
FRAMEWORKS = {"tensorflow", "keras", "tf_keras", "numpy"}
HEAVY = {*FRAMEWORKS, "boto3", "botocore", "google", "paramiko", "pydantic", "yaml", "typer", "rich"}

# one forbidden import for each contract: (room's file, statement, contract's name)
PLANTED = [
    (
        "model/needs.py",
        "from orchestrator import ledger",
        "Rooms import only rooms below, never a stranger beside",
    ),
    ("ledger.py", "import boto3", "Cloud SDKs are known to providers, storage and catalog alone"),
    ("plan.py", "import paramiko", "SSH is known to hosts alone"),
    ("hosts/here.py", "import numpy", "TensorFlow, Keras and NumPy are known to the runtime alone"),
    ("jobs.py", "import airflow", "Airflow is known to its room alone"),
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


@pytest.mark.parametrize("arguments", [["--help"], ["status", "--json"]], ids=" ".join)
def test_a_command_loads_no_sdk_no_ssh_no_framework(arguments: list[str], tmp_path: Path) -> None:
    program = "import sys; from orchestrator.cli import main; sys.exit(main())"
    command = [sys.executable, "-X", "importtime", "-c", program, *arguments]
    said = subprocess.run(
        command,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
        timeout=60,
    )
    assert said.returncode in (0, 2), said.stderr
    loaded = {name.split(".")[0] for name in re.findall(r"^import time:.*\|\s*(\S+)$", said.stderr, re.M)}
    assert "orchestrator" in loaded
    assert loaded & (HEAVY - {"typer", "rich"}) == set()


ROOMS_OF_WORK = {
    f"orchestrator.{room}" for room in ("lint", "stack", "sync", "parity", "profiling", "catalog", "jobs")
}
"""What a refusal needs nothing of."""
DOCUMENTS = {"pydantic", "yaml", "orchestrator.profile"}
PROVIDERS = {"orchestrator.providers", "orchestrator.runtime"}


@pytest.mark.parametrize(
    ("arguments", "forbidden"),
    [
        (["--help"], {"orchestrator.api", "orchestrator.ledger", *DOCUMENTS, *PROVIDERS}),
        (["up", "--bogus"], {"orchestrator.api", "orchestrator.ledger", *DOCUMENTS, *PROVIDERS}),
        (["status"], DOCUMENTS),
        (["train"], {*DOCUMENTS, *PROVIDERS, "orchestrator.training.one_run"}),
        (["pull"], {*DOCUMENTS, *PROVIDERS, "orchestrator.training.one_run"}),
        (["cancel"], {*DOCUMENTS, *PROVIDERS, "orchestrator.training.one_run"}),
        (["logs"], {*DOCUMENTS, *PROVIDERS, "orchestrator.runs.follow"}),
        (["up", "wrong.yaml"], {"orchestrator.providers", "orchestrator.leases.provision"}),
        (["plan", "wrong.yaml"], {"orchestrator.providers", "orchestrator.leases.offered"}),
        (["run", "wrong.yaml", "--run-id", "a"], {"orchestrator.providers", "orchestrator.training.one_run"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_refused_loads_nothing_that_only_work_needs(
    arguments: list[str], forbidden: set[str], tmp_path: Path
) -> None:
    """Without a lease, and with a profile that cannot be: the answer needs no more than its reason."""
    (tmp_path / "wrong.yaml").write_text("version: 1\nname: x\nbogus: 1\n")
    said = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "orchestrator", *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
        timeout=60,
    )
    assert said.returncode == (0 if arguments[0] in ("--help", "status") else 2), said.stderr
    names = re.findall(r"^import time:.*\|\s*(\S+)$", said.stderr, re.M)
    loaded = {".".join(name.split(".")[:depth]) for name in names for depth in (1, 2, 3)}
    assert "orchestrator" in loaded
    assert loaded & (ROOMS_OF_WORK | forbidden | (HEAVY - {"typer", "rich", "pydantic", "yaml"})) == set()


# ---------------------------------------------------------------- clouds

KNOWS_A_CLOUD = (
    "providers/aws/",
    "providers/gcp/",
    "providers/permissions/",
    "catalog/aws.py",
    "catalog/gcp.py",
)
"""Below these, a cloud's own name may stand."""
SHIPPED_TABLE = "runtime/agent/notices.py"
"""It runs on the machines, beside no other room: its listeners are chosen by `CloudTraits.notices`."""


def shared_files() -> list[Path]:
    own = (*KNOWS_A_CLOUD, SHIPPED_TABLE, "model/clouds.py")
    return [
        file
        for file in sorted(PACKAGE.rglob("*.py"))
        if not file.relative_to(PACKAGE).as_posix().startswith(own)
    ]


def named_clouds(source: str) -> set[str]:
    """The names and aliases of clouds that stand as whole texts in a program."""
    words = {word for each in clouds.every() if each.rented for word in (each.name, *each.aliases)}
    texts = (node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant))
    return {text for text in texts if isinstance(text, str)} & words


def test_shared_code_names_no_cloud() -> None:
    """It asks `CloudTraits`: so a cloud is one folder and one line of the registry."""
    found = {str(file.relative_to(PACKAGE)): named_clouds(file.read_text()) for file in shared_files()}
    assert {file: names for file, names in found.items() if names} == {}
    assert named_clouds("if cloud in ('aws', 'local'): pass") == {"aws"}


# ---------------------------------------------------------------- sizes

LONGEST_FILE = 400
LONGEST_FUNCTION = 55


@pytest.mark.parametrize("folder", ["orchestrator", "scripts", "tests"])
def test_files_and_functions_are_short(folder: str) -> None:
    long = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        text = path.read_text("utf-8")
        if len(text.splitlines()) > LONGEST_FILE:
            long.append(str(path))
        for node in ast.walk(ast.parse(text)) if folder == "orchestrator" else ():
            if isinstance(node, ast.FunctionDef) and node.end_lineno is not None:
                long += [node.name] if node.end_lineno - node.lineno >= LONGEST_FUNCTION else []
    assert long == []


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


def evaluated_unions(tree: ast.Module) -> list[int]:
    """Lines with a type like `int | None` that Python 3.9 would evaluate, and fail."""
    postponed = any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body)
    nodes = list(ast.walk(tree))
    hints = [getattr(node, name, None) for node in nodes for name in ("annotation", "returns")]
    spared = {id(part) for hint in hints if hint and postponed for part in ast.walk(hint)}
    return [node.lineno for node in nodes if _is_union(node) and id(node) not in spared]


def _is_union(node: ast.AST) -> TypeGuard[ast.BinOp]:
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr)):
        return False
    names = {getattr(side, "id", None) for side in (node.left, node.right)}
    nothing = any(isinstance(side, ast.Constant) and side.value is None for side in (node.left, node.right))
    return nothing or bool(names & {"int", "str", "float", "bytes", "bool", "list", "dict", "Path"})


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
    assert evaluated_unions(tree) == []


def test_the_check_of_imports_sees_what_it_must() -> None:
    source = "import os, numpy\ndef f():\n    import keras, requests\nfrom ...x import y\nfrom . import z\n"
    wrong = [
        name for statement, lazily in imports(ast.parse(source)) for name in foreign(statement, lazily, 1)
    ]
    assert wrong == ["numpy", "requests", "...x"]


def test_the_check_of_types_sees_what_it_must() -> None:
    source = "def f(a: int | None) -> str | bytes:\n    return 1 | 2\nalias = Path | None\n"
    assert sorted(evaluated_unions(ast.parse(source))) == [1, 1, 3]
    assert evaluated_unions(ast.parse("from __future__ import annotations\n" + source)) == [4]


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
