"""What orch uses of MLflow's REST API, as the server of MLflow 3 answers it; strict about its limits."""

from __future__ import annotations

import json
import threading
import urllib.parse
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_API = "/api/2.0/mlflow/"
_ARTIFACTS = "/api/2.0/mlflow-artifacts/artifacts/"


class Refused(Exception):
    def __init__(self, code: str, status: int = 400) -> None:
        super().__init__(code)
        self.code, self.status = code, status


class MlflowDouble(ThreadingHTTPServer):
    """`before` is asked for each request; what it returns is sent instead of an answer."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.experiments: dict[str, str] = {}
        self.runs: dict[str, dict[str, Any]] = {}
        self.files: dict[str, bytes] = {}
        self.models: dict[str, list[dict[str, str]]] = {}
        self.logins: list[str | None] = []
        self.before: Callable[[str, str], bytes | int | None] = lambda _method, _path: None
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def latest(self, run: str, key: str) -> float:
        """What MLflow shows for a metric: of the last step the last, and of those the largest."""
        found = [each for each in self.runs[run]["metrics"] if each["key"] == key]
        return float(max(found, key=lambda each: (each["step"], each["timestamp"], each["value"]))["value"])

    def answer(self, verb: str, query: dict[str, str], body: dict[str, Any]) -> dict[str, Any]:
        return dict(getattr(self, verb.replace("/", "_").replace("-", "_"))(**query, **body))

    def experiments_get_by_name(self, experiment_name: str) -> dict[str, Any]:
        if experiment_name not in self.experiments:
            raise Refused("RESOURCE_DOES_NOT_EXIST", 404)
        return {"experiment": {"experiment_id": self.experiments[experiment_name], "name": experiment_name}}

    def experiments_create(self, name: str) -> dict[str, Any]:
        if name in self.experiments:
            raise Refused("RESOURCE_ALREADY_EXISTS")
        self.experiments[name] = str(len(self.experiments) + 1)
        return {"experiment_id": self.experiments[name]}

    def runs_search(self, experiment_ids: list[str], filter: str, max_results: int) -> dict[str, Any]:
        key, _, value = filter.removeprefix("tags.").partition(" = ")
        wanted = (key.strip("`"), value.strip("'"))
        found = [run for run in self.runs.values() if wanted in run["tags"].items()]
        shown = [{"info": run["info"]} for run in found if run["info"]["experiment_id"] in experiment_ids]
        return {"runs": shown[:max_results]} if shown else {}

    def runs_create(
        self, experiment_id: str, run_name: str, start_time: int, tags: list[dict[str, str]]
    ) -> dict[str, Any]:
        identity = f"{len(self.runs):032x}"
        info = {
            "start_time": start_time,
            "run_id": identity,
            "experiment_id": experiment_id,
            "run_name": run_name,
            "status": "RUNNING",
            "artifact_uri": f"mlflow-artifacts:/{experiment_id}/{identity}/artifacts",
        }
        told = {each["key"]: each["value"] for each in tags}
        self.runs[identity] = {"info": info, "params": {}, "metrics": [], "tags": told}
        return {"run": {"info": info}}

    def runs_log_batch(self, run_id: str, **parts: list[dict[str, Any]]) -> dict[str, Any]:
        run = self.runs[run_id]
        if sum(len(part) for part in parts.values()) > 1000 or len(parts.get("params", ())) > 100:
            raise Refused("INVALID_PARAMETER_VALUE")
        for each in parts.get("params", ()):
            if run["params"].setdefault(each["key"], each["value"]) != each["value"]:
                raise Refused("INVALID_PARAMETER_VALUE")
        run["metrics"] += [each for each in parts.get("metrics", ()) if each not in run["metrics"]]
        run["tags"].update({each["key"]: each["value"] for each in parts.get("tags", ())})
        return {}

    def runs_update(self, run_id: str, status: str, end_time: int) -> dict[str, Any]:
        self.runs[run_id]["info"].update(status=status, end_time=end_time)
        return {"run_info": self.runs[run_id]["info"]}

    def registered_models_create(self, name: str) -> dict[str, Any]:
        if name in self.models:
            raise Refused("RESOURCE_ALREADY_EXISTS")
        self.models[name] = []
        return {"registered_model": {"name": name}}

    def model_versions_search(self, filter: str) -> dict[str, Any]:
        run = filter.removeprefix("run_id='").removesuffix("'")
        every = [each for versions in self.models.values() for each in versions]
        return {"model_versions": [each for each in every if each["run_id"] == run]}

    def model_versions_create(self, name: str, source: str, run_id: str) -> dict[str, Any]:
        version = {
            "name": name,
            "source": source,
            "run_id": run_id,
            "version": str(len(self.models[name]) + 1),
        }
        self.models[name].append(version)
        return {"model_version": version}


class _Handler(BaseHTTPRequestHandler):
    server: MlflowDouble

    def _asked(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.logins.append(self.headers.get("Authorization"))
        instead = self.server.before(self.command, self.path)
        if isinstance(instead, int):
            return self._say(instead, b"", {"Location": "http://127.0.0.1:1/"} if instead == 302 else {})
        if instead is not None:
            return self._say(200, instead, {"Content-Type": "text/html"})
        if self.path.startswith(_ARTIFACTS):
            self.server.files[urllib.parse.unquote(self.path.removeprefix(_ARTIFACTS))] = body
            return self._say(200, b"{}", {})
        verb, _, query = self.path.removeprefix(_API).partition("?")
        try:
            said = self.server.answer(verb, dict(urllib.parse.parse_qsl(query)), json.loads(body or b"{}"))
        except Refused as refused:
            words = {"error_code": refused.code, "message": "no"}
            return self._say(refused.status, json.dumps(words).encode(), {})
        return self._say(200, json.dumps(said).encode(), {})

    def _say(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = _asked

    def log_message(self, *_: object) -> None:
        pass
