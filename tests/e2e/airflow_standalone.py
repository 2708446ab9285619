"""A real Airflow with SQLite: in an environment of its own, with orch installed as its extra asks."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.stack.uv import uv_binary
from tests.conftest import ROOT

VERSION = "3.3.2"


def install(folder: Path) -> Path:
    """An environment with Airflow and orch[airflow], from a copy of this project; its folder of programs."""
    source = folder / "source"
    source.mkdir(parents=True)
    shutil.copytree(
        ROOT / "orchestrator", source / "orchestrator", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    uv, venv = str(uv_binary()), folder / "venv"
    subprocess.run([uv, "venv", "-q", str(venv)], check=True)
    wanted = (f"apache-airflow=={VERSION}", f"orch-train[airflow] @ file://{source}")
    subprocess.run([uv, "pip", "install", "-q", "-p", str(venv), *wanted], check=True, timeout=600)
    return venv / "bin"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@dataclass(frozen=True)
class Airflow:
    """`programs` of the environment; `home` is AIRFLOW_HOME. `state`: where orch keeps local machines."""

    programs: Path
    home: Path
    state: Path
    port: int

    @property
    def dags(self) -> Path:
        return self.home / "dags"

    def env(self) -> dict[str, str]:
        own = {
            "CORE__DAGS_FOLDER": str(self.dags),
            "CORE__LOAD_EXAMPLES": "False",
            "CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "CORE__PARALLELISM": "1",
            "CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
            "CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{self.port}/execution/",
            "API__HOST": "127.0.0.1",
            "API__PORT": str(self.port),
            "API__WORKERS": "1",
            "API_AUTH__JWT_SECRET": "long enough for a signature of 512 bits " * 2,
            "LOGGING__WORKER_LOG_SERVER_PORT": str(free_port()),
            "LOGGING__TRIGGER_LOG_SERVER_PORT": str(free_port()),
            "WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
            "SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "1",
            "DAG_PROCESSOR__REFRESH_INTERVAL": "2",
            "DAG_PROCESSOR__BUNDLE_REFRESH_CHECK_INTERVAL": "1",
            "USAGE_DATA_COLLECTION__ENABLED": "False",
        }
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")},
            **{f"AIRFLOW__{name}": value for name, value in own.items()},
            "AIRFLOW_HOME": str(self.home),
            "ORCH_STATE_HOME": str(self.state),
            "PATH": f"{self.programs}:{os.environ['PATH']}",
            "NO_COLOR": "1",
        }

    def airflow(self, *words: str, timeout: float = 300) -> str:
        """Run a command of Airflow to its end; what it printed."""
        done = subprocess.run(
            ["airflow", *words], env=self.env(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=timeout, check=False,
        )  # fmt: skip
        return done.stdout

    # ------------------------------------------------------------ what its database says

    def _rows(self, query: str, *values: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(f"file:{self.home}/airflow.db?mode=ro", uri=True, timeout=30)) as base:
            return base.execute(query, values).fetchall()

    def task(self, dag: str) -> tuple[str | None, int]:
        """State and number of the try of the DAG's newest task instance."""
        query = "select state, try_number from task_instance where dag_id = ? order by rowid desc limit 1"
        rows = self._rows(query, dag)
        return rows[0] if rows else (None, 0)

    def result(self, dag: str) -> dict[str, Any]:
        """What the DAG's task returned."""
        query = "select value from xcom where dag_id = ? and key = 'return_value'"
        ((value,),) = self._rows(query, dag)
        return dict(json.loads(value))

    def triggers(self) -> int:
        """How many triggers a triggerer has taken."""
        return len(self._rows("select id from trigger where triggerer_id is not null"))

    # ------------------------------------------------------------ while it runs

    @contextmanager
    def running(self) -> Iterator[None]:
        """Scheduler, triggerer, DAG processor and API server, until the block ends."""
        with open(self.home / "standalone.log", "wb") as log:
            process = subprocess.Popen(
                ["airflow", "standalone"], env=self.env(), stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        try:
            yield
        finally:
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """One request to its API. Raises OSError while it does not answer."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/auth/token", timeout=10) as answer:
            token = json.load(answer)["access_token"]
        asked = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/api/v2/{path}",
            json.dumps(body).encode() if body is not None else None,
            {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
            method=method,
        )
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return dict(json.load(answer))

    def start(self, dag: str) -> str:
        """Start the DAG once it is known; the id of its run."""
        end = time.monotonic() + 120
        while True:
            try:
                return str(self.call("POST", f"dags/{dag}/dagRuns", {"logical_date": None})["dag_run_id"])
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.5)

    def mark_failed(self, dag: str, run: str) -> None:
        """Mark the task `train` as failed, as a person does in the web page: it is killed."""
        self.call("PATCH", f"dags/{dag}/dagRuns/{run}/taskInstances/train", {"new_state": "failed"})
