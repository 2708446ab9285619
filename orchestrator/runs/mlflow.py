"""Log each end of a run to an MLflow server: parameters, metrics, outputs, verdicts, and a model version.

What is to be logged is noted in `.orch/mlflow/<run>.json` before the server is asked: after a killed call,
the next one finds the MLflow run by its tag and completes it.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from orchestrator.errors import ProfileError
from orchestrator.model import Progress, RunRecord
from orchestrator.model.answers import Malformed
from orchestrator.model.files import open_regular
from orchestrator.model.outcomes import ExitReason
from orchestrator.model.progress import notice
from orchestrator.profile import Profile
from orchestrator.profile.overrides import covered
from orchestrator.runs.curves import curves_of
from orchestrator.runs.mlflow_notes import MARK, Notes, curve_key
from orchestrator.runs.mlflow_server import MlflowError, Server, metric_name, takes_files
from orchestrator.session.project import Project

_LONGEST = 500
_LARGEST_FILE = 5 << 30
_FLAG = re.compile(r"--([A-Za-z][\w-]*)(?:=(.*))?\Z", re.S)


def log_end(project: Project, profile: Profile, record: RunRecord, tell: Progress) -> None:
    """Log the end of `record` once. A failure is reported, and the next call that sees the end repeats it."""
    if record.exit["reason"] == ExitReason.RUNNING:
        return
    try:
        url = profile.mlflow.server()
    except ProfileError as error:
        notice(tell, f"{record.run_id} was not logged to MLflow: {error.message}")
        return
    if url is None:
        return
    if not re.match(r"https?://", url):
        notice(
            tell,
            f"{record.run_id} was not logged to MLflow: MLFLOW_TRACKING_URI is not an http or https address, "
            "and orch logs to servers only, such as: mlflow server --backend-store-uri sqlite:///mlflow.db",
        )
        return
    end = _End(project, profile, record, Server(url, os.environ), tell)
    try:
        end.log()
    except (MlflowError, OSError) as error:
        leased = any(record.run_id in lease.runs for lease in project.open_leases())
        again = f"orch pull {record.run_id}" if leased else "repeat the command"
        notice(tell, f"{record.run_id} was not logged to MLflow: {error} To try again: {again}")


@dataclass(frozen=True)
class _End:
    project: Project
    profile: Profile
    record: RunRecord
    server: Server
    tell: Progress

    def log(self) -> None:
        notes = Notes(self.project, self.record.run_id)
        note = replace(notes.of(max(1, len(self.record.attempts))), live=False)
        if note.logged:
            return
        notes.keep(note)
        experiment = self.server.experiment(self.profile.mlflow.experiment or self.profile.name)
        started, ended = self._times_ms()
        run, artifacts = self.server.run(experiment, self.record.run_id, started, (MARK, note.id))
        self.server.log(run, self._params(), list(self._metrics(ended, note.sent)), self._tags())
        if self.profile.mlflow.artifacts:
            self._upload(artifacts)
        self.server.end(run, _status(self.record), ended)
        self._register(run, artifacts)
        notes.keep(replace(note, logged=True))

    def _register(self, run: str, artifacts: str) -> None:
        model, accepted = self.profile.mlflow.model, (self.record.acceptance or {}).get("accepted", True)
        if model is None or not self.record.succeeded or not accepted:
            return
        version = self.server.register(model, f"{artifacts}/outputs", run)
        if version is not None:
            self.tell.say(f"MLflow: {model} version {version} is {self.record.run_id}")

    # ------------------------------------------------------------ what is logged

    def _params(self) -> dict[str, str]:
        """Return the command's flags, the variables that `train.env` writes out, and the digests that
        identify the run. A value that an override gives to `train.env` may be a secret, and is not logged.
        """
        record, train = self.record, self.profile.train
        overridden = record.request["withheld"] if record.request else ["train.env"]
        env = {
            name: value
            for name, value in train.env.items()
            if isinstance(value, str) and not covered(f"train.env.{name}", overridden)
        }
        facts = {
            "command": " ".join(record.command or ()),
            "code": record.code["digest"] if record.code else None,
            "data": record.data["digest"] if record.data else None,
            "stack": record.stack["digest"] if record.stack else None,
            "cloud": record.machine["provider"] if record.machine else None,
            "instance_type": record.machine["instance_type"] if record.machine else None,
        }
        known = {f"orch.{name}": str(value) for name, value in facts.items() if value}
        given = {**_flags(record.command or ()), **env, **known}
        return {metric_name(name): value[:_LONGEST] for name, value in given.items() if value}

    def _metrics(self, ended: int, sent: Mapping[str, float]) -> Iterator[dict[str, Any]]:
        """Yield the run's curves, then its final metrics, 1 ms later, because MLflow shows the latest value.

        `sent`: the last steps that were logged while it trained. Values that are no finite number are left
        out.
        """
        record = self.record
        folder = Path(record.path)
        curves = curves_of(folder, record.artifacts, folder / "output.log")
        for curve in curves:
            after = sent.get(curve_key(curve.axis, curve.name), -math.inf)
            for x, y in zip(curve.xs, curve.ys, strict=True):
                if x > after and math.isfinite(y):
                    yield {"key": metric_name(curve.name), "value": y, "timestamp": ended, "step": int(x)}
        last = max((int(curve.xs[-1]) for curve in curves), default=0)
        for name, value in record.metrics.items():
            if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
                yield {"key": metric_name(name), "value": float(value), "timestamp": ended + 1, "step": last}

    def _tags(self) -> dict[str, str]:
        record = self.record
        check, accepted = record.model_check or {}, (record.acceptance or {}).get("accepted")
        git = record.code.get("git") if record.code else None
        facts: dict[str, Any] = {
            "orch.run_id": record.run_id,
            "orch.attempts": len(record.attempts) or 1,
            "orch.exit": record.exit["reason"],
            "orch.exit_detail": record.exit.get("detail"),
            "orch.verdict": (record.parity or {}).get("verdict"),
            "orch.resume_proof": (record.resume_proof or {}).get("verdict"),
            "orch.model_check": check.get("equal"),
            "orch.accepted": accepted,
            "orch.cost_usd": record.cost["run_usd"] if record.cost else None,
            "mlflow.source.name": " ".join(record.command or ()),
            "mlflow.source.type": "JOB",
            "mlflow.source.git.commit": git["revision"] if git else None,
        }
        return {
            key: str(value)[:_LONGEST] for key, value in facts.items() if value is not None and value != ""
        }

    def _upload(self, artifacts: str) -> None:
        """Upload the outputs, the record and the log; what cannot be uploaded is reported."""
        if not takes_files(artifacts):
            notice(
                self.tell,
                "MLflow: no files are uploaded, because the server leaves them to its clients; start it with "
                "--serve-artifacts, or write mlflow.artifacts: false",
            )
            return
        folder = Path(self.record.path)
        for name in (*(artifact["path"] for artifact in self.record.artifacts), "run.json", "output.log"):
            try:
                with open_regular(folder / name) as content:
                    size = os.fstat(content.fileno()).st_size
                    if size > _LARGEST_FILE:
                        raise Malformed(f"it has more than {_LARGEST_FILE:,} bytes")
                    self.server.upload(artifacts, name, content, size)
            except (FileNotFoundError, Malformed) as error:
                why = "it is not there" if isinstance(error, FileNotFoundError) else error
                notice(self.tell, f"MLflow: {name} of {self.record.run_id} is not uploaded: {why}")

    def _times_ms(self) -> tuple[int, int]:
        attempts = self.record.attempts
        started = attempts[0]["started_at"] if attempts else None
        ended = attempts[-1]["ended_at"] if attempts else None
        begun = int((started or ended or 0) * 1000)
        return begun, max(begun, int((ended or 0) * 1000))


def _status(record: RunRecord) -> str:
    if record.succeeded:
        return "FINISHED"
    return "KILLED" if record.exit["reason"] == ExitReason.CANCELLED else "FAILED"


def _flags(command: Sequence[str]) -> Mapping[str, str]:
    """Return the flags of a command: lr for `--lr 0.1` and `--lr=0.1`, fast for `--fast`."""
    found: dict[str, str] = {}
    for place, word in enumerate(command):
        flag = _FLAG.match(word)
        if flag is None:
            continue
        following = command[place + 1] if place + 1 < len(command) else "--"
        alone = "true" if following.startswith("--") else following
        found[flag[1]] = alone if flag[2] is None else flag[2]
    return found
