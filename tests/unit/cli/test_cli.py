"""What every verb has in common: refusals of a command line, for people and for programs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.forked_orch import orch


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("upp",), "Did you mean 'up'"),
        (("train", "--bogus"), "No such option: --bogus"),
        (("compare",), "Missing argument"),
    ],
)
def test_a_command_line_that_cannot_be_parsed(argv: tuple[str, ...], said: str) -> None:
    plain = orch(*argv)
    assert (plain.returncode, plain.stdout) == (2, "")
    assert said in plain.stderr
    told = orch(*argv, "--json")
    assert told.returncode == 2
    error = json.loads(told.stdout)["error"]
    assert said in error["message"]
    assert error["exit_code"] == 2
    assert error["next_command"].endswith("--help")


def test_help_is_no_failure() -> None:
    done = orch("train", "--help")
    assert done.returncode == 0
    assert "--local-parity" in done.stdout


@pytest.mark.parametrize("argv", [("status",), ("upp",), ("compare", "a", "b", "--json"), ("plan", "--help")])
def test_a_fork_says_what_a_new_process_says(argv: tuple[str, ...], tmp_path: Path) -> None:
    forked = orch(*argv, cwd=tmp_path)
    command = [sys.executable, "-m", "orchestrator", *argv]
    real = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (forked.returncode, forked.stdout, forked.stderr) == (real.returncode, real.stdout, real.stderr)


@pytest.mark.parametrize("group", [(), ("catalog",)])
@pytest.mark.parametrize("columns", ["40", "80", "200"])
def test_no_sentence_of_the_help_is_cut(
    group: tuple[str, ...], columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    shown = orch(*group, "--help").stdout
    assert "..." not in shown.partition("--help")[2].partition("\n")[2]
    if not group:
        assert "Create the machine of PROFILE and install its packages." in " ".join(shown.split())


def test_a_budget_without_a_unit_suggests_the_nearest_with_one() -> None:
    refused = orch("compare", "a", "b", "--confirm", "--budget", "300")
    assert refused.returncode == 2
    assert "write 300s for seconds" in refused.stderr


@pytest.mark.parametrize("verb", ["size", "profile"])
def test_a_budget_has_the_unit_that_compare_wants(verb: str) -> None:
    assert "'5x'" in orch(verb, "--budget", "5x").stderr
    assert "write 300s for seconds" in orch(verb, "--budget", "300").stderr
    assert "--budget" not in orch(verb, "--budget", "5m", "--no-such-option").stderr
    assert "out of range" in orch(verb, "--budget", "0s").stderr


def test_the_limit_of_size_has_a_unit_too() -> None:
    assert "write 900s for seconds" in orch("size", "--limit", "900").stderr


def test_status_names_the_profile_that_is_there(tmp_path: Path) -> None:
    def next_line() -> str:
        return orch("status", cwd=tmp_path).stdout.splitlines()[-1]

    assert next_line() == "Next: orch up PROFILE.yaml"
    (tmp_path / "orch.yaml").touch()
    assert next_line() == "Next: orch up orch.yaml"


@pytest.mark.parametrize("fault", ["None", "lambda **_: (_ for _ in ()).throw(EOFError('hung up'))"])
def test_a_fault_of_our_own_shows_no_trace_and_keeps_it(tmp_path: Path, fault: str) -> None:
    """Also where the library of the command line takes it for an interrupt."""
    broken = f"import sys, orchestrator.leases.status as s; s.status = {fault}"
    done = subprocess.run(
        [sys.executable, "-c", f"{broken}; sys.argv[1:] = ['status', '--json']; "
         "from orchestrator.cli import main; main()"],
        capture_output=True, text=True, timeout=60, cwd=tmp_path, env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert (done.returncode, done.stderr.strip()) == (1, "")
    assert "bug in orch" in json.loads(done.stdout)["error"]["message"]
    (kept,) = tmp_path.glob("orch-fault-*.txt")
    assert "Traceback" in kept.read_text()


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("train", "typo.yaml"), "typo.yaml: there is no such file; did you mean tpo.yaml?"),
        (("train", "tpo.yaml"), "Did you mean orch up tpo.yaml, or orch run tpo.yaml, which does both?"),
        (("train", "nightly-1"), "Did you mean --run-id nightly-1 or --lease nightly-1?"),
        (("train", "train.env.A=1"), "Did you mean --set train.env.A=1?"),
        (("train", "epochs=2"), "Did you mean --set train.params.epochs=2"),
        (("train", "x" * 5000), "takes no argument 'xxx"),
        (("status", "tpo.yaml"), "`orch status` takes no profile"),
        (("up", "tpo.yaml", "b.yaml"), "unexpected extra argument: 'b.yaml'"),
    ],
)
def test_a_word_that_a_verb_does_not_take(
    argv: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tpo.yaml").write_text("cloud: local\ntrain: {}\n")
    monkeypatch.chdir(tmp_path)
    refused = orch(*argv, "--json")
    assert refused.returncode == 2
    assert said in json.loads(refused.stdout)["error"]["message"]
    assert said in orch(*argv).stderr


DEEP = "[" * 5000


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("init", "--terraform", "deep.json"), "it is not JSON"),
        (("init", "--add-data", os.fsdecode(b"caf\xe9")), "is not UTF-8"),
        (("lint", "p.yaml"), "not a script, notebook or requirements file"),
        (("lint", "fifo"), "neither a plain file nor a folder"),
        (("plan", "p.yaml", "--like", ""), "no trace of a run"),
        (("up", "x" * 5000), "the file cannot be read: file name too long"),
        (("compare", "x" * 5000, "y"), "A name is longer than this computer allows"),
    ],
)
def test_nonsense_is_refused_in_a_sentence(
    argv: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deep.json").write_text(DEEP)
    (tmp_path / "p.yaml").write_text("version: 1\nname: p\ncloud: local\ntrain: {command: python train.py}\n")
    (tmp_path / "orch.yaml").write_text((tmp_path / "p.yaml").read_text())
    (tmp_path / os.fsdecode(b"caf\xe9")).touch()
    os.mkfifo(tmp_path / "fifo")
    monkeypatch.chdir(tmp_path)
    refused = orch(*argv, "--json")
    error = json.loads(refused.stdout)["error"]
    assert (refused.returncode, error["exit_code"]) == (2, 2), error
    assert said in error["message"] and len(error["message"]) < 500
    assert said in orch(*argv).stderr


PROFILE = "version: 1\nname: own\ncloud: local\nresources: {cpus: 1, memory: 1 GiB, disk: 1 GiB}\n"
TRAIN = 'train: {command: [python, -c, "pass"]}\n'


def test_the_profile_of_the_project_need_not_be_typed(tmp_path: Path) -> None:
    (tmp_path / "orch.yaml").write_text(PROFILE + TRAIN)
    (tmp_path / "train.py").touch()
    below = tmp_path / "notebooks"
    below.mkdir()
    assert "train.py" not in orch("skipped", cwd=tmp_path).stdout
    for verb in (("plan",), ("skipped",), ("up", "--dry-run"), ("sweep",), ("run", "--run-id", "one")):
        refused = orch(*verb, cwd=below)
        assert refused.returncode == 2 and "There is no orch.yaml here" in refused.stderr
        assert "Next: orch init" in refused.stderr
        assert "There is no orch.yaml" not in orch(*verb, cwd=tmp_path).stderr


def test_the_profile_of_a_folder_with_leases_is_found_from_below(tmp_path: Path) -> None:
    (tmp_path / "orch.yaml").write_text(PROFILE + TRAIN)
    ledger = tmp_path / ".orch/own-000000/ledger.jsonl"
    ledger.parent.mkdir(parents=True)
    ledger.touch()
    below = tmp_path / "notebooks"
    below.mkdir()
    assert orch("skipped", cwd=below).returncode == 0


def test_profiles_with_other_names_are_not_chosen_but_named(tmp_path: Path) -> None:
    (tmp_path / "gpu.yaml").write_text(PROFILE + TRAIN)
    refused = orch("plan", cwd=tmp_path)
    assert refused.returncode == 2 and "Name a profile; there is gpu.yaml." in refused.stderr
