"""A project folder: its leases, keys and runs, and the choice of the lease for a command."""

from __future__ import annotations

import os
import re
import secrets
import shlex
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import LocalError, StorageError, UsageError
from orchestrator.hosts.atomic import atomic_write, remove_abandoned
from orchestrator.hosts.disk import FULL
from orchestrator.session import team_url

if TYPE_CHECKING:
    from orchestrator.ledger import Contents, Lease, Ledger
    from orchestrator.session.team import Team

RUN_RECORD, SWEEP_RECORD = "run.json", "sweep.json"
PROFILE = Path("orch.yaml")
"""The profile that `orch init` writes, and the default of commands."""
_RECORDS = (RUN_RECORD, SWEEP_RECORD)
"""Files of which every run's folder has at least one."""


@dataclass(frozen=True)
class Project:
    """`root` contains `.orch/` (state) and `runs/` (results)."""

    root: Path

    @classmethod
    def at(cls, start: Path | str | None = None) -> Project:
        """The nearest folder upwards with leases; otherwise `start` (default: the current folder)."""
        here = Path(start or Path.cwd()).resolve()
        for folder in (here, *here.parents):
            if any((folder / ".orch").glob("*/ledger.jsonl")) or team_url.remembered(folder / ".orch"):
                return cls(folder)
        return cls(here)

    @property
    def up_command(self) -> str:
        """The command that leases a machine, with the orch.yaml of this folder if there is one."""
        near = self._own_profile()
        return f"orch up {shlex.quote(os.path.relpath(near)) if near else 'PROFILE.yaml'}"

    def default_profile(self) -> Path:
        """Return the default profile: orch.yaml of the current folder, or of the project.

        Raises UsageError if there is none, with the names of other profiles nearby.
        """
        if near := self._own_profile():
            return Path(os.path.relpath(near))
        from orchestrator.profile.nearby import profiles_near

        others = [os.path.relpath(each) for each in profiles_near(PROFILE)]
        if others:
            named = ", ".join(others[:5]) + (" and others" if len(others) > 5 else "")
            raise UsageError(f"There is no {PROFILE} here. Name a profile; there is {named}.")
        raise UsageError(f"There is no {PROFILE} here.", next_command="orch init")

    def _own_profile(self) -> Path | None:
        return next((each for each in (PROFILE, self.root / PROFILE) if each.is_file()), None)

    @property
    def first_run_command(self) -> str:
        """Return the command to suggest for a first run: `orch train` if a machine is leased, else the one
        that leases it.
        """
        return "orch train" if self.open_leases() else self.up_command

    @property
    def state(self) -> Path:
        return self.root / ".orch"

    @property
    def here(self) -> Path:
        """The base folder for runs on this computer, with the same layout as on a machine."""
        return self.state / "here"

    @property
    def cache(self) -> Path:
        return self.state / "cache"

    def run(self, run_id: str) -> Path:
        return self.root / "runs" / run_id

    @property
    def team(self) -> Team | None:
        """The team that shares this project's leases; None if they are kept on this computer only."""
        url = team_url.url_of(self.state)
        if not url:
            return None
        from orchestrator.session.team import Team

        return Team(url, self.state)

    def share(self, url: str) -> None:
        """Keep the ledgers of new leases in the store at this URL, as the profile says."""
        if url and not os.environ.get(team_url.ENVIRONMENT):
            self.ignore_state()
            team_url.remember(self.state, url)

    def ledger(self, lease: str) -> Ledger:
        from orchestrator.ledger import Ledger
        from orchestrator.session import team

        folder = self.state / lease
        return team.ledger_of(folder) or Ledger(folder / "ledger.jsonl")

    def new_ledger(self, name: str) -> Ledger:
        """The ledger of a new lease for the profile `name`.

        Raises StorageError if the team's store refuses.
        """
        shared = self.team
        lease = shared.new_lease(name) if shared else new_lease_id(name)
        if shared:
            shared.join(lease)
        return self.ledger(lease)

    def identity(self, lease: str) -> Path:
        """The private key for this lease's machine, used for nothing else."""
        return self.state / lease / "identity"

    def known_hosts(self, lease: str) -> Path:
        return self.state / lease / "known_hosts"

    def ledgers(self) -> list[Ledger]:
        with suppress(StorageError, LocalError):  # each ledger reports the lines that it could not read
            if shared := self.team:
                shared.refresh()
        return [self.ledger(path.parent.name) for path in sorted(self.state.glob("*/ledger.jsonl"))]

    def leases(self) -> list[Lease]:
        """Every lease of this project, oldest first, including those with a damaged ledger.

        A lease that could not be opened because the disk was full is left out.
        """
        read = ((ledger, ledger.contents()) for ledger in self.ledgers())  # ask a team's store once for each
        begun = (ledger.lease_in(known) for ledger, known in read if self._has_begun(ledger, known))
        return sorted(begun, key=lambda lease: lease.opened_at)

    def _has_begun(self, ledger: Ledger, known: Contents) -> bool:
        """Whether the lease was opened: its key exists, which is created before the first machine."""
        return bool(known.events) or not known.whole or self.identity(ledger.path.parent.name).exists()

    def open_leases(self) -> list[Lease]:
        return [lease for lease in self.leases() if lease.open]

    def open_lease_of(self, name: str) -> Lease | None:
        """The open lease of the profile `name`, the newest if there are several."""
        return next((one for one in reversed(self.open_leases()) if one.profile["name"] == name), None)

    def gang_of(self, lease: Lease) -> list[Lease]:
        """Return the open leases of the other machines that train one model together with that of `lease`, by
        rank.
        """
        others = [one for one in self.open_leases() if one.gang == lease.id]
        return sorted(others, key=lambda one: one.rank)

    def lease(self, wanted: str | None = None) -> Lease:
        """Return the open lease with this id or profile name; by default the only one. Of machines that train
        one model together, the first.
        """
        opened = self.open_leases()
        firsts = {lease.id for lease in opened}
        found = [
            lease
            for lease in opened
            if (wanted is None and lease.gang not in firsts) or wanted in (lease.id, lease.profile["name"])
        ]
        if len(found) == 1:
            return found[0]
        if found:
            names = ", ".join(lease.id for lease in found)
            raise UsageError(
                f"{self.root} has several leased machines: {names}. Choose one.",
                next_command=f"orch status    # then add --lease {found[-1].id}",
            )
        meant = f" named {wanted}" if wanted else ""
        raise UsageError(
            f"No machine{meant} is leased in {self.root} or a folder above it.",
            next_command=self.up_command,
        )

    def ignore_state(self) -> None:
        """Exclude `.orch/` from the project's version control."""
        self.state.mkdir(parents=True, exist_ok=True)
        marker = self.state / ".gitignore"
        if not marker.exists() or marker.read_text() != "*\n":
            atomic_write(marker, b"*\n")

    def ignore_runs(self) -> None:
        """Exclude `runs/` from version control, unless the folder already belongs to the user."""
        self.ignore_state()
        runs = self.root / "runs"
        if all(any((entry / name).is_file() for name in _RECORDS) for entry in _entries(runs)):
            with suppress(OSError):
                atomic_write(runs / ".gitignore", b"*\n")

    def require_runs(self, run_id: str) -> None:
        """Raise LocalError, before anything runs, if `runs/` or the run's folder cannot hold a run: it is a
        file or a dangling link, it is not writable, or the project is read-only. A full disk is checked
        elsewhere.
        """
        try:
            self.ignore_state()
        except OSError as error:
            if error.errno in FULL:
                return
            copy = shlex.quote(f"{self.root.name}-copy")
            raise LocalError(
                f"The run's files cannot be written to {self.root}: {error.strerror}: {error.filename}. "
                "Nothing was run.",
                next_command=f"cp -r {shlex.quote(str(self.root))} ~/{copy} && cd ~/{copy}"
                "    # then the same command again",
            ) from error
        for place in (self.root / "runs", self.run(run_id)):
            if os.path.lexists(place) and not place.is_dir():
                what = "a link to a folder that does not exist" if place.is_symlink() else "no folder"
                aside = shlex.quote(f"{place}.aside")
                raise LocalError(
                    f"{place} is {what}, so the run's files cannot be stored. Nothing was run.",
                    next_command=f"mv {shlex.quote(str(place))} {aside}    # then the same command again",
                )
            if place.is_dir() and not os.access(place, os.W_OK | os.X_OK):
                raise LocalError(
                    f"{place} is not writable, so the run's files cannot be stored. Nothing was run.",
                    next_command=f"chmod u+rwx {shlex.quote(str(place))}    # then the same command again",
                )

    def remove_abandoned(self) -> None:
        """Remove unfinished files of interrupted commands, including keys."""
        for folder in (self.root / "runs", self.state, *_entries(self.state)):
            remove_abandoned(folder)


def _entries(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


def new_lease_id(name: str) -> str:
    """`<profile name>-<6 hex>`: unique enough, and valid as a label and host name."""
    return f"{name[:40].rstrip('-')}-{secrets.token_hex(3)}"


def new_run_id(name: str) -> str:
    return f"{name[:40].rstrip('-')}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"


def check_run_id(run_id: str) -> str:
    """Check a run id: it names a folder on two machines. Letters, digits, . _ - only, at most 100."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", run_id):
        raise UsageError(
            f"The run id {run_id!r} is not a valid folder name on every computer; use letters, digits, '.', "
            "'_' and '-', at most 100, beginning with a letter or digit."
        )
    return run_id
