"""Notices of a spot machine's end, from the cloud's metadata service.

AWS announces it two minutes before, and may report earlier that it is likely; Google announces it about
thirty seconds before. The watcher asks and writes `BASE/notice.json`; every supervisor reads that and acts on
it.
"""

# Close to the kernel: paths are strings here.
# ruff: noqa: PTH118

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from typing import Any, Dict, Optional

from ..rundir import read_json, write_json

EVERY = {"aws": 5.0, "gcp": 1.0}
"""Seconds between two requests, by cloud: AWS recommends five; Google's warning comes later."""

CLOUDS = tuple(EVERY)
GOOGLE_S = 30.0
"""Minimum seconds between Google's announcement and the end of the machine."""

_SERVICE = "http://169.254.169.254"
_TIMEOUT = 1.0
_PLAIN = os.O_NOFOLLOW | os.O_NONBLOCK  # a job can put a link or a pipe there
_TOKEN_S = 21600


@dataclass(frozen=True)
class Notice:
    """`ends_at`: Unix seconds by which the machine may be gone; None if it is only at risk.

    `reason`: the exit reason of a run that this ends, preempted or deadline.
    """

    text: str
    ends_at: Optional[float] = None
    reason: str = "preempted"


def of_deadline(left: float) -> Notice:
    """Return the notice that the machine's deadline is in `left` seconds."""
    text = f"The deadline of this machine comes in {max(0.0, left):.0f} s (max_duration)."
    return Notice(text, time.time() + left, "deadline")


class Listener:
    """Ask one cloud's metadata service. No answer within a second counts as no notice."""

    def __init__(self, cloud: str, service: str = _SERVICE) -> None:
        self._ask = {"aws": self._of_aws, "gcp": self._of_google}[cloud]
        self._service = service
        self._token: Optional[str] = None
        import urllib.request  # late: every supervisor imports this module, few ask a cloud

        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def notice(self) -> Optional[Notice]:
        """Return the current notice; None if there is none."""
        try:
            return self._ask()
        except (OSError, ValueError, KeyError):
            return None

    def _of_aws(self) -> Optional[Notice]:
        action = self._aws("spot/instance-action")
        if action is not None:
            told = json.loads(action)
            when = str(told["time"])
            words = "ends" if told["action"] == "terminate" else f"takes back ({told['action']})"
            return Notice(f"AWS {words} this spot machine at {when}.", _seconds(when))
        risk = self._aws("events/recommendations/rebalance")
        if risk is None:
            return None
        when = str(json.loads(risk)["noticeTime"])
        return Notice(f"AWS says that this spot machine is likely to be taken back soon (since {when}).")

    def _of_google(self) -> Optional[Notice]:
        now = time.time()
        if self._google("instance/preempted") == "TRUE":
            at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
            return Notice(
                f"Google takes this spot machine back, announced at {at}: it ends within {GOOGLE_S:.0f} s.",
                now + GOOGLE_S,
            )
        event = self._google("instance/maintenance-event")
        if event in (None, "", "NONE"):
            return None
        return Notice(f"Google announces maintenance of this spot machine's host: {event}.")

    def _aws(self, path: str) -> Optional[str]:
        from urllib.error import HTTPError

        if self._token is None:
            headers = {"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_S)}
            self._token = self._answer("/latest/api/token", headers, "PUT")
        try:
            return self._answer(f"/latest/meta-data/{path}", {"X-aws-ec2-metadata-token": self._token or ""})
        except HTTPError as error:
            if error.code == 401:  # the token has expired: the next request gets another
                self._token = None
            raise

    def _google(self, path: str) -> Optional[str]:
        return self._answer(f"/computeMetadata/v1/{path}", {"Metadata-Flavor": "Google"})

    def _answer(self, path: str, headers: Dict[str, str], method: str = "GET") -> Optional[str]:
        """Return the body; None if the resource does not exist."""
        from urllib.error import HTTPError
        from urllib.request import Request

        request = Request(self._service + path, headers=headers, method=method)
        try:
            with self._opener.open(request, timeout=_TIMEOUT) as response:
                return str(response.read(1 << 16).decode("utf-8", "replace")).strip()
        except HTTPError as error:
            if error.code == 404:
                return None
            raise


def _seconds(when: str) -> float:
    from calendar import timegm  # late: as above

    return float(timegm(time.strptime(when, "%Y-%m-%dT%H:%M:%SZ")))


# ---------------------------------------------------------------- told to the runs


def publish(base: str, notice: Notice) -> None:
    write_json(_path(base), asdict(notice))


def published(base: str) -> Optional[Notice]:
    """Return the last notice that the watcher received on this machine."""
    found = read_json(_path(base))
    return Notice(**found) if found else None


def clear(base: str) -> None:
    """Remove a notice of another machine, or of this one before it was restarted."""
    try:
        os.unlink(_path(base))  # noqa: PTH108
    except FileNotFoundError:
        pass


def note(notice: Notice, log: str, trace: str) -> None:
    """Report a notice in a run's output and in its trace."""
    say(notice.text, log)
    event: Dict[str, Any] = {"t": round(time.time(), 3), "event": "notice", **asdict(notice)}
    _append(trace, json.dumps(event) + "\n")


def say(text: str, log: str) -> None:
    """Add a line of orch to the run's output."""
    _append(log, f"\norch: {text}\n")


def _append(path: str, text: str) -> None:
    """Append in one write, because others append to the same file. On a full disk the text is dropped."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | _PLAIN, 0o644)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)
    except OSError:
        pass


def _path(base: str) -> str:
    return os.path.join(base, "notice.json")
