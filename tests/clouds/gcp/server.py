"""The running emulator: server, world, and the environment that leads clients to it."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

from tests.clouds.gcp.app import App
from tests.clouds.gcp.lifecycle import Lifecycle
from tests.clouds.gcp.world import Settings, World


class _Handler(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log(self, *_: Any) -> None:
        pass

    def handle(self) -> None:
        with suppress(OSError):  # a connection that was reset on purpose
            super().handle()

    def finish(self) -> None:
        with suppress(OSError):
            super().finish()


class Server:
    """Listens on 127.0.0.1:`port` (0: any) from the start; serve() returns after stop()."""

    def __init__(self, port: int, state: Path, settings: Settings) -> None:
        self.settings = settings
        self._world = World(settings, state)
        self._life = Lifecycle(self._world)
        app = App(self._world, self._life)
        self._http: BaseWSGIServer = make_server(
            "127.0.0.1", port, app, threaded=True, request_handler=_Handler
        )
        self.url = f"http://127.0.0.1:{self._http.server_port}"

    def serve(self) -> None:
        self._http.serve_forever(0.1)

    def stop(self) -> None:
        """End every machine, then stop listening."""
        self._life.end_all()
        threading.Thread(target=self._http.shutdown, daemon=True).start()

    def environment(self) -> dict[str, str]:
        """What to export so that Google's clients and tools talk to this server, without credentials."""
        return {
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE": f"{self.url}/compute/v1/",
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDRESOURCEMANAGER": f"{self.url}/",
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDBILLING": f"{self.url}/",
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_SERVICEUSAGE": f"{self.url}/",
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_OSLOGIN": f"{self.url}/",
            "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
            "CLOUDSDK_CORE_PROJECT": self.settings.project,
            "GOOGLE_CLOUD_PROJECT": self.settings.project,
            "STORAGE_EMULATOR_HOST": self.url,
            "NO_GCE_CHECK": "true",
        }
