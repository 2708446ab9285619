"""Client of an MLflow tracking server's REST API (https://mlflow.org/docs/latest/rest-api.html)."""

from __future__ import annotations

import base64
import http.client
import json
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from io import BufferedReader
from typing import Any

from orchestrator.model.answers import Malformed, parsed
from orchestrator.model.plain import plain
from orchestrator.runs import no_redirect

_API = "/api/2.0/mlflow/"
_ARTIFACTS = "/api/2.0/mlflow-artifacts/artifacts/"
_SECONDS = 15.0
_PAUSES = (0.5, 2.0)
_MOST_BYTES = 1 << 20
_MOST_METRICS, _MOST_PARAMS, _MOST_TAGS = 900, 100, 100
"""Maximum numbers in one request; the server refuses more."""

_UNNAMEABLE = re.compile(r"[^\w\-. /]")

Facts = Mapping[str, str]


def takes_files(artifacts: str) -> bool:
    """Return whether the server itself stores files at this artifact address, as with --serve-artifacts."""
    return urllib.parse.urlsplit(artifacts).scheme == "mlflow-artifacts"


def metric_name(name: str) -> str:
    """Replace the characters that MLflow does not allow in names of metrics and parameters."""
    return _UNNAMEABLE.sub("_", name)[:250] or "_"


class MlflowError(Exception):
    """A request failed; the text says why, and contains no secret. `code`: the server's own, such as
    RESOURCE_ALREADY_EXISTS; "" without one.
    """

    def __init__(self, sentence: str, code: str = "") -> None:
        super().__init__(sentence)
        self.code = code


class Server:
    """A server. The login is taken from the address (https://user:password@host), or from `environ`:
    MLFLOW_TRACKING_USERNAME and _PASSWORD, or MLFLOW_TRACKING_TOKEN.
    """

    def __init__(self, url: str, environ: Mapping[str, str]) -> None:
        login, _, host = urllib.parse.urlsplit(url).netloc.rpartition("@")
        self._url = url.replace(f"{login}@{host}", host, 1).rstrip("/")
        self._opener = no_redirect.opener()
        user, _, word = map(urllib.parse.unquote, login.partition(":"))
        self._headers = _basic(user, word) if login else _login(environ)

    # ------------------------------------------------------------ runs

    def experiment(self, name: str) -> str:
        """Return the id of the experiment; create it if it does not exist."""
        asked = f"experiments/get-by-name?experiment_name={urllib.parse.quote(name, safe='')}"
        try:
            return _text(self._call("GET", asked), "experiment", "experiment_id")
        except MlflowError as error:
            if error.code != "RESOURCE_DOES_NOT_EXIST":
                raise
        try:
            return _text(self._call("POST", "experiments/create", {"name": name}), "experiment_id")
        except MlflowError as error:
            if error.code != "RESOURCE_ALREADY_EXISTS":  # somebody else created it meanwhile
                raise
            return _text(self._call("GET", asked), "experiment", "experiment_id")

    def run(self, experiment: str, name: str, started_ms: int, mark: tuple[str, str]) -> tuple[str, str]:
        """Return the id and the artifact address of the run with the tag `mark`; create it if it does not
        exist.
        """
        key, value = mark
        wanted = {"experiment_ids": [experiment], "filter": f"tags.`{key}` = '{value}'", "max_results": 1}
        found = self._call("POST", "runs/search", wanted).get("runs")
        if not (isinstance(found, list) and found):
            made = {"experiment_id": experiment, "run_name": name, "start_time": started_ms}
            created = self._call("POST", "runs/create", {**made, "tags": _pairs({key: value})})
            found = [created.get("run")]
        run = found[0] if isinstance(found[0], dict) else {}
        return _text(run, "info", "run_id"), _text(run, "info", "artifact_uri")

    def log(self, run: str, params: Facts, metrics: Sequence[Mapping[str, Any]], tags: Facts) -> None:
        """Add parameters, metrics ({key, value, timestamp, step}) and tags. Safe to repeat."""
        batches: list[dict[str, Any]] = [
            *({"params": part} for part in _parts(_pairs(params), _MOST_PARAMS)),
            *({"metrics": part} for part in _parts(metrics, _MOST_METRICS)),
            *({"tags": part} for part in _parts(_pairs(tags), _MOST_TAGS)),
        ]
        for batch in batches:
            self._call("POST", "runs/log-batch", {"run_id": run, **batch})

    def end(self, run: str, status: str, ended_ms: int) -> None:
        """Set the run's status: FINISHED, FAILED or KILLED."""
        self._call("POST", "runs/update", {"run_id": run, "status": status, "end_time": ended_ms})

    # ------------------------------------------------------------ files

    def upload(self, artifacts: str, path: str, content: BufferedReader, size: int) -> None:
        """Put the `size` bytes of a file at `path` below the artifact address of a run."""
        parts = urllib.parse.urlsplit(artifacts)
        place = urllib.parse.quote(f"{parts.path.strip('/')}/{path}")
        headers = {"Content-Length": str(size), "Content-Type": "application/octet-stream"}
        self._send("PUT", _ARTIFACTS + place, content, headers, ())

    # ------------------------------------------------------------ models

    def register(self, model: str, source: str, run: str) -> str | None:
        """Create a version of the registered model and return its number; None if the run already has one."""
        try:
            self._call("POST", "registered-models/create", {"name": model})
        except MlflowError as error:
            if error.code != "RESOURCE_ALREADY_EXISTS":
                raise
        asked = urllib.parse.quote(f"run_id='{run}'")
        found = self._call("GET", f"model-versions/search?filter={asked}").get("model_versions")
        if any(isinstance(each, dict) and each.get("name") == model for each in found or ()):
            return None
        made = {"name": model, "source": source, "run_id": run}
        return _text(self._call("POST", "model-versions/create", made), "model_version", "version")

    # ------------------------------------------------------------ requests

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        content = None if body is None else json.dumps(body, allow_nan=False).encode()
        headers = {"Content-Type": "application/json"} if content else {}
        answer = self._send(method, _API + path, content, headers, _PAUSES)
        try:
            found = parsed(answer)
        except Malformed:
            found = None
        if not isinstance(found, dict):
            raise MlflowError("its answer does not come from MLflow.")
        return found

    def _send(
        self, method: str, path: str, body: Any, headers: Mapping[str, str], pauses: Sequence[float]
    ) -> bytes:
        """Send a request and return the answer. Transient failures are retried after each of `pauses`, in
        seconds.
        """
        headers = {**headers, **self._headers}
        for pause in (*pauses, None):
            request = urllib.request.Request(self._url + path, body, headers, method=method)
            try:
                with self._opener.open(request, timeout=_SECONDS) as answer:
                    return _limited(answer)
            except urllib.error.HTTPError as error:
                with error:
                    why, passes = _refusal(error), error.code in (429, *range(500, 600))
            except (OSError, ValueError, http.client.HTTPException) as error:
                why, passes = MlflowError(f"it did not answer: {no_redirect.reason(error)}."), True
            if pause is None or not passes:
                raise why
            time.sleep(pause)
        raise AssertionError("unreachable")


def _login(environ: Mapping[str, str]) -> dict[str, str]:
    user, word = environ.get("MLFLOW_TRACKING_USERNAME"), environ.get("MLFLOW_TRACKING_PASSWORD")
    if user and word:
        return _basic(user, word)
    token = environ.get("MLFLOW_TRACKING_TOKEN")
    return {"Authorization": f"Bearer {token}"} if token else {}


def _basic(user: str, word: str) -> dict[str, str]:
    return {"Authorization": f"Basic {base64.b64encode(f'{user}:{word}'.encode()).decode()}"}


def _limited(answer: Any) -> bytes:
    content: bytes = answer.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise MlflowError(f"it answered more than {_MOST_BYTES:,} bytes.")
    return content


def _refusal(error: urllib.error.HTTPError) -> MlflowError:
    """Return the error with MLflow's own code and message, if the answer contains them."""
    try:
        said = parsed(error.read(_MOST_BYTES))
    except (OSError, Malformed, http.client.HTTPException):
        said = None
    if isinstance(said, dict) and isinstance(said.get("error_code"), str):
        message = plain(str(said.get("message", "")))[:300].strip()
        return MlflowError(f"it refused ({said['error_code'][:60]}): {message}", said["error_code"])
    return MlflowError(f"it answered with status {error.code}.")


def _text(answer: Mapping[str, Any], *keys: str) -> str:
    found: Any = answer
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    if not isinstance(found, str) or len(found) > 2_000:
        raise MlflowError(f"its answer has no {keys[-1]}.")
    return found


def _pairs(facts: Facts) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in facts.items()]


def _parts(items: Sequence[Any], most: int) -> Iterator[Sequence[Any]]:
    return (items[first : first + most] for first in range(0, len(items), most))
