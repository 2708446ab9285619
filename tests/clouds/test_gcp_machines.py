"""The instances of the emulated Compute Engine are real machines: reached and ended as on the cloud."""

from __future__ import annotations

import base64
import io
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

compute_v1 = pytest.importorskip("google.cloud.compute_v1")
pytest.importorskip("googleapiclient")
paramiko = pytest.importorskip("paramiko")

from google.api_core import exceptions  # noqa: E402

from tests.clouds.gcp import ROOT, running  # noqa: E402
from tests.clouds.gcp_client import DLVM, PROJECT, UBUNTU, ZONE, Body, Google, body, name  # noqa: E402

DEBIAN = "projects/debian-cloud/global/images/family/debian-12"
pytestmark = [
    pytest.mark.machine,
    pytest.mark.skipif(
        os.geteuid() != 0, reason="an instance has a network of its own: root alone makes that"
    ),
    pytest.mark.skipif(shutil.which("sshd", path="/usr/sbin:/sbin:/usr/bin") is None, reason="no sshd here"),
]
METADATA = "curl -sS -H Metadata-Flavor:Google http://metadata.google.internal/computeMetadata/v1/"


class Login:
    """A key pair, and connections with it whose host key must be the one that the cloud told."""

    def __init__(self, folder: Path) -> None:
        path = folder / "key"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
        self.public = path.with_suffix(".pub").read_text().strip()
        self._key = paramiko.Ed25519Key.from_private_key_file(str(path))

    @contextmanager
    def connected(self, address: str, host_key: str, user: str = "orch") -> Iterator[Callable[[str], str]]:
        """Runs commands there; the text of their standard output."""
        client = paramiko.SSHClient()
        client.set_missing_host_key_policy(paramiko.RejectPolicy())
        known = paramiko.Ed25519Key(data=base64.b64decode(host_key))
        client.get_host_keys().add(address, "ssh-ed25519", known)
        _until(lambda: _greets(address))
        client.connect(
            address, username=user, pkey=self._key, allow_agent=False, look_for_keys=False, timeout=20
        )

        def run(command: str) -> str:
            _, out, error = client.exec_command(command, timeout=60)
            text = out.read().decode()
            assert out.channel.recv_exit_status() == 0, error.read().decode()
            return str(text.strip())

        try:
            yield run
        finally:
            client.close()


def _greets(address: str) -> bool:
    import socket

    try:
        with socket.create_connection((address, 22), timeout=2) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def _until(holds: Callable[[], bool], patience_s: float = 60) -> None:
    end = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < end, "it never came to hold"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def google() -> Iterator[Google]:
    with running(hostkey_s=0, guest_memory=256 << 20, guest_disk=256 << 20) as cloud:
        yield Google(cloud)


@pytest.fixture(scope="module")
def login(tmp_path_factory: pytest.TempPathFactory) -> Login:
    return Login(tmp_path_factory.mktemp("login"))


def machine(
    login: Login,
    metadata: Mapping[str, str] | None = None,
    *,
    image: str = UBUNTU,
    scheduling: Body | None = None,
) -> Body:
    told = {"enable-guest-attributes": "TRUE", "ssh-keys": f"orch:{login.public}", **(metadata or {})}
    disk = {"sourceImage": image, "diskType": f"zones/{ZONE}/diskTypes/pd-balanced"}
    return body(
        name=name(),
        machineType=f"zones/{ZONE}/machineTypes/e2-standard-2",
        disks=[{"boot": True, "autoDelete": True, "initializeParams": disk}],
        metadata={"items": [{"key": key, "value": value} for key, value in told.items()]},
        scheduling=scheduling or {},
    )


def address(instance: Any) -> str:
    return str(instance.network_interfaces[0].access_configs[0].nat_i_p)


def attributes(google: Google, instance: str) -> dict[str, str]:
    request = compute_v1.GetGuestAttributesInstanceRequest(
        project=PROJECT, zone=ZONE, instance=instance, query_path="hostkeys/"
    )
    try:
        found = google.instances.get_guest_attributes(request=request)
    except exceptions.NotFound:
        return {}
    return {item.key: item.value for item in found.query_value.items}


def host_key(google: Google, instance: str) -> str:
    _until(lambda: bool(attributes(google, instance)))
    return attributes(google, instance)["ssh-ed25519"]


def serial(google: Google, instance: str) -> str:
    where = {"project": PROJECT, "zone": ZONE, "instance": instance}
    return str(google.instances.get_serial_port_output(**where).contents)


def test_a_machine_is_reached_by_the_host_key_that_the_cloud_tells(google: Google, login: Login) -> None:
    config = {
        "write_files": [{"path": "/etc/told", "content": "by cloud-init\n", "permissions": "0640"}],
        "runcmd": [["sh", "-c", "echo carried out >/run/carried"], "id -u >/run/who"],
    }
    script = "#!/bin/sh\nid -u >/run/startup\necho hello, console\n"
    asked = machine(login, {"user-data": "#cloud-config\n" + json.dumps(config), "startup-script": script})
    google.cloud.settings(hostkey_s=5)
    made = google.made(asked)
    google.cloud.settings(hostkey_s=0)
    assert attributes(google, made.name) == {}  # it has only just booted
    key = host_key(google, made.name)
    with login.connected(address(made), key) as run:
        assert run("whoami") == "orch"
        assert run("sudo -n id -u") == "0"
        assert run("sudo -n sh -c 'cat /etc/told'") == "by cloud-init"
        assert run("sudo stat -c %a /etc/told") == "640"
        _until(lambda: run("cat /run/startup 2>/dev/null || true") == "0")
        assert run("cat /run/carried /run/who") == "carried out\n0"
        assert run(METADATA + "instance/name") == made.name
        assert run(METADATA + "instance/zone").endswith(f"/zones/{ZONE}")
        assert run(METADATA + "instance/attributes/startup-script") == script.strip()
        assert run(METADATA + "instance/preempted") == "FALSE"
        recursive = json.loads(run(METADATA + "'instance/?recursive=true'"))
        assert recursive["networkInterfaces" if "networkInterfaces" in recursive else "network-interfaces"]
        assert run(METADATA + "nonsense -o /dev/null -w '%{http_code}'") == "404"
        bare = METADATA.replace("-H Metadata-Flavor:Google ", "-o /dev/null -w '%{http_code}' ")
        assert run(bare + "instance/name") == "403"
    assert "hello, console" in serial(google, made.name)
    assert key in serial(google, made.name)
    with pytest.raises(paramiko.AuthenticationException), login.connected(address(made), key, "root"):
        pass
    google.delete(made.name)
    assert not _greets(address(made))


def test_what_the_image_lacks_is_not_done(google: Google, login: Login) -> None:
    """Debian's images have no cloud-init, and who keeps guest attributes shut gets no host key from them."""
    asked = machine(
        login,
        {"user-data": "#!/bin/sh\ntouch /run/wrong\n", "startup-script": "#!/bin/sh\ntouch /run/right\n"},
        image=DEBIAN,
    )
    made = google.made(asked)
    with login.connected(address(made), host_key(google, made.name)) as run:
        _until(lambda: run("ls /run/right 2>/dev/null || true") != "")
        assert run("ls /run/wrong 2>/dev/null || true") == ""
    google.delete(made.name)
    asked = machine(login, {"enable-guest-attributes": "FALSE"})
    made = google.made(asked)
    with pytest.raises(exceptions.Forbidden):
        attributes(google, made.name)
    google.delete(made.name)


def test_shutdown_inside_is_seen_and_costs_go_on(google: Google, login: Login) -> None:
    """As on the cloud: what powers itself off is TERMINATED, and stays until it is deleted."""
    made = google.made(machine(login, scheduling=body()["scheduling"]))
    with login.connected(address(made), host_key(google, made.name)) as run:
        run("(sleep 0.3; sudo -n shutdown -h now) >/dev/null 2>&1 &")
    _until(lambda: google.get(made.name).status == "TERMINATED")
    assert google.disks.get(project=PROJECT, zone=ZONE, disk=made.name)
    google.delete(made.name)
    with pytest.raises(exceptions.NotFound):
        google.get(made.name)


def test_a_preempted_guest_is_told_and_then_gone(google: Google, login: Login) -> None:
    made = google.made(machine(login, scheduling=body()["scheduling"]))
    key = host_key(google, made.name)
    with login.connected(address(made), key) as run:
        url = METADATA + "instance/preempted"
        etag = run(f"{url} -o /dev/null -D - | tr -d '\\r' | awk 'tolower($1) == \"etag:\" {{print $2}}'")
        change = f"{url}'?wait_for_change=true&last_etag={etag}'"
        waiting = f"{change} >/tmp/preempted; mv /tmp/preempted /tmp/told; sleep 10"  # keeps it up meanwhile
        run(f"trap '' TERM; ({waiting}) >/dev/null 2>&1 </dev/null &")
        root = _root_of(address(made))
        google.cloud.preempt(made.name, notice_s=20)
        _until(lambda: (root / "tmp/told").exists())
        assert (root / "tmp/told").read_text() == "TRUE"
    _until(lambda: made.name not in google.listed())


def _root_of(ip: str) -> Path:
    """The file system of the machine that has this address, as this computer sees it.

    Seen through the machine's oldest process: another one may end, and take the view with it.
    """
    for process in sorted(Path("/proc").glob("[0-9]*"), key=_started):
        try:
            root = process / "root"
            if ip in (root / "etc/hosts").read_text() and not root.samefile("/"):
                return root
        except OSError:
            continue
    raise AssertionError(f"no machine has the address {ip}")


def _started(process: Path) -> int:
    """When it started, in ticks since boot; a process that has ended comes last."""
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return 1 << 62


def test_keys_can_be_added_while_it_runs(google: Google, login: Login, tmp_path: Path) -> None:
    made = google.made(machine(login))
    key = host_key(google, made.name)
    other = Login(tmp_path)
    with pytest.raises(paramiko.AuthenticationException), other.connected(address(made), key, "late"):
        pass
    now = google.get(made.name).metadata
    items = [item for item in now.items if item.key != "ssh-keys"]
    items.append(compute_v1.Items(key="ssh-keys", value=f"orch:{login.public}\nlate:{other.public}"))
    changed = compute_v1.Metadata(items=items, fingerprint=now.fingerprint)
    where = {"project": PROJECT, "zone": ZONE, "instance": made.name}
    google.wait(google.instances.set_metadata_unary(metadata_resource=changed, **where))

    def enters() -> bool:
        try:
            with other.connected(address(made), key, "late") as run:
                return run("whoami") == "late"
        except paramiko.AuthenticationException:
            return False

    _until(enters)
    google.delete(made.name)


@pytest.mark.slow
def test_the_cloud_deletes_at_the_deadline(google: Google, login: Login) -> None:
    limited = {"maxRunDuration": {"seconds": "30"}, "instanceTerminationAction": "DELETE"}
    begun = time.monotonic()
    made = google.made(machine(login, image=DLVM, scheduling=limited))
    host_key(google, made.name)
    _until(lambda: made.name not in google.listed(), 120)
    assert time.monotonic() - begun > 30
    assert not _greets(address(made))
    with pytest.raises(exceptions.NotFound):
        google.disks.get(project=PROJECT, zone=ZONE, disk=made.name)


@pytest.mark.parametrize("how", ["input ends", "SIGTERM"])
def test_nothing_is_left_of_a_cloud_that_ended(login: Login, tmp_path: Path, how: str) -> None:
    command = [
        sys.executable,
        "-m",
        "tests.clouds.gcp",
        "--state",
        str(tmp_path),
        "--set",
        f"guest_disk={256 << 20}",
    ]
    server = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdin is not None
        assert isinstance(server.stdout, io.TextIOBase)
        from tests.clouds.gcp import Cloud

        env = json.loads(server.stdout.readline())
        google = Google(Cloud(env, env["STORAGE_EMULATOR_HOST"]))
        made = google.made(machine(login))
        host_key(google, made.name)
        if how == "SIGTERM":
            server.terminate()
        else:
            server.stdin.close()
        assert server.wait(60) == 0
        assert not _greets(address(made))
        assert list((tmp_path / "machines").iterdir()) == []
    finally:
        server.kill()
        server.wait()
