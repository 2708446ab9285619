"""The server process of the test cloud: moto, corrected, behind the door."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.clouds.aws.settings import DEFAULT_REGION, SECRET_KEY, SETTINGS

_MOTO = {
    "MOTO_ENABLE_KEYPAIR_VALIDATION": "true",
    "MOTO_ENABLE_AMI_VALIDATION": "true",
    "MOTO_EC2_ENABLE_INSTANCE_TYPE_VALIDATION": "true",
    "MOTO_IAM_LOAD_MANAGED_POLICIES": "true",
}


def environment(url: str) -> dict[str, str]:
    """What a client must have in its environment to meet this cloud and no other."""
    return {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": SETTINGS.access_key,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_DEFAULT_REGION": DEFAULT_REGION,
        "AWS_REGION": DEFAULT_REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }


def load() -> None:
    """Import moto, which takes seconds, and put the corrections into it; it may be called again."""
    os.environ.update(_MOTO)
    import moto.moto_server.werkzeug_app  # noqa: F401

    from tests.clouds.aws import alarms, corrections, door, guests  # noqa: F401

    corrections.apply()


def serve(
    port: int, state: Path | None, settings: Mapping[str, Any], ready: Any, *, until_stdin_ends: bool
) -> None:
    """Serve on 127.0.0.1 until SIGTERM, SIGINT or the end of stdin; then end all machines.

    `ready` is called with the environment once requests are answered. `state` is where the machines
    live; a temporary folder without it.
    """
    SETTINGS.change(settings)
    load()
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    from moto.moto_api._internal import mock_random
    from moto.moto_server.werkzeug_app import (
        DomainDispatcherApplication,
        MotoRequestHandler,
        create_backend_app,
    )
    from werkzeug.serving import make_server

    from tests.clouds.aws import alarms, peers
    from tests.clouds.aws.door import Door
    from tests.clouds.aws.guests import Guests
    from tests.clouds.aws.life import LIVES

    mock_random.seed()  # a fork has the numbers of whoever else was forked
    folder = Path(state) if state else Path(tempfile.mkdtemp(prefix="orch-aws-"))
    guests = Guests(folder) if SETTINGS.machines else None
    if guests is not None:
        guests.end_all()  # of a server that was killed
    LIVES.guests = guests
    door = Door(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", port, door, threaded=True, request_handler=MotoRequestHandler)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    if until_stdin_ends:
        threading.Thread(target=_await_end_of_stdin, args=(stopping,), daemon=True).start()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    threading.Thread(target=alarms.watch, daemon=True).start()
    try:
        _warm()
        ready(environment(f"http://127.0.0.1:{server.server_port}"))
        while not stopping.wait(3600):
            pass
    finally:
        server.shutdown()
        peers.disconnect()
        for life in LIVES.all():
            life.ending = life.ending or "server"
            life.booted.wait(30)
        if guests is not None:
            guests.end_all()
        if state is None:
            shutil.rmtree(folder, ignore_errors=True)


def _await_end_of_stdin(stopping: threading.Event) -> None:
    while sys.stdin.buffer.read(65536):
        pass
    stopping.set()


def _warm() -> None:
    """The first request to a region builds it: have that done before anybody waits for it."""
    from moto.ec2.models import ec2_backends

    from tests.clouds.aws.settings import ACCOUNT

    ec2_backends[ACCOUNT][DEFAULT_REGION].describe_images(filters={})
