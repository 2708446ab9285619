"""A person's own ssh, by the configuration that `orch ssh-config` writes, against a real sshd."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from orchestrator.api import ssh
from orchestrator.cli.app import app
from orchestrator.errors import UsageError
from orchestrator.leases.machine import receipt
from orchestrator.model import Endpoint, Machine
from orchestrator.providers.memory import MemoryProvider
from orchestrator.session.project import Project
from orchestrator.session.ssh_access import SshAccess
from tests.conformance import private_sshd
from tests.conformance.private_sshd import Sshd
from tests.unit import memory_cloud

pytestmark = pytest.mark.skipif(private_sshd.why_not() is not None, reason=str(private_sshd.why_not()))


class Cloud(MemoryProvider):
    """Its machines answer at the one sshd."""

    answers: Endpoint

    def endpoint(self, machine: Machine) -> Endpoint:
        del machine
        return self.answers


@dataclass
class Bench:
    project: Project
    cloud: Cloud
    server: Sshd
    home: Path

    def lease(self, name: str) -> None:
        spec, ledger = memory_cloud.spec_for(name), self.project.ledger(name)
        ledger.path.parent.mkdir(parents=True)
        facts = {"name": "digits", "cloud": "memory", "path": "p.yaml", "overrides": [], "digest": "d"}
        ledger.append("lease.opened", lease=name, profile=facts)
        memory_cloud.intent(ledger, spec)
        ledger.record(receipt(spec.attempt, self.cloud.create(spec)))
        identity = self.project.identity(name)
        shutil.copyfile(self.server.identity, identity)
        identity.chmod(0o600)

    def config(self, install: bool = False) -> ssh.SshConfig:
        return ssh.ssh_config(install=install, home=self.home, folder=self.project.root)


def by_config(file: Path | str, host: str, *command: str) -> subprocess.CompletedProcess[str]:
    argv = ["ssh", "-F", str(file), "-o", "BatchMode=yes", host, *command]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with private_sshd.sshd(tmp_path_factory.mktemp("sshd")) as made:
        yield made


@pytest.fixture
def bench(server: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    folder = tmp_path / "a project, 100% mine"
    cloud = Cloud()
    cloud.answers = server.endpoint
    memory_cloud.serve(cloud, monkeypatch)
    made = Bench(Project(folder), cloud, server, tmp_path / "home")
    made.lease("digits-1")
    return made


def test_ssh_by_name_reaches_the_machine_and_runs_a_command(bench: Bench) -> None:
    found = bench.config()
    assert found.hosts == ["digits-1", "digits"] and not found.included and not found.left_out
    said = by_config(found.file, "digits-1", "echo", "$SSH_CONNECTION")
    assert said.returncode == 0 and said.stdout.startswith("127.0.0.1 "), said.stderr


def test_a_machine_with_another_key_gets_nothing(bench: Bench, tmp_path: Path) -> None:
    other = private_sshd.new_key(tmp_path / "other")
    bench.cloud.answers = replace(bench.server.endpoint, host_keys=(other,))
    said = by_config(bench.config().file, "digits-1", "true")
    assert said.returncode == 255 and "Host key verification failed" in said.stderr


def test_install_includes_it_once_and_keeps_what_was_there(bench: Bench) -> None:
    config = bench.home / ".ssh" / "config"
    config.parent.mkdir(parents=True)
    config.write_text("Host mine\n    User me\n")
    config.chmod(0o600)
    for _ in range(2):
        found = bench.config(install=True)
        assert found.included
    text = config.read_text()
    assert text.count("Include ") == 1 and text.startswith(found.include)
    assert text.endswith("Host mine\n    User me\n") and config.stat().st_mode & 0o777 == 0o600
    assert by_config(config, "digits-1", "true").returncode == 0
    told = subprocess.run(
        ["ssh", "-G", "-F", str(config), "mine"], capture_output=True, text=True, check=True
    )
    assert "user me" in told.stdout.splitlines()


def test_a_name_of_two_leases_is_nobodys(bench: Bench) -> None:
    for name in ("digits-2", "digits-3"):
        bench.lease(name)
    assert bench.config().hosts == ["digits-1", "digits-2", "digits-3"]


def test_a_machine_that_is_gone_is_left_out_by_name(bench: Bench) -> None:
    bench.lease("digits-2")
    gone = next(each for each in bench.cloud.alive() if "digits-2" in json.dumps(dict(each.labels)))
    bench.cloud.kill(gone)
    found = bench.config()
    assert found.hosts == ["digits-1"] and len(found.left_out) == 1 and "digits-2" in found.left_out[0]


def test_forward_leads_to_a_port_of_the_machine(bench: Bench) -> None:
    with socket.create_server(("127.0.0.1", 0)) as there:
        threading.Thread(target=_greet, args=(there,), daemon=True).start()
        here = private_sshd.free_port()
        argv, told = ssh.forward_command([f"{here}:{there.getsockname()[1]}"], folder=bench.project.root)
        assert told == [f"localhost:{here} -> port {there.getsockname()[1]} of the machine"]
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            private_sshd._await_port(here, process, bench.home)
            with socket.create_connection(("127.0.0.1", here), 30) as connection:
                assert connection.recv(5) == b"hello"
        finally:
            process.kill()
            process.communicate()


def _greet(there: socket.socket) -> None:
    """Say hello to everybody who connects, until the port is closed."""
    with contextlib.suppress(OSError):
        while True:
            there.accept()[0].sendall(b"hello")


@pytest.mark.parametrize("text", ["", "http", "0", "70000", "1:x", "-1", "1:2:3"])
def test_what_is_no_port_is_refused(bench: Bench, text: str) -> None:
    with pytest.raises(UsageError, match="is not a port"):
        ssh.forward_command([text], folder=bench.project.root)


def test_a_proxy_is_a_line_of_shell_with_its_percent_signs_kept() -> None:
    door = SshAccess("10.0.0.1", 22, "me", {"HostKeyAlias": "m"}, ("tunnel", "--to", "a b", "%h"))
    assert "    ProxyCommand tunnel --to 'a b' %%h\n" in door.entry(["m"])
    assert "ProxyCommand=tunnel --to 'a b' %%h" in door.argv()


def test_json_is_of_orch_before_the_command_and_of_the_command_after_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(bench.project.root)
    shown = CliRunner().invoke(app, ["ssh", "--json", "echo", "--json"])
    argv = json.loads(shown.stdout)["argv"]
    assert shown.exit_code == 0 and argv[0].endswith("ssh")
    assert subprocess.run(argv, capture_output=True, text=True, timeout=60).stdout == "--json\n"

    class Replaced(Exception):
        """This process would be ssh now."""

    def replaced(file: str, words: list[str]) -> None:
        raise Replaced(file, words)

    monkeypatch.setattr("os.execvp", replaced)
    given = CliRunner().invoke(app, ["ssh", "echo", "--json"])
    assert isinstance(given.exception, Replaced) and given.exception.args[1] == argv
