"""What people read, word for word."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.model import DownReport, LeaseStatus, RunRecord
from orchestrator.report.lease import down_text, nothing_leased, plan_text, status_text
from orchestrator.report.run import summary
from orchestrator.report.units import duration, money, size, table
from tests.conftest import ROOT

GOLDEN = ROOT / "tests/golden/report"

RECORD = RunRecord(
    run_id="digits-1",
    path="/project/runs/digits-1",
    exit={"code": 0, "signal": None, "reason": "completed", "detail": "The command ended with status 0."},
    parity={"verdict": "IDENTICAL", "steps": 3, "compared": 168, "detail": "", "cause": None},
    stack={"digest": "d", "python": "3.11.7", "packages": 38, "lock": "l", "differences": []},
    data={"digest": "d", "files": 10, "bytes": 203_000},
    metrics={"accuracy": 0.98888, "loss": 0.0397, "final": True},
    profile={
        "steps": 540,
        "steps_per_s": 143.9,
        "input_wait": 0.07,
        "bytes_read": 73_600_000,
        "peak_memory": 746_000_000,
        "limited_by": "cpu",
        "because": "The cores were busy.",
    },
    artifacts=[{"path": "outputs/out/model.keras", "sha256": "0" * 64, "bytes": 1_258_291}],
    model_check={"path": "out/model.keras", "loaded": True, "equal": True, "reason": None},
    machine=None,
    cost={
        "usd": 1.87,
        "price_usd_hour": 0.75,
        "seconds": 8976,
        "run_usd": 1.87,
        "run_seconds": 8976,
        "lease_usd": 2.1,
        "lease_seconds": 10_080,
    },
)

DIVERGED = replace(
    RECORD,
    exit={"code": None, "signal": None, "reason": "not_started", "detail": "Parity stopped it."},
    parity={"verdict": "DIVERGENT", "detail": "The runs first differ in step 1, in the batch: x by 0.7."},
    stack={
        "digest": "d",
        "python": "3.11.7",
        "packages": 38,
        "lock": "l",
        "differences": [
            {
                "kind": "package",
                "name": "six",
                "here": "1.16.0",
                "there": "1.17.0",
                "declared": False,
                "reason": "",
            }
        ],
    },
    metrics={},
    profile=None,
    artifacts=(),
    model_check=None,
)

UNKNOWN = RunRecord(
    run_id="bare",
    path="/p/runs/bare",
    exit={"code": 1, "signal": None, "reason": "failed", "detail": ""},
    profile={"steps": None, "steps_per_s": None, "input_wait": None, "bytes_read": None, "peak_memory": None},
)

LEASE = LeaseStatus(
    lease="digits-a1b2c3",
    name="digits",
    cloud="local",
    state="running",
    profile="digits.yaml",
    machine="m-1",
    instance_type="local",
    zone="local",
    price=0.75,
    cost=0.0125,
    created_at=1000.0,
    deadline=4600.0,
    detail={"tier": "netns", "address": "10.77.0.2"},
    attempts=[],
    runs=[{"run_id": "digits-1", "state": "completed", "collected": True}],
)

PLAN: dict[str, Any] = {
    "actions": [{"action": "create", "what": "a machine", "reason": "g4dn.xlarge is the cheapest of 2"}],
    "offers": [
        {
            "instance_type": "g4dn.xlarge",
            "zone": "us-east-1a",
            "cpus": 4,
            "memory": 16 << 30,
            "accelerator": "T4",
            "accelerator_count": 1,
            "price": 0.526,
            "worst_case": 2.104,
        }
    ],
    "rejected": [{"instance_type": "p2.xlarge", "reason": "its GPU memory is 12 GiB, below 16 GiB"}],
    "refusal": None,
}

TEXTS = {
    "run.txt": summary(RECORD),
    "diverged.txt": summary(DIVERGED),
    "unknown.txt": summary(UNKNOWN),
    "status.txt": status_text([LEASE, replace(LEASE, lease="digits-gone", state="gone", runs=[])], 1000.0),
    "nothing.txt": nothing_leased((), "orch up PROFILE.yaml"),
    "plan.txt": plan_text(PLAN),
    "down.txt": down_text(DownReport(["digits-a1b2c3"], ["m-1"], 8976.0, 1.87, True)),
}


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_texts(name: str) -> None:
    """To accept a new text: write it into tests/golden/report and read it there as a user would."""
    assert TEXTS[name] + "\n" == (GOLDEN / name).read_text()


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 40, "5.0 TiB"), (None, "unknown")],
)
def test_size(count: int | None, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.42, "0.4 s"),
        (59.6, "60 s"),
        (150, "2 min 30 s"),
        (3600, "1 h"),
        (5400, "1 h 30 min"),
        (None, "unknown"),
    ],
)
def test_duration(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(("dollars", "text"), [(0, "$0.00"), (0.0042, "$0.0042"), (1.874, "$1.87")])
def test_what_cost_something_is_not_shown_as_nothing(dollars: float, text: str) -> None:
    assert money(dollars) == text


@pytest.mark.parametrize("fit", [40, 60, 100])
def test_a_table_that_must_fit_wraps_its_widest_column_and_loses_no_word(fit: int) -> None:
    rows = [["what", "why", "much"], ["  cpus", "because " * 20, "4"], ["  memory", "short", "8 GiB"]]
    text = table(rows, fit=fit)
    assert max(map(len, text.splitlines())) <= fit
    assert text.count("because") == 20
    assert sorted(text.split()) == sorted(" ".join(cell for row in rows for cell in row).split())


def test_a_record_can_be_returned_by_a_schedulers_task() -> None:
    assert json.loads(json.dumps(asdict(RECORD)))["run_id"] == "digits-1"
    assert RECORD.folder == Path("/project/runs/digits-1")


def test_a_record_whose_models_were_not_checked_says_how_they_will_be() -> None:
    cut = replace(RECORD, model_check=None, timings={"pull_s": 1.0})
    assert "orch pull digits-1" in summary(cut)
    assert "orch pull" not in summary(replace(cut, timings={"pull_s": 1.0, "model_check_s": 2.0}))


def test_values_that_were_compared_are_not_said_to_predict() -> None:
    check = {"path": "out/scaler.pkl", "loaded": True, "equal": True, "predicted": False, "files": []}
    assert "out/scaler.pkl loads here and holds the same values" in summary(
        replace(RECORD, model_check=check)
    )
    assert "predicts the same" in summary(replace(RECORD, model_check={**check, "predicted": True}))


def test_what_was_compared_of_each_file_is_said() -> None:
    same = {"loaded": True, "equal": True, "reason": None}
    files = [
        {**same, "path": "out/model.keras", "predicted": True},
        {**same, "path": "out/w.npz", "predicted": False, "arrays": 2, "values": 51, "not_finite": 0},
        {**same, "path": "out/h.npy", "predicted": False, "arrays": 1, "values": 3, "not_finite": 1},
    ]
    text = summary(replace(RECORD, model_check={**files[0], "files": files}))
    assert "out/model.keras loads here and predicts the same\n" in text
    held = "2 files load here and hold the same values: out/w.npz, out/h.npy (54 in 3 arrays)"
    assert f"{held}; 1 infinite or NaN, in out/h.npy" in " ".join(text.split())
    scaler = {**same, "path": "out/scaler.joblib", "predicted": True, "method": "transform"}
    assert "out/scaler.joblib loads here and transforms the same" in summary(
        replace(RECORD, model_check={**scaler, "files": [scaler]})
    )
    alone = summary(replace(RECORD, model_check={**files[1], "files": files[1:2]}))
    assert "out/w.npz loads here and holds the same values (51 in 2 arrays, all finite)" in " ".join(
        alone.split()
    )


def test_a_loss_that_was_no_number_comes_with_the_setting_that_ends_such_a_run() -> None:
    seen = {"what": "not_finite", "at": 1.0, "step": 6, "detail": "Its loss is no finite number (nan)."}
    warned = summary(replace(RECORD, exit={**RECORD.exit, "noticed": [seen]}))
    assert "no finite number (nan). With `on_nan: stop` in train:" in " ".join(warned.split())
    ended = summary(replace(RECORD, exit={**RECORD.exit, "reason": "not_finite", "noticed": [seen]}))
    assert "on_nan" not in ended


def test_differences_that_are_expected_are_named() -> None:
    declared = [{"kind": "variable", "name": "LANG", "here": "C", "there": None, "declared": True}]
    shown = summary(replace(RECORD, stack={**(RECORD.stack or {}), "differences": declared}))
    assert "expected to differ: LANG" in shown


def test_a_deadline_that_has_passed_by_the_clock_here_is_told_as_such() -> None:
    assert LEASE.deadline
    (line,) = [each for each in status_text([LEASE], LEASE.deadline + 90).splitlines() if "deadline" in each]
    assert "ago by this computer's clock" in line and "-" not in line.partition("UTC")[2]


@pytest.mark.parametrize(
    ("profile", "shown"), [("orch.yaml", "orch.yaml"), ("my profile.yaml", "'my profile.yaml'")]
)
def test_a_run_that_lacked_memory_names_its_own_profile(profile: str, shown: str) -> None:
    request: Any = {"profile": profile}
    ended: Any = {**RECORD.exit, "reason": "out_of_memory", "code": None}
    text = summary(replace(RECORD, exit=ended, request=request))
    assert f"Next: orch size {shown} --write    # measures what it needs" in text
