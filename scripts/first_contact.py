"""Run the whole loop once against a real cloud, on a cheap type, and check what we believe of that cloud.

Each check has the name of a row of the table in docs/clouds.md. Printed are `ok`, `WRONG` with what the cloud
says, and `?` where it could not be asked. Whatever happens, the machine is ended, and what `orch setup` made
here is removed; after a SIGKILL or a power cut the next call does that first.
"""

from __future__ import annotations

import argparse
import fcntl
import importlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from orchestrator.errors import OrchError
from orchestrator.model import clouds
from orchestrator.providers.local.store import state_home
from scripts.cloud_beliefs import (
    AFTER,
    BEFORE,
    WITH_MACHINE,
    Refused,
    World,
    aws_instance,
    gcp_instance,
    judge,
)

LIMIT_USD = 0.10
MACHINES = {"aws": ("us-east-1", "t3.small"), "gcp": ("us-central1", "e2-standard-2")}
PROFILE = """\
version: 1
name: first-contact
cloud: {cloud}
region: {region}
resources: {{instance_type: {type}, disk: 12 GiB}}
max_duration: 30m
max_price: 0.15
budget: {budget}
labels: {{purpose: first-contact}}
train: {{command: python train.py, outputs: [out]}}
"""
SCRIPT = """\
import pathlib
import six
pathlib.Path("out").mkdir()
pathlib.Path("out/note").write_text(six.__version__)
"""
LOCK = (
    "six==1.17.0 \\\n"
    "    --hash=sha256:4721f391ed90541fddacab5acf947aa0d3dc7d27b2e1e8eda2be8970586c3274 \\\n"
    "    --hash=sha256:ff70335d468e7eb6ec65b95b99d3a2836546063f63acc5171de367e834932a81\n"
)


UNDO = "undo-setup.json"
"""In the folder of a contact: the region in which nothing was set up before it."""


def clients_of(cloud: str, region: str) -> Any:
    if cloud == "aws":
        from orchestrator.providers.aws.clients import Clients
        from orchestrator.providers.aws.settings import read

        return Clients(read(os.environ), lambda: (region,))
    from orchestrator.providers.gcp.calls import Calls
    from orchestrator.providers.gcp.clients import Clients as Google

    return Calls(Google(dict(os.environ)))


def contact(world: World, source: Sequence[str]) -> list[str]:
    """The whole loop. What it made is gone when it returns or raises."""
    try:
        _note_setup(world)
        world.json("setup", world.cloud, "--yes", "--region", world.region, *source)
        wrong = judge(world, BEFORE[world.cloud])
        world.held = world.json("up", "p.yaml", "--yes")
        world.seen = (aws_instance if world.cloud == "aws" else gcp_instance)(world)
        wrong += judge(world, WITH_MACHINE[world.cloud])
        world.json("train", "--run-id", "first")
        report = world.json("down")
        print(f"It cost ${report['cost']:.4f}.", flush=True)
        return wrong + judge(world, AFTER[world.cloud])
    finally:
        clean_up(world)


def _note_setup(world: World) -> None:
    """Note before the setup, for whoever cleans up, that nothing of it was there."""
    known = importlib.import_module(clouds.traits(world.cloud).setup)
    if not known.made(world.region, os.environ)[1]:
        with (world.folder / UNDO).open("w") as file:
            json.dump(world.region, file)
            file.flush()
            os.fsync(file.fileno())


def clean_up(world: World) -> None:
    """End the machine, undo the setup, and forget the contact; nothing interrupts this.

    Raises SystemExit(8) where one of them is not proven: the next call tries again.
    """
    ignore()
    down = world.orch("down", "--discard", apart=True)
    print(down.stdout, end="", flush=True)
    failed = "orch down" if down.returncode else ""
    if not failed and (world.folder / UNDO).exists():
        undo = (
            "setup",
            world.cloud,
            "--undo",
            "--yes",
            "--region",
            json.loads((world.folder / UNDO).read_text()),
        )
        failed = f"orch {' '.join(undo)}" if world.orch(*undo, apart=True).returncode else ""
    if failed:
        print(f"CLEAN-UP IS NOT PROVEN. Look in the console, and: cd {world.folder} && {failed}", flush=True)
        raise SystemExit(8)
    for path in world.folder.iterdir():
        if path.name != LOCKED:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


LOCKED = "lock"
"""Held in the folder of a contact as long as its process lives."""


def opened(cloud: str) -> tuple[Path, int]:
    """The folder of this contact, in which an earlier one that was killed left its note and its lease.

    Raises SystemExit while another one runs. The lock ends with this process.
    """
    folder = state_home(os.environ) / "first-contact" / cloud
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / LOCKED, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise SystemExit(f"Another first contact with {cloud} is at work: {folder}") from None
    return folder, lock


def interrupted(number: int, frame: FrameType | None) -> None:
    del number, frame
    ignore()  # a second one would disturb the clean-up
    raise KeyboardInterrupt


INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def ignore() -> None:
    for number in INTERRUPTS:
        signal.signal(number, signal.SIG_IGN)


def listen() -> None:
    for number in INTERRUPTS:
        signal.signal(number, interrupted)


def prepare(world: World) -> None:
    """Write the project; an earlier contact that was killed is cleaned up before."""
    if (world.folder / "p.yaml").exists():
        print("An earlier first contact was killed; what it left is removed first.", flush=True)
        clean_up(world)
        listen()
    (world.folder / "train.py").write_text(SCRIPT)
    (world.folder / "requirements.lock").write_text(LOCK)
    text = PROFILE.format(cloud=world.cloud, region=world.region, type=world.type, budget=LIMIT_USD)
    (world.folder / "p.yaml").write_text(text)


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/first-contact", description=__doc__)
    parser.add_argument("cloud", choices=sorted(MACHINES))
    parser.add_argument("--region", help="default: us-east-1, us-central1")
    parser.add_argument("--from", dest="source", help="where ssh may come from; default: your public address")
    arguments = parser.parse_args()
    region, kind = MACHINES[arguments.cloud]
    region = arguments.region or region
    folder, _ = opened(arguments.cloud)
    listen()
    try:
        world = World(arguments.cloud, region, kind, folder, clients_of(arguments.cloud, region))
        prepare(world)
        wrong = contact(world, ["--from", arguments.source] if arguments.source else [])
    except KeyboardInterrupt:
        print("Interrupted; nothing is left.")
        return 130
    except (Refused, OrchError) as refused:
        print(f"{refused}\nIt went no further; nothing is left.")
        return refused.exit_code
    print(f"Wrong beliefs: {', '.join(wrong) or 'none'} (docs/clouds.md says what they are)")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
