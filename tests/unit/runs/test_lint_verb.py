"""`orch lint` as people and tools meet it: text, JSON, SARIF, exit codes, and a few lines before a run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from typer.testing import CliRunner, Result

from orchestrator.api.schemas import schema
from orchestrator.cli.app import app
from orchestrator.errors import EXIT_LINT, EXIT_USAGE, LintRefused
from orchestrator.lint import RULES, check
from orchestrator.profile import load
from orchestrator.report.sarif import sarif
from orchestrator.runs.lint_check import check_project, hint, lint, report_once
from tests.conftest import DIGITS, ROOT
from tests.said import Said
from tests.unit.lint_blocks import blocks_of

HAZARD = "import os\nfor name in os.listdir('data'):\n    use(name)\n"
ERROR = "import tensorflow as tf\ngpu = tf.config.list_physical_devices('GPU')[0]\n"
PROFILE = """version: 1
name: job
cloud: local
code: {path: .}
stack: {lock: requirements.lock}
train: {command: [python, train.py]}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(HAZARD)
    (tmp_path / "requirements.lock").write_text("")
    (tmp_path / "orch.yaml").write_text(PROFILE)
    (tmp_path / ".orch").mkdir()
    return tmp_path


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["lint", *words])


def test_a_folder_that_holds_only_markdown_says_how_to_check_it(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# Hello\n")
    refused = run(str(tmp_path), "--json")
    error = json.loads(refused.stdout)["error"]
    assert refused.exit_code == EXIT_USAGE
    assert error["next_command"] == f"orch lint {tmp_path}/README.md"
    assert run(*error["next_command"].split()[2:]).exit_code == 0


@pytest.mark.usefixtures("project")
def test_the_text_names_place_rule_and_way_out() -> None:
    found = run("train.py")
    assert found.exit_code == EXIT_LINT
    assert found.stdout.splitlines() == [
        "train.py",
        "  2:13 warning ORC401 os.listdir lists files in the order of the file system",
        f"      {RULES['ORC401'].why}",
        f"      {RULES['ORC401'].fix}",
        "1 warning in 1 file.",
    ]


def test_a_clean_project_is_a_success(project: Path) -> None:
    (project / "train.py").write_text("print('hello')\n")
    found = run()
    assert (found.exit_code, found.stdout.strip()) == (0, "No hazards in 2 files.")  # and its lock


def test_infos_are_no_failure(project: Path) -> None:
    (project / "train.py").write_text("import keras\nwith keras.device('cpu:0'):\n    pass\n")
    found = run("train.py")
    assert "info ORC202" in found.stdout and found.exit_code == 0


def test_the_json_is_as_its_schema_says(project: Path) -> None:
    (project / "a.ipynb").write_text(json.dumps({"cells": [{"cell_type": "code", "source": HAZARD}]}))
    found = run("--json")
    value = json.loads(found.stdout)
    jsonschema.Draft202012Validator(schema("lint")).validate(value)
    assert [(f["path"], f["cell"], f["line"]) for f in value["findings"]] == [
        ("a.ipynb", 1, 2),
        ("train.py", 0, 2),
    ]
    assert value["clean"] is False and found.exit_code == EXIT_LINT


def _validate_sarif(value: Any) -> None:
    text = Path(__file__).parent.with_name("lint_sarif.schema.json").read_text()
    jsonschema.Draft202012Validator(json.loads(text)).validate(value)


def test_sarif_is_sarif(project: Path) -> None:
    assert run("--sarif", "out.sarif", "train.py").exit_code == EXIT_LINT
    value = json.loads((project / "out.sarif").read_text())
    _validate_sarif(value)
    (only,) = value["runs"][0]["results"]
    rules = value["runs"][0]["tool"]["driver"]["rules"]
    assert rules[only["ruleIndex"]]["id"] == only["ruleId"] == "ORC401" and only["level"] == "warning"
    place = only["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "train.py"}, "region": {"startLine": 2, "startColumn": 13}}


def test_sarif_of_everything_is_sarif() -> None:
    texts = {f"a folder/{n} ä.py": block.code for n, block in enumerate(blocks_of("lint_cases/rules.md"))}
    value = sarif(check(texts), "1.2.3")
    _validate_sarif(value)
    results = value["runs"][0]["results"]
    assert len({each["ruleId"] for each in results}) > 50
    assert all(
        "file" not in r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for r in results
    )


@pytest.mark.usefixtures("project")
def test_what_cannot_be_checked_is_a_wrong_command() -> None:
    for words in (
        ["absent.py"],
        ["--select", "ORC999"],
        ["--ignore", "nonsense"],
        ["--profile", "absent.yaml"],
    ):
        assert run(*words).exit_code == EXIT_USAGE, words


def test_rules_are_chosen_by_the_command_and_the_project(project: Path) -> None:
    assert run("--ignore", "ORC4").exit_code == 0
    assert run("--select", "ORC1").exit_code == 0
    (project / "pyproject.toml").write_text("[tool.orch.lint]\nignore = ['unsorted-listing']\n")
    assert run().exit_code == 0 and run("train.py").exit_code == 0


def test_a_folder_is_what_would_be_sent(project: Path) -> None:
    for name in (".venv/lib/a.py", "node_modules/b.py", "runs/old/c.py", "ignored/d.py", "package/e.py"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(HAZARD)
    (project / ".orchignore").write_text("ignored/\n")
    assert {each.path for each in lint().findings} == {"train.py", "package/e.py"}


def test_the_profile_tells_of_variables(project: Path) -> None:
    seeded = "import keras\nkeras.utils.set_random_seed(1)\n"
    (project / "train.py").write_text(f"{seeded}model = keras.Sequential([])\nmodel.fit(x, y, epochs=1)\n")
    plain = {each.rule for each in lint(["train.py"]).findings}
    env = PROFILE.replace("train.py]", "train.py], env: {TF_DETERMINISTIC_OPS: '1'}")
    (project / "orch.yaml").write_text(env)
    assert plain == {"ORC303"} and lint(profile="orch.yaml").findings == ()


# ---------------------------------------------------------------- before a run


def test_a_run_is_told_of_its_hazards_once_and_briefly(project: Path) -> None:
    (project / "train.py").write_text(HAZARD + "".join(f"open('/home/ann/{n}', 'rb')\n" for n in range(6)))
    told, state = Said(), project / ".orch"
    profile = load(project / "orch.yaml")
    found = check_project(profile)
    report_once(found, profile, state, told)
    assert (
        len(told.lines) == 5
        and "train.py:2:13 ORC401" in told.lines[1]
        and told.lines[4].strip() == "… and 4 more"
    )
    report_once(found, profile, state, told)
    assert len(told.lines) == 5
    (project / "train.py").write_text(ERROR)
    report_once(check_project(profile), profile, state, told)
    assert "ORC203" in told.lines[-1]


def test_a_clean_run_is_told_nothing(project: Path) -> None:
    (project / "train.py").write_text("print(1)\n")
    told = Said()
    profile = load(project / "orch.yaml")
    report_once(check_project(profile), profile, project / ".orch", told)
    hint(project / "orch.yaml", told)
    assert told.lines == []


def test_errors_stop_a_run_that_is_strict(project: Path) -> None:
    profile = load(project / "orch.yaml")
    assert check_project(profile, strict=True) is not None  # a warning is no error
    (project / "train.py").write_text(ERROR)
    assert check_project(profile) is not None
    with pytest.raises(LintRefused) as refused:
        check_project(profile, strict=True)
    assert "train.py:2:7 ORC203" in str(refused.value) and refused.value.exit_code == EXIT_LINT
    (project / "pyproject.toml").write_text("[tool.orch.lint]\nstrict = true\n")
    with pytest.raises(LintRefused):
        check_project(profile)
    told = Said()
    hint(project / "orch.yaml", told)
    assert "ORC203" in told.lines[1]


@pytest.mark.parametrize("text", ["\x00\x00", "def (", "[tool.orch.lint]\nselect = 3"])
def test_what_cannot_be_read_stops_no_run(project: Path, text: str) -> None:
    name = "pyproject.toml" if text.startswith("[") else "train.py"
    (project / name).write_text(text)
    check_project(load(project / "orch.yaml"), strict=False)


@pytest.mark.usefixtures("project")
def test_init_says_what_it_sees_in_the_script() -> None:
    found = CliRunner().invoke(app, ["init", "--force"])
    assert found.exit_code == 0, found.output
    assert "ORC401" in found.output


def test_the_example_has_no_hazards() -> None:
    assert [f"{each.place} {each.rule}" for each in lint([DIGITS]).findings] == []


# ---------------------------------------------------------------- the page


def test_the_page_lists_the_rules() -> None:
    page = (ROOT / "docs/lint.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(ORC\d+)` (\S+) \| (\w+) \| (.*) \| (.*) \| (.*) \|$", page, re.MULTILINE)
    plain = [tuple(cell.replace("\\|", "|") for cell in row) for row in rows]
    assert plain == [(r.id, r.name, str(r.severity), r.sees, r.why, r.fix) for r in RULES.values()]
