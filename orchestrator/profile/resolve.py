"""Document -> Profile: make paths absolute, find defaults, check files. Only reads the file system."""

# ruff: noqa: PTH110, PTH112, PTH113  (os.path answers False where a name is too long to exist; Path raises)

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import asdict, is_dataclass, replace
from pathlib import Path, PurePosixPath

from orchestrator.model import clouds
from orchestrator.model.acceptance import Accept
from orchestrator.profile import accept, resolved
from orchestrator.profile.command import filled, script_of, unfilled
from orchestrator.profile.document import DataSection, Document
from orchestrator.profile.rules import Breach, breaches, disk_size, overlapping, regions_of, volume_of
from orchestrator.profile.start_command import nearest_scripts, start_of_script
from orchestrator.profile.values import Accelerator, FromEnv, is_bucket

REQUIREMENTS = (
    "requirements.in",
    "requirements.txt",
    "pyproject.toml",
    "setup.py",
    "Pipfile",
    "environment.yml",
    "environment.yaml",
)
LOCKS = ("uv.lock", "pylock.toml", "requirements.lock", "requirements.txt")
LOCAL_DURATION = 4 * 3600


def resolve(
    document: Document, path: Path, environ: Mapping[str, str], places: Mapping[str, str]
) -> tuple[resolved.Profile, list[Breach]]:
    """Return the profile, and a list of the rules between fields that it breaks. Files are not checked."""
    folder = Folder(path.parent.resolve(), environ)
    code = folder.path(document.code.path)
    data = tuple(_data(entry, folder, code) for entry in document.data)
    regions = regions_of(document)
    profile = resolved.Profile(
        path=folder.base / path.name,
        name=document.name,
        cloud=document.cloud,
        region=regions[0] if len(regions) == 1 else None,
        zone=document.zone,
        image=document.image,
        resources=_resources(document),
        max_duration=document.max_duration or LOCAL_DURATION,
        idle_duration=document.idle_duration,
        max_price=document.max_price,
        stack=_stack(document, folder, code),
        code=resolved.Code(code, document.code.ignore),
        data=data,
        train=_train(document, places),
        parity=resolved.Parity(
            steps=document.parity.steps,
            on_mismatch=document.parity.on_mismatch,
            confirm=document.parity.confirm,
            budget=document.parity.budget,
            light_steps=document.parity.light_steps,
        ),
        digest=digest(document),
        places=places,
        budget=document.budget,
        wait=document.wait if document.wait is not None else document.retry.no_capacity,
        stall=document.stall,
        store=document.store,
        ledger=document.ledger or "",
        retry=resolved.Retry(document.retry.interruption, document.retry.error),
        accept=_accept(document),
        notify=_notify(document, places),
        mlflow=_mlflow(document, places),
        reservation=document.reservation,
        identity=document.identity,
        labels=document.labels,
        regions=regions if len(regions) > 1 else (),
    )
    found = [*breaches(document), *_hidden_code(data), *_overlapping(profile)]
    return profile, found


class Folder:
    """The folder to which a profile's paths are relative."""

    def __init__(self, base: Path, environ: Mapping[str, str]) -> None:
        self.base = base
        self.home = environ.get("HOME") or str(Path.home())

    def path(self, text: str) -> Path:
        """Return `text` as an absolute, normalised path, without following links."""
        if text == "~" or text.startswith("~/"):
            text = self.home + text[1:]
        return Path(os.path.normpath(self.base / text))


def digest(document: Document) -> str:
    """Return a SHA-256 of the document's content, independent of its spelling."""
    text = json.dumps(document.model_dump(), sort_keys=True, default=_plain, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: object) -> object:
    assert is_dataclass(value) and not isinstance(value, type)
    return asdict(value)


def _resources(document: Document) -> resolved.Resources:
    section, gpu = document.resources, document.resources.accelerator
    open_arch = section.instance_type or not clouds.is_rented(document.cloud)
    return resolved.Resources(
        cpus=section.cpus,
        memory=section.memory,
        accelerator=Accelerator(gpu.count, gpu.name, gpu.memory) if gpu else None,
        disk=disk_size(document),
        spot=section.spot,
        arch=section.arch or (None if open_arch else "x86_64"),
        local_ssd=section.local_ssd,
        network=section.network,
        instance_type=section.instance_type,
        volume=volume_of(document),
        nodes=section.nodes,
    )


def _stack(document: Document, folder: Folder, code: Path) -> resolved.Stack:
    section = document.stack
    return resolved.Stack(
        lock=folder.path(section.lock) if section.lock else default_lock(code),
        python=folder.path(section.python) if section.python else None,
        delivery=section.delivery,
        allow=section.allow,
    )


def _train(document: Document, places: Mapping[str, str]) -> resolved.Train:
    section = document.train
    env = {
        name: replace(value, where=places[f"train.env.{name}"]) if isinstance(value, FromEnv) else value
        for name, value in section.env.items()
    }
    return resolved.Train(
        filled(section.command, section.params),
        env,
        section.outputs,
        section.check_imports,
        document.stack.allow,
        section.on_nan,
        section.checkpoints,
        section.params,
        unfilled(section.command),
    )


def _accept(document: Document) -> Accept | None:
    section = document.accept
    if section is None:
        return None
    return Accept(
        name=section.name,
        metrics=section.metrics,
        not_worse=accept.margins(section.metrics, section.not_worse),
        parity=section.parity or (),
        model_check=section.model_check,
        resume_proof=section.resume_proof,
    )


def _notify(document: Document, places: Mapping[str, str]) -> resolved.Notify | None:
    section = document.notify
    if section is None:
        return None
    webhook = section.webhook
    if isinstance(webhook, FromEnv):
        webhook = replace(webhook, where=places["notify.webhook"])
    return resolved.Notify(section.on, webhook, section.command)


def _mlflow(document: Document, places: Mapping[str, str]) -> resolved.Mlflow:
    section = document.mlflow
    if section is None:
        return resolved.Mlflow()
    uri = section.uri
    if isinstance(uri, FromEnv):
        uri = replace(uri, where=places["mlflow.uri"])
    return resolved.Mlflow(uri, section.experiment, section.model, section.artifacts)


def default_lock(code: Path) -> Path | None:
    """Return the first lock file in `code`."""
    return next((code / name for name in LOCKS if _pins(code / name)), None)


def requirements_of(code: Path) -> Path | None:
    """Return the file in `code` that names the packages it needs; None if there is none.

    A pyproject.toml that only configures tools comes last.
    """
    found = [code / name for name in REQUIREMENTS if os.path.isfile(code / name)]
    return next((path for path in found if not _only_of_tools(path)), next(iter(found), None))


def _only_of_tools(path: Path) -> bool:
    """Whether `path` is a pyproject.toml that describes no package."""
    if path.name != "pyproject.toml":
        return False
    text = path.read_text(errors="replace")
    return re.search(r"^\s*\[\s*(project|tool\.poetry)\b", text, re.MULTILINE) is None


def lock_command(code: Path) -> str:
    """Return the command that makes a lock from the requirements in `code`."""
    folder = code.relative_to(Path.cwd()) if code.is_relative_to(Path.cwd()) else code
    return "orch lock" if folder == Path() else f"orch lock {shlex.quote(str(folder))}"


def _pins(path: Path) -> bool:
    """Whether a requirements.txt is a lock, that is, has hashes; most have none."""
    if not os.path.isfile(path):
        return False
    return path.name != "requirements.txt" or "--hash" in path.read_text(errors="replace")


def _data(entry: DataSection, folder: Folder, code: Path) -> resolved.DataTree:
    if is_bucket(entry.source):
        return _bucket(entry, code)
    source = folder.path(entry.source)
    target = entry.target or _target(source, code)
    return resolved.DataTree(source, target, entry.prepare, stage=entry.stage)


def _bucket(entry: DataSection, code: Path) -> resolved.DataTree:
    name = entry.source.rstrip("/").rpartition("/")[2]
    key = hashlib.sha256(entry.source.encode()).hexdigest()[:16]
    here = code / ".orch" / "data" / key / name
    target = entry.target or name
    return resolved.DataTree(
        here,
        target,
        None,
        entry.source,
        entry.sample,
        stream=entry.stream,
        requester_pays=entry.requester_pays,
    )


def _target(source: Path, code: Path) -> str:
    """Return the source's place in the code's folder, with links above it resolved; else its name."""
    for path in (source, Path(os.path.realpath(source.parent)) / source.name):
        for root in (code, Path(os.path.realpath(code))):
            if path.is_relative_to(root):
                return path.relative_to(root).as_posix()
    return source.name


def _hidden_code(data: tuple[resolved.DataTree, ...]) -> Iterator[Breach]:
    for index, entry in enumerate(data):
        if entry.target in (".", ""):
            text = "is the code's folder itself; name a folder of data inside it, or another one"
            yield Breach(("data", index, "source"), text)


def _overlapping(profile: resolved.Profile) -> Iterator[Breach]:
    return overlapping([data.target for data in profile.data], profile.train.outputs)


def absent_files(profile: resolved.Profile) -> Iterator[Breach]:
    """Return a problem for each file that the profile names and this computer lacks."""
    code = profile.code.path
    if not os.path.isdir(code):
        yield Breach(("code", "path"), f"there is no folder {code}")
        return
    yield from _absent_stack(profile)
    for index, data in enumerate(profile.data):
        if not data.bucket and not data.prepare and not os.path.lexists(data.source):
            text = f"there is no {data.source}; `prepare` can name a command that creates it"
            yield Breach(("data", index, "source"), text)
    script = script_of(profile.train.command)
    known = script and not unfilled((script,))  # a parameter that a sweep gives a value may be part of it
    if script and known and not os.path.exists(code / script) and not _is_of_data(script, profile):
        yield _absent_script(profile, script)


def _absent_script(profile: resolved.Profile, script: str) -> Breach:
    """Return the problem of a missing script, with the files that may be meant and how to try the first."""
    code = profile.code.path
    near = nearest_scripts(code, script)
    path = profile.path.relative_to(Path.cwd()) if profile.path.is_relative_to(Path.cwd()) else profile.path
    plan = f"orch plan {shlex.quote(str(path))}"
    if not near:
        text = f"there is no {script} in {code}, and no other Python file; name what starts your training"
        return Breach(("train", "command"), text, fix=f"{plan}    # once train.command names it")
    command = shlex.quote(f"train.command={start_of_script(code, near[0])}")
    return Breach(
        ("train", "command"),
        f"there is no {script} in {code}; the nearest Python files are {', '.join(near)}",
        fix=f"{plan} --set {command}    # then write the right command into the profile",
    )


def _is_of_data(script: str, profile: resolved.Profile) -> bool:
    """Whether the script is a file of the data, not of the code."""
    return any(PurePosixPath(script).is_relative_to(data.target) for data in profile.data)


def _absent_stack(profile: resolved.Profile) -> Iterator[Breach]:
    lock, python = profile.stack.lock, profile.stack.python
    if lock is None or not os.path.isfile(lock):
        held = f"{profile.code.path} holds none of {', '.join(LOCKS)} with hashes"
        text = f"there is no {lock}" if lock else held
        yield Breach(("stack", "lock"), f"{text}; make one: {lock_command(profile.code.path)}")
    if python is not None and not os.access(python, os.X_OK):
        yield Breach(("stack", "python"), f"there is no interpreter at {python}")
    elif python is not None and os.path.isdir(python):
        yield Breach(("stack", "python"), f"{python} is a folder; write {python}/bin/python")
