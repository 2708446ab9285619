"""A tree of files here, and the ways to bring it through one sshd to the other side and back."""

from __future__ import annotations

import os
import random
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from turns import seconds

from orchestrator import sync
from orchestrator.hosts import connect
from orchestrator.model import Entry, Host
from tests.conformance import private_sshd
from tests.unit.far_side import agent_at

SFTP = "/usr/lib/openssh/sftp-server"
STEPS = {"full": "full copy", "same": "nothing changed", "changed": "1% changed"}
WORDS = 4000


class Ways:
    """One tree here, one sshd, and for each way a place there. `port`: where the sshd is reached."""

    def __init__(self, folder: Path, server: private_sshd.Sshd, files: int, port: int | None = None) -> None:
        self.folder, self.server, self.files = folder, server, files
        self.endpoint = replace(server.endpoint, port=port or server.endpoint.port)
        self.tree = folder / "tree"
        self.agent = agent_at(folder / "far")
        self.round = 0
        self.backs = 0
        self.random = random.Random(1)
        self.open_host = self._connect()
        self._known_to_rclone()

    def make_tree(self, *, text: float = 0.0) -> int:
        """Write the files, a share `text` of them words and the others random; their bytes."""
        words = [self.random.randbytes(self.random.randrange(1, 5)).hex() for _ in range(WORDS)]
        total = 0
        for number in range(self.files):
            place = self._file(number)
            place.parent.mkdir(parents=True, exist_ok=True)
            size = self.random.randrange(200, 21_000)
            if number < text * self.files:
                content = " ".join(self.random.choices(words, k=size // 4)).encode()[:size]
            else:
                content = self.random.randbytes(size)
            place.write_bytes(content)
            os.utime(place, (time.time() - 600,) * 2)
            total += len(content)
        return total

    def rest(self) -> None:
        """Wait until the files are as old as most are: those of the last minute are read again at each scan,
        whoever wrote them."""
        time.sleep(61)

    def touch(self) -> None:
        """Change 1% of the files."""
        for number in self.random.sample(range(self.files), max(1, self.files // 100)):
            place = self._file(number)
            place.write_bytes(self.random.randbytes(place.stat().st_size + 1))
            os.utime(place, (time.time() - self.random.randrange(60, 600),) * 2)

    def close(self) -> None:
        self.open_host.close()
        subprocess.run([*self._ssh(shared=True), "-O", "exit", *self._address()], capture_output=True)

    # ------------------------------------------------------------ there

    def ours_open(self) -> None:
        self._push(self.open_host, "open")

    def ours_new(self) -> None:
        host = self._connect()
        self._push(host, "new")
        host.close()

    def rsync(self) -> None:
        self._rsync("-a", "--delete", f"{self.tree}/", self._there(self.far("rsync")))

    def rsync_shared(self) -> None:
        self._rsync("-a", "--delete", f"{self.tree}/", self._there(self.far("shared")), shared=True)

    def tar(self) -> None:
        there = shlex.quote(str(self.far("tar")))
        far = shlex.join([*self._ssh(), *self._address(), f"mkdir -p {there} && tar -x -C {there}"])
        subprocess.run(f"tar -c -C {shlex.quote(str(self.tree))} . | {far}", shell=True, check=True)

    def scp(self) -> None:
        options = ["-P" if each == "-p" else each for each in self._ssh()[1:]]
        self.far("scp").parent.mkdir(parents=True, exist_ok=True)
        there = self._there(self.far("scp")).rstrip("/")
        subprocess.run(["scp", "-O", "-q", "-r", *options, str(self.tree), there], check=True)

    def rclone(self) -> None:
        """Without its hashes, which take a login for each file."""
        given = {
            "host": "127.0.0.1",
            "port": self.endpoint.port,
            "user": self.endpoint.user,
            "key-file": self.server.identity,
            "known-hosts-file": self.folder / "known_hosts.rclone",
            "server-command": SFTP,
        }
        quick = ["--config=", "--transfers=32", "--checkers=32", "--sftp-disable-hashcheck"]
        remote = [*quick, *(f"--sftp-{key}={value}" for key, value in given.items())]
        subprocess.run(
            ["rclone", "copy", "-q", *remote, self.tree, f":sftp:{self.far('rclone')}"], check=True
        )

    # ------------------------------------------------------------ back

    def ours_back(self, listed: Sequence[Entry]) -> None:
        """`listed`: what a machine lists before a pull."""
        sync.pull(self.open_host, self.agent, str(self.far("open")), listed, self._back("orch"))

    def rsync_back(self) -> None:
        self._rsync("-a", self._there(self.far("rsync")), f"{self._back('rsync')}/")

    def check_back(self) -> None:
        """Compare what came back, and let the next come to other places."""
        for name in ("orch", "rsync"):
            self._same(self._back(name))
        self.backs += 1

    def _back(self, name: str) -> Path:
        return self.folder / "back" / f"{name}-{self.backs}"

    # ------------------------------------------------------------ places and connections

    def far(self, name: str) -> Path:
        """Where a way's copy of this round lies. Never one where files were just deleted: file systems are
        slow to use their inodes again, which would be measured instead."""
        return self.folder / "far" / "trees" / f"{name}-{self.round}"

    def check(self, name: str) -> None:
        """What lies there is what lies here, by someone else's word."""
        self._same(self.far(name))

    def _same(self, place: Path) -> None:
        subprocess.run(["diff", "-r", str(self.tree), str(place)], check=True)

    def _file(self, number: int) -> Path:
        return self.tree / f"d{number % 100:02}" / f"file-{number}"

    def _push(self, host: Host, name: str) -> None:
        """As `orch train` sends a tree."""
        name = f"{name}-{self.round}"
        sync.push_latest(
            host, self.agent, lambda: sync.scan(self.tree, cache=self.folder / f"cache-{name}"), name
        )

    def _connect(self) -> Host:
        known = self.folder / "known_hosts"
        return connect(self.endpoint, identity=self.server.identity, known_hosts=known, machine_id="bench")

    def _ssh(self, *, shared: bool = False) -> list[str]:
        known = self.folder / "known_hosts"
        ssh = ["ssh", "-F", "none", "-i", str(self.server.identity), "-p", str(self.endpoint.port)]
        options = ["HostKeyAlias=bench", f"UserKnownHostsFile={known}", "BatchMode=yes"]
        if shared:
            options += ["ControlMaster=auto", f"ControlPath={self.folder}/c", "ControlPersist=60"]
        return [*ssh, *(word for option in options for word in ("-o", option))]

    def _address(self) -> list[str]:
        return [f"{self.endpoint.user}@127.0.0.1"]

    def _there(self, place: Path) -> str:
        return f"{self._address()[0]}:{place}/"

    def _rsync(self, *arguments: str, shared: bool = False) -> None:
        far = f"--rsync-path={shutil.which('rsync')}"
        (self.folder / "back").mkdir(exist_ok=True)
        subprocess.run(["rsync", far, "-e", shlex.join(self._ssh(shared=shared)), *arguments], check=True)

    def _known_to_rclone(self) -> None:
        lines = [f"[127.0.0.1]:{self.endpoint.port} {key}\n" for key in self.endpoint.host_keys]
        (self.folder / "known_hosts.rclone").write_text("".join(lines))


def measure(
    ways: Ways,
    syncs: Mapping[str, Callable[[], None]],
    copies: Mapping[str, Callable[[], None]],
    rounds: int,
) -> dict[str, dict[str, list[float]]]:
    """Return way -> step -> seconds of each round, in turns; `copies` make the full copy alone.

    Each round goes to new places. What lies there at its end is compared with what lies here.
    """
    taken: dict[str, dict[str, list[float]]] = {name: {step: [] for step in STEPS} for name in syncs}
    taken |= {name: {"full": []} for name in copies}
    for ways.round in range(rounds):
        for step in STEPS:
            if step == "changed":
                ways.touch()
            acts = {**syncs, **copies} if step == "full" else syncs
            for name in list(acts)[:: -1 if ways.round % 2 else 1]:
                taken[name][step].append(seconds(acts[name]))
            for name in acts if step != "same" else ():
                ways.check(name)
    return taken
