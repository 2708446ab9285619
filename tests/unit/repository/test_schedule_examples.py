"""examples/schedule: files that schedulers read, commands that orch has, and the retries that it advises."""

from __future__ import annotations

import ast
import configparser
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from orchestrator.cli.app import app
from tests.conftest import ROOT

SCHEDULE = ROOT / "examples/schedule"
RETRIED = {4, 8, 11, 12, 14, 15, 16}
"""Exit codes after which the examples repeat the command."""


def document(name: str) -> Any:
    return yaml.safe_load((SCHEDULE / name).read_text())


def container() -> dict[str, Any]:
    job = document("kubernetes-cronjob.yaml")["spec"]["jobTemplate"]["spec"]
    (found,) = job["template"]["spec"]["containers"]
    return dict(found)


def steps() -> list[dict[str, Any]]:
    return list(document("github-actions.yml")["jobs"]["train"]["steps"])


def unit(name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(SCHEDULE / name)
    return parser


# ---------------------------------------------------------------- commands


def commands() -> Iterator[tuple[str, list[str]]]:
    """Each command line of orch in the examples: its file, and its words without `orch`."""
    for file in sorted(each for each in SCHEDULE.iterdir() if each.suffix != ".py"):
        for line in file.read_text().splitlines():
            code = re.sub(r"(^|\s)#.*", "", line).removeprefix("ExecStart=")
            for found in re.findall(r"(?<![\w./'-])(?:/\S*/)?orch ([a-z-]+ [^|>;']*)", code):
                yield file.name, shlex.split(found.split(" ||")[0])
    yield "kubernetes-cronjob.yaml", container()["command"][1:]


def parsed(words: list[str]) -> None:
    """Let the command line read the words without carrying them out."""
    verbs = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    verbs[words[0]].make_context(words[0], list(words[1:]))


def test_every_command_of_the_examples_exists_with_its_options() -> None:
    found = list(commands())
    for _, words in found:
        parsed(words)
    files = {"nightly.sh", "orch-nightly.service", "github-actions.yml", "kubernetes-cronjob.yaml"}
    assert {file for file, words in found if words[0] == "run" and "--run-id" in words} == files
    assert {words[0] for _, words in found} == {"run", "down", "report"}


def test_a_command_that_does_not_exist_would_be_found() -> None:
    with pytest.raises(Exception, match="--run-name"):
        parsed(["run", "orch.yaml", "--run-name", "x"])
    with pytest.raises(Exception, match="run_id"):
        parsed(["run", "orch.yaml"])


# ---------------------------------------------------------------- exit codes


def advice() -> dict[int, str]:
    """What docs/failures.md says to do after each exit code."""
    table = (
        (ROOT / "docs/failures.md").read_text().split("## Exit codes for a scheduler")[1].split("\n## ")[0]
    )
    return {int(code): what for code, what in re.findall(r"^\| (\d+) \|.*\| ([^|]+?) \|$", table, re.M)}


def test_the_examples_retry_what_the_page_of_faults_advises() -> None:
    retried = {code for code, what in advice().items() if what == "retry"}
    assert retried == RETRIED - {4}
    assert advice()[4].startswith("as it says")  # nothing was rented, so a retry costs nothing


def test_every_example_tells_the_same_codes_apart() -> None:
    alerts = set(advice()) - RETRIED - {0}
    script = re.search(r"^ +([\d |]+)\) \[", (SCHEDULE / "nightly.sh").read_text(), re.M)
    assert script and {int(code) for code in script[1].split("|")} == RETRIED
    prevented = unit("orch-nightly.service")["Service"]["RestartPreventExitStatus"]
    assert {int(code) for code in prevented.split()} == alerts
    job = document("kubernetes-cronjob.yaml")["spec"]["jobTemplate"]["spec"]
    (failing,) = [rule for rule in job["podFailurePolicy"]["rules"] if rule["action"] == "FailJob"]
    assert set(failing["onExitCodes"]["values"]) == alerts - {130}  # a pod that is told to end
    assert failing["onExitCodes"]["containerName"] == container()["name"]


def test_the_page_of_schedules_has_the_same_codes() -> None:
    page = (ROOT / "docs/schedule.md").read_text()
    told = re.search(r"^\| ([\d, ]+) \| .*\| retry", page, re.M)
    assert told and {int(code) for code in told[1].split(",")} == RETRIED
    for file in SCHEDULE.iterdir():
        assert f"examples/schedule/{file.name}" in page, file.name


# ---------------------------------------------------------------- each scheduler's own form


def test_the_units_are_what_systemd_reads(tmp_path: Path) -> None:
    timer = unit("orch-nightly.timer")
    assert timer["Timer"]["OnCalendar"] and timer["Install"]["WantedBy"] == "timers.target"
    assert unit("orch-nightly.service")["Unit"]["OnFailure"] == "orch-failed@%n.service"
    analyse = shutil.which("systemd-analyze")
    if analyse is None:
        pytest.skip("no systemd-analyze on this computer")
    files = [shutil.copy(file, tmp_path) for file in SCHEDULE.glob("orch-*")]
    said = subprocess.run(
        [analyse, "verify", *files], capture_output=True, text=True, check=False, timeout=60
    )
    ours = [line for line in said.stderr.splitlines() if "orch-" in line]
    assert (said.returncode, ours) == (0, []), said.stderr


def test_the_script_is_sound_shell() -> None:
    script = SCHEDULE / "nightly.sh"
    subprocess.run(["bash", "-n", script], check=True, timeout=60)
    assert script.stat().st_mode & 0o111
    if checker := shutil.which("shellcheck"):
        subprocess.run([checker, script], check=True, timeout=60)


def test_the_crontab_locks_and_mails() -> None:
    lines = [line for line in (SCHEDULE / "crontab").read_text().splitlines() if line and line[0] != "#"]
    settings, (job,) = lines[:-1], lines[-1:]
    assert [line.partition("=")[0] for line in settings] == ["MAILTO", "PATH"]
    assert re.fullmatch(r"(\S+ ){5}flock --nonblock (\S+) \2/nightly\.sh", job)


def test_the_workflow_deletes_the_machine_and_reports_whatever_happened() -> None:
    workflow = document("github-actions.yml")
    assert workflow["permissions"] == {"contents": "read", "id-token": "write"}
    assert workflow["concurrency"]["cancel-in-progress"] is False
    at_the_end = [step.get("run", step.get("uses")) for step in steps() if step.get("if") == "always()"]
    assert at_the_end == [
        "orch down --discard",
        'orch report "$RUN" --format md >> "$GITHUB_STEP_SUMMARY"',
        "actions/upload-artifact@v4",
    ]
    assert not {"AWS_SECRET_ACCESS_KEY", "secrets."} & set(re.findall(r"[\w.]+", str(workflow)))
    train = [step for step in steps() if step.get("name") == "Train"]
    assert steps().index(train[0]) < [step.get("if") for step in steps()].index("always()")


def test_the_cron_job_starts_one_at_a_time_and_names_its_run_by_its_job() -> None:
    found = document("kubernetes-cronjob.yaml")
    assert (found["apiVersion"], found["kind"]) == ("batch/v1", "CronJob")
    spec = found["spec"]
    pod = spec["jobTemplate"]["spec"]["template"]["spec"]
    assert (spec["concurrencyPolicy"], pod["restartPolicy"]) == ("Forbid", "Never")
    assert container()["command"][-2:] == ["--run-id", "$(JOB_NAME)"]
    assert "job-name" in str(container()["env"][0]["valueFrom"])


def test_the_dag_passes_what_the_operator_takes() -> None:
    tree = ast.parse((SCHEDULE / "airflow_dag.py").read_text())
    (call,) = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "OrchRunOperator"
    ]
    operator = ast.parse((ROOT / "orchestrator/airflow/operator.py").read_text())
    (made,) = [
        node
        for each in operator.body
        if isinstance(each, ast.ClassDef) and each.name == "OrchRunOperator"
        for node in each.body
        if isinstance(node, ast.FunctionDef) and node.name == "__init__"
    ]
    own = {argument.arg for argument in made.args.kwonlyargs}
    assert {word.arg for word in call.keywords} <= own | {"task_id"}
