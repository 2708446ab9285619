"""Notify the recipients in the profile's `notify` that a run has ended: once for each end, with its result.

`.orch/notified/<run>.json` notes a notification before it is sent, and again once it was sent. If a call is
killed between the two, the next one sends the notification again, with the same `id`.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.errors import Busy, OrchError, ProfileError, UsageError
from orchestrator.hosts.atomic import atomic_write
from orchestrator.model import Progress, RunRecord
from orchestrator.model.answers import SHORT, Malformed, parsed
from orchestrator.model.error_page import page_of
from orchestrator.model.files import regular_bytes
from orchestrator.model.plain import last_words, plain
from orchestrator.model.progress import notice
from orchestrator.profile import Notify, Profile
from orchestrator.runs import no_redirect
from orchestrator.session.project import Project

_FOLDER = "notified"
_SECONDS = 10.0
"""Limit of one request; a command has six times as long."""
_PAUSES = (1.0, 3.0)
_MOST_TEXT = 1_000
_MOST_KEYS = 1_000


class NotSent(Exception):
    """A notification was not accepted; the text says why, and contains no secret."""


@contextmanager
def notified(
    project: Project, profile: Profile, run_id: str, tell: Progress, *, began: bool = False
) -> Iterator[Callable[[RunRecord], RunRecord]]:
    """Send a notification when the block ends, about the record that it passes to the yielded function, or
    about its error. Nothing is sent while the run continues, or for Busy. Raise ProfileError first if the
    environment variable of the webhook is not set; if the run `began` before, that is only reported.
    """
    if profile.notify is None:
        yield lambda record: record
        return
    if not began:
        profile.notify.url()
    sender = _Sender(project, profile, profile.notify, run_id, tell)

    def ended(record: RunRecord) -> RunRecord:
        if record.exit["reason"] != "running":
            sender.send(_Ended("finished" if record.succeeded else "failed", record, None))
        return record

    try:
        yield ended
    except Busy:
        raise
    except OrchError as error:
        record = getattr(error, "record", None)
        sender.send(_Ended("failed", record if isinstance(record, RunRecord) else None, error))
        raise


@dataclass(frozen=True)
class _Ended:
    event: str
    record: RunRecord | None
    error: OrchError | None

    @property
    def key(self) -> str:
        """The key of this end. An attempt has one end; without a record, ends are distinguished by the
        kind of error.
        """
        if self.record is not None:
            return f"{self.event}:{max(1, len(self.record.attempts))}"
        return f"{self.event}:{page_of(self.error) if self.error else ''}"


@dataclass(frozen=True)
class _Sender:
    project: Project
    profile: Profile
    wish: Notify
    run_id: str
    tell: Progress

    def send(self, end: _Ended) -> None:
        """Send once. A failure is reported; the next call that sees this end sends it again."""
        if end.event not in self.wish.on or self._told().get(end.key):
            return
        try:
            self._note(end.key, sent=False)
            self._to_all(json.dumps(self._body(end), default=str).encode())
            self._note(end.key, sent=True)
        except (NotSent, OSError) as error:
            notice(self.tell, f"The notification that {self.run_id} {end.event} was not sent: {error}")

    def _to_all(self, body: bytes) -> None:
        failures = []
        for send in (self._post, self._run):
            try:
                send(body)
            except NotSent as error:
                failures.append(str(error))
        if failures:
            raise NotSent(" ".join(failures))

    def _post(self, body: bytes) -> None:
        try:
            url = self.wish.url()
        except ProfileError as error:
            raise NotSent(error.message) from None
        if url is not None:
            post(url, body)

    def _run(self, body: bytes) -> None:
        command = self.wish.command
        if command is None:
            return
        try:
            done = subprocess.run(
                command, input=body, cwd=self.profile.path.parent, timeout=6 * _SECONDS,
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise NotSent(f"{command[0]} took longer than {6 * _SECONDS:.0f} s and was ended.") from None
        except OSError as error:
            raise NotSent(f"{command[0]} could not be started: {error.strerror}.") from None
        if done.returncode:
            said = last_words(done.stderr) or "it printed nothing"
            raise NotSent(f"{command[0]} ended with status {done.returncode}: {said}")

    # ------------------------------------------------------------ what is told

    def _body(self, end: _Ended) -> dict[str, Any]:
        record, error = end.record, end.error
        identity = f"{self.project.root}\n{self.run_id}\n{end.key}"
        return {
            "schema": "orch.notification/1",
            "id": hashlib.sha256(identity.encode()).hexdigest()[:32],
            "event": end.event,
            "text": self._text(end)[:_MOST_TEXT],
            "run_id": self.run_id,
            "name": self.profile.name,
            "exit": dict(record.exit) if record else None,
            "metrics": dict(record.metrics) if record else {},
            "verdict": (record.parity or {}).get("verdict") if record else None,
            "cost_usd": (record.cost or {}).get("usd") if record else None,
            "folder": str(record.folder) if record else None,
            "error": _error_json(error) if error else None,
        }

    def _text(self, end: _Ended) -> str:
        name = f"{self.profile.name}: {self.run_id}"
        if end.error is not None:
            following = f" Next: {end.error.next_command}" if end.error.next_command else ""
            left = f" {end.error.exists}" if end.error.exists else ""
            ended = "was refused" if isinstance(end.error, UsageError) else f"failed ({page_of(end.error)})"
            return plain(f"{name} {ended}. {end.error.message}{left}{following}")
        if end.record is not None and not end.record.succeeded:
            return plain(f"{name} failed. {end.record.exit.get('detail') or end.record.exit['reason']}")
        metrics = end.record.metrics if end.record else {}
        numbers = [f"{key} {value:.4g}" for key, value in metrics.items() if isinstance(value, int | float)]
        return plain(f"{name} finished. {', '.join(numbers[:6])}".strip())

    # ------------------------------------------------------------ what was told

    @property
    def _place(self) -> Path:
        return self.project.state / _FOLDER / f"{self.run_id}.json"

    def _told(self) -> Mapping[str, bool]:
        try:
            found = parsed(regular_bytes(self._place, SHORT))
        except (OSError, Malformed):
            return {}
        return {str(key): value is True for key, value in found.items()} if isinstance(found, dict) else {}

    def _note(self, key: str, *, sent: bool) -> None:
        self.project.ignore_state()
        self._place.parent.mkdir(parents=True, exist_ok=True)
        kept = dict(list({**self._told(), key: sent}.items())[-_MOST_KEYS:])
        atomic_write(self._place, json.dumps(kept).encode())


def _error_json(error: OrchError) -> dict[str, Any]:
    return {
        "code": page_of(error),
        "message": error.message,
        "exists": error.exists,
        "next_command": error.next_command,
        "exit_code": error.exit_code,
        "retry": error.worth_repeating,
    }


def post(url: str, body: bytes) -> None:
    """Post JSON. Raise NotSent, without the address, which may be a secret."""
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    opener = no_redirect.opener()
    for pause in (*_PAUSES, None):
        try:
            with opener.open(request, timeout=_SECONDS):
                return
        except urllib.error.HTTPError as error:
            with error:
                why, passes = (
                    f"the webhook answered with status {error.code}.",
                    error.code in (429, *range(500, 600)),
                )
        except (OSError, ValueError, http.client.HTTPException) as error:
            why, passes = f"the webhook did not answer: {no_redirect.reason(error)}.", True
        if pause is None or not passes:
            raise NotSent(why)
        time.sleep(pause)
