"""What the documentation says of commands and fields is what the code has."""

from __future__ import annotations

import ast
import pkgutil
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from importlib import import_module
from pathlib import Path

import pytest
import typer

import orchestrator.api
from orchestrator.cli.app import app
from orchestrator.cli.groups import SECTIONS
from orchestrator.model.cloud_traits import CloudTraits
from tests.conftest import ROOT
from tests.nightly import AT_NIGHT

PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "CHANGELOG", "CONTRIBUTING", "SECURITY")),
    *sorted((ROOT / "docs").rglob("*.md")),
]


def test_the_page_of_fields_is_the_schema() -> None:
    made = runpy.run_path(str(ROOT / "scripts/profile_docs.py"))["text"]()
    assert (ROOT / "docs/profile.md").read_text() == made


@pytest.mark.parametrize("page", ["exit-codes", "python", "run-json"])
def test_the_pages_that_scripts_print_are_current(page: str) -> None:
    script = f"scripts/{page.split('-')[0]}_docs.py"
    made = runpy.run_path(str(ROOT / script))["text"]()
    assert (ROOT / f"docs/{page}.md").read_text() == made, f"python {script} > docs/{page}.md"


def test_the_picture_of_the_rooms_is_drawn_from_their_imports() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    assert runpy.run_path(str(ROOT / "scripts/architecture.py"))["updated"](page) == page


def glossary() -> tuple[list[str], list[str]]:
    """The names that the glossary says exist, and the words that it says are not used."""
    page = (ROOT / "docs/glossary.md").read_text()
    return re.findall(r"`(orchestrator\.[\w.]+)`", page), page.split("Not used for any of these: ")[1].strip(
        " .\n"
    ).split(", ")


@pytest.mark.parametrize("name", glossary()[0])
def test_each_name_of_the_glossary_exists(name: str) -> None:
    assert pkgutil.resolve_name(name)


def public_names() -> Iterator[str]:
    for file in sorted((ROOT / "orchestrator").rglob("*.py")):
        yield file.stem
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                yield node.name


def test_public_names_avoid_the_words_that_the_glossary_replaces() -> None:
    unused = set(glossary()[1])
    words = {
        name: set(re.findall(r"[a-z]+", re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()))
        for name in public_names()
    }
    assert {name for name, parts in words.items() if parts & unused} == set()


def test_every_trait_of_a_cloud_is_explained() -> None:
    page = (ROOT / "docs/extending.md").read_text()
    assert {field.name for field in fields(CloudTraits) if f"`{field.name}`" not in page} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def visible_verbs() -> set[str]:
    shown = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    return {name for name, command in shown.items() if not command.hidden}


def test_every_verb_that_the_pages_name_exists() -> None:
    named = {verb for page in PAGES for verb in re.findall(r"`orch ([a-z][a-z-]*)\b", page.read_text())}
    assert named <= visible_verbs()


def test_every_verb_is_in_the_readme() -> None:
    text = (ROOT / "README.md").read_text()
    assert {verb for verb in visible_verbs() if not re.search(rf"\b{verb}\b", text)} == set()


def test_every_verb_has_one_section_of_the_help() -> None:
    listed = [verb for verbs in SECTIONS.values() for verb in verbs]
    assert sorted(listed) == sorted(visible_verbs())


def test_all_names_what_is_exported() -> None:
    assert sorted(orchestrator.__all__) == orchestrator.__all__
    assert {name for name in orchestrator.__all__ if getattr(orchestrator, name, None) is None} == set()
    assert set(orchestrator.api.__all__) <= set(orchestrator.__all__)


def test_a_public_name_stays_what_it_is_when_a_room_of_that_name_is_imported() -> None:
    program = """
import importlib, pkgutil, types
import orchestrator as orch
for room in pkgutil.iter_modules(orch.__path__):
    if room.name not in ("__main__", "airflow"):
        importlib.import_module(f"orchestrator.{room.name}")
from orchestrator.plan import Plan
assert Plan.__module__ == "orchestrator.plan"
print([name for name in orch.__all__ if isinstance(getattr(orch, name), types.ModuleType)])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout == "[]\n"


IN_MODULES = {
    "runs": "history",
    "catalog": "catalog.show",
    "doctor": "doctor.examine",
    "explain": "explaining.explain",
    "forward": "ssh.forward_command",
    "image": "imaging.bake_image",
    "init": "schemas.start_profile",
    "lock": "locking.lock",
    "logs": "logs.logs",
    "schema": "schemas.schema",
    "setup": "setup.setup",
    "skipped": "recording.left_behind",
    "ssh": "ssh.ssh_command",
    "ssh-config": "ssh.ssh_config",
    "tensorboard": "tensorboard.tensorboard",
}
"""Verbs of the command line that are functions of a module of api; the others are names of api itself."""


def test_api_has_every_verb_of_the_command_line() -> None:
    verbs = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert {"up", "gc", "lint", "catalog"} <= set(verbs)
    for verb in sorted(verbs):
        module, _, name = IN_MODULES.get(verb, verb.replace("-", "_")).rpartition(".")
        room = import_module(f"orchestrator.api.{module}") if module else orchestrator.api
        assert callable(getattr(room, name)), verb


def test_every_test_that_the_page_of_faults_names_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", (ROOT / "docs/failures.md").read_text())
    assert len(named) > 40
    for file, test in named:
        text = (ROOT / file).read_text()
        assert f"def {test}" in text, f"docs/failures.md names {file}::{test}"
        before = text.partition(f"def {test}")[0].rpartition("\n\n")[2]
        at_night = "pytest.mark.nightly" in before or test in AT_NIGHT.get(file, ())
        assert not at_night, f"{file}::{test} runs at night alone"


@pytest.mark.parametrize("file", AT_NIGHT)
def test_every_test_that_waits_for_the_night_exists(file: str) -> None:
    text = (ROOT / file).read_text()
    for test in AT_NIGHT[file]:
        assert test.partition("[")[0] in text, f"tests/nightly.py names {file}::{test}"
