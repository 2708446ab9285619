"""Which run's model is current: its history on this computer and in the store, and the link to it.

The history is written before the link is changed. If a call is killed between the two, the next call that
reads the history corrects the link. If there is a store, its copy of the history is authoritative, and every
change of it is a conditional write.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.errors import StorageError, UsageError
from orchestrator.hosts.atomic import atomic_write
from orchestrator.model import Progress, store_keys
from orchestrator.model.acceptance import MODELS, MOST_PROMOTIONS, How, ModelHistory, Promotion
from orchestrator.model.answers import LONG, Malformed, decoded
from orchestrator.model.files import regular_bytes
from orchestrator.session.project import Project
from orchestrator.session.work_locks import promoting
from orchestrator.storage import Store, open_store


@dataclass(frozen=True)
class Version:
    """A history as it was read. `stored`: its version in the store; None if it is not in the store."""

    history: ModelHistory
    stored: str | None = None


@dataclass(frozen=True)
class Registry:
    """One model of a project. Every method may be called again. Raises StorageError, LocalError,
    UsageError.
    """

    project: Project
    name: str
    store_url: str = ""

    @contextmanager
    def turn(self, verb: str, tell: Progress) -> Iterator[None]:
        """Hold the lock that lets only one call at a time change this model."""
        with promoting(self.project, self.name, verb, tell):
            yield

    @property
    def link(self) -> Path:
        return self.project.root / MODELS / self.name

    @property
    def _file(self) -> Path:
        return self.project.state / MODELS / f"{self.name}.json"

    def read(self) -> Version:
        """Return the current history: the store's copy if there is one, else the local one."""
        store = self._store
        if store is None:
            return Version(self.read_here())
        head = store.head(store_keys.model(self.name))
        if head is None:
            return Version(replace(self.read_here(), store=self.store_url))
        content = store.get(head.key, head.version)
        return Version(_decoded(content, self.name, f"{store.url}/{head.key}"), head.version)

    def read_here(self) -> ModelHistory:
        """Return the history on this computer; an empty one if there is none."""
        try:
            content = regular_bytes(self._file, LONG)
        except FileNotFoundError:
            return ModelHistory(self.name, store=self.store_url)
        except Malformed as error:
            raise _damaged(self.name, str(self._file), error) from None
        return _decoded(content, self.name, str(self._file))

    def promote(self, seen: Version, run_id: str, at: float, how: How, metrics: dict[str, float]) -> None:
        """Append a promotion to the history that was read. Raise Changed if another client changed it
        meanwhile.
        """
        made = Promotion(run_id, at, how, metrics, secrets.token_hex(8))
        promotions = (*seen.history.promotions, made)[-MOST_PROMOTIONS:]
        self._write(replace(seen.history, promotions=promotions, store=self.store_url), seen.stored)

    def settle(self, history: ModelHistory) -> None:
        """Save the history on this computer, and point the link at the current run if its folder is here."""
        self._keep(history)
        current = history.current
        if current is None or not self.project.run(current.run_id).is_dir():
            return
        self.link.parent.mkdir(exist_ok=True)
        target = os.path.relpath(self.project.run(current.run_id), self.link.parent)
        if self.link.is_symlink() and os.readlink(self.link) == target:  # noqa: PTH115 (the text, not a path)
            return
        if os.path.lexists(self.link) and not self.link.is_symlink():
            raise UsageError(
                f"{self.link} is not a link that orch made, so it was not changed.",
                exists=f"The accepted model is in {self.project.run(current.run_id)}.",
                next_command="move it away, or name another model: accept.name in the profile",
            )
        _ignore(self.link.parent)
        part = self.link.with_name(f".{self.name}.{os.getpid()}.{secrets.token_hex(4)}.part")
        try:
            part.symlink_to(target)
            part.replace(self.link)
        finally:
            part.unlink(missing_ok=True)

    @property
    def _store(self) -> Store | None:
        return open_store(self.store_url) if self.store_url else None

    def _write(self, history: ModelHistory, version: str | None) -> None:
        if (store := self._store) is not None:
            store.put_if(store_keys.model(self.name), _encoded(history), version)
        self._keep(history)

    def _keep(self, history: ModelHistory) -> None:
        content = _encoded(history)
        with suppress(FileNotFoundError, Malformed):
            if regular_bytes(self._file, LONG) == content:
                return
        self.project.ignore_state()
        atomic_write(self._file, content)


def known_models(project: Project) -> list[str]:
    """Return the names of the models that this computer knows."""
    return sorted(path.stem for path in (project.state / MODELS).glob("*.json"))


def registry_of(project: Project, name: str) -> Registry:
    """Return the registry of a model that this computer knows, with the store that its history names."""
    return Registry(project, name, Registry(project, name).read_here().store)


def read_or_copy(registry: Registry) -> tuple[ModelHistory, str]:
    """Return the history and "". If the store cannot be read, return the local copy and the reason."""
    try:
        return registry.read().history, ""
    except StorageError as error:
        return registry.read_here(), error.message


def _encoded(history: ModelHistory) -> bytes:
    return json.dumps({"schema": "orch.model/1", **history.as_json()}, indent=1).encode()


def _decoded(content: bytes, name: str, place: str) -> ModelHistory:
    try:
        raw = json.loads(content)
        if isinstance(raw, dict):
            raw.pop("schema", None)
        history = decoded(ModelHistory, json.dumps(raw).encode(), most=LONG)
    except (ValueError, RecursionError) as error:  # Malformed is a ValueError
        raise _damaged(name, place, error) from None
    return replace(history, name=name)


def _damaged(name: str, place: str, error: Exception) -> UsageError:
    return UsageError(
        f"The history of the model {name} cannot be read: {place}: {error}",
        exists=f"{MODELS}/{name} was not changed.",
        next_command=f"mv {place} {place}.damaged    # the next accepted run begins a new history",
    )


def _ignore(folder: Path) -> None:
    """Have git ignore the links, if the folder holds nothing else."""
    if all(entry.is_symlink() or entry.name == ".gitignore" for entry in folder.iterdir()):
        with suppress(OSError):
            atomic_write(folder / ".gitignore", b"*\n")
