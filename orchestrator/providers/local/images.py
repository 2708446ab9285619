"""Images of local machines: a copy of one machine's orch folder, as the lower layer of that folder on other
machines. All other files of a local machine are those of this computer, so an image contains nothing else. An
image is a folder `images/NAME` beside the machines: `layer`, and `image.json`, which is renamed into place
last.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import ImageState, Labels, MachineImage
from orchestrator.providers.image_names import require_image_name, taken
from orchestrator.providers.local.removal import erase
from orchestrator.providers.local.store import Folder, Guest, Record, folders, read_json, write_json
from orchestrator.providers.local.tools import tool

_FACTS = "image.json"


def image_layer(folder: Folder, name: str) -> Path:
    """Return the lower layer of orch's folder for the machine in `folder`."""
    return _home(folder.path.parent) / name / "layer"


def known(machines: Path, name: str, labels: Labels) -> MachineImage | None:
    """Return the image; None if there is none. Raise CONFLICT if it has other labels, INVALID for a bad
    name.
    """
    require_image_name(name)
    found = _image(_home(machines) / name)
    if found is not None and found.labels != dict(labels):
        raise taken(found)
    return found


def store(machines: Path, name: str, labels: Labels, record: Record, guest: Guest) -> MachineImage:
    """Copy orch's folder of a machine with frozen processes. If this is killed, no image exists."""
    if record.tier == "process":
        raise ProviderError(
            Fault.INVALID,
            "A machine that is only a process has no file system of its own, and its environment works only "
            "in its own folder, so no image can be created from it.",
            code="LocalTier",
            next_command="orch doctor    # shows what an isolated machine needs",
        )
    with _locked(machines) as home:
        part = home / f".new-{secrets.token_hex(6)}"
        layer = part / "layer"
        part.mkdir(mode=0o700)
        source = Path(f"/proc/{guest.pid}/root{record.base}")
        layer.mkdir(mode=0o755)
        if source.exists():  # else no client has connected to the machine yet
            copy = [tool("cp"), "-a", "--reflink=auto", f"{source}/.", str(layer)]
            subprocess.run(copy, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        write_json(
            part / _FACTS,
            {
                "labels": dict(labels),
                "created_at": datetime.now(UTC).isoformat(),
                "size": _bytes_below(layer),
                "base": record.base,
                "tier": record.tier,
            },
        )
        os.sync()
        part.rename(home / name)
    found = _image(home / name)
    assert found is not None
    return found


def listed(machines: Path, labels: Labels) -> Sequence[MachineImage]:
    home = _home(machines)
    _remove_unfinished(home)
    paths = sorted(home.glob("[!.]*")) if home.exists() else []
    images = (image for path in paths if (image := _image(path)))
    return [image for image in images if labels.items() <= image.labels.items()]


def require(machines: Path, name: str | None, tier: str) -> None:
    """Raise INVALID unless there is an image with this name that a machine of this tier can use, if one is
    named.
    """
    if name is None:
        return
    require_image_name(name)
    found = _image(_home(machines) / name)
    if found is None or found.detail["tier"] != tier:
        what = (
            f"for the tier {found.detail['tier']}, but this computer has {tier}"
            if found
            else "not on this computer"
        )
        raise ProviderError(
            Fault.INVALID,
            f"The image {name} is {what}.",
            code="NoSuchImage",
            next_command="orch image list local",
        )


def delete(machines: Path, name: str) -> None:
    """Delete the image. Raise BUSY while machines use it."""
    require_image_name(name)
    if not _home(machines).exists():
        return
    with _locked(machines) as home:
        records = (folder.record() for folder in folders(machines))
        users = [record.name for record in records if record and record.image == name]
        if users:
            raise ProviderError(
                Fault.BUSY,
                f"The image {name} is in use by {', '.join(users)}.",
                code="ImageInUse",
                next_command=f"orch down    # then: orch image delete {name}",
            )
        doomed = home / f".gone-{secrets.token_hex(6)}"
        if (home / name).exists():
            (home / name).rename(doomed)
            erase(doomed)


def _home(machines: Path) -> Path:
    return machines.parent / "images"


def _image(path: Path) -> MachineImage | None:
    facts: dict[str, Any] = read_json(path / _FACTS)
    if not facts:
        return None
    return MachineImage(
        provider="local",
        name=path.name,
        reference=path.name,
        state=ImageState.AVAILABLE,
        labels=facts["labels"],
        created_at=datetime.fromisoformat(facts["created_at"]),
        size=facts["size"],
        detail={"tier": facts["tier"], "base": facts["base"]},
    )


def _bytes_below(folder: Path) -> int:
    """Return the bytes of the files; a file with several names counts once."""
    seen: dict[tuple[int, int], int] = {}
    for root, _, names in os.walk(folder):
        for name in names:
            status = Path(root, name).lstat()
            seen[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(seen.values())


@contextmanager
def _locked(machines: Path) -> Iterator[Path]:
    """Hold the lock for changing images, and remove remains of interrupted changes."""
    home = _home(machines)
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    with open(home / ".lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        _erase_unfinished(home)
        yield home


def _remove_unfinished(home: Path) -> None:
    """Remove what a call that was killed left, unless another one is at work."""
    if not _unfinished(home):
        return
    with open(home / ".lock", "w") as file, suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _erase_unfinished(home)


def _erase_unfinished(home: Path) -> None:
    for left in _unfinished(home):
        erase(left)


def _unfinished(home: Path) -> Sequence[Path]:
    return [*home.glob(".new-*"), *home.glob(".gone-*")]
