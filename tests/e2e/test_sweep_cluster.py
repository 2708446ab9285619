"""A sweep on a Dask cluster of the user's own, by TLS, whose workers are processes of this computer."""

from __future__ import annotations

import datetime
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.e2e.project import Project, tiny

pytestmark = [
    pytest.mark.machine,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="it needs isolated local machines"),
]
SCRIPT = "import sys\nprint('loss:', sys.argv[1])\n"
SWEEP = ("sweep", "orch.yaml", "--matrix", "n=1..3", "--machines", "2")


def certificate(folder: Path) -> dict[str, str]:
    """A key and its own certificate, for the scheduler, the workers and the client, as Dask's settings."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "sweep")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem, secret = folder / "cert.pem", folder / "key.pem"
    pem.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    secret.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    parts = {f"DASK_DISTRIBUTED__COMM__TLS__{role}__{what}": str(file)
             for role in ("SCHEDULER", "WORKER", "CLIENT")
             for what, file in (("CERT", pem), ("KEY", secret))}  # fmt: skip
    return {**parts, "DASK_DISTRIBUTED__COMM__TLS__CA_FILE": str(pem)}


@pytest.fixture
def cluster(tmp_path: Path, machines: Path) -> Iterator[tuple[str, Project, list[str]]]:
    """The scheduler's address, a project with its certificates, and the command that starts a worker."""
    project = tiny(tmp_path / "swept", machines, SCRIPT, disk="4 GiB")
    profile = project.folder / "orch.yaml"
    profile.write_text(profile.read_text().replace("train.py", "train.py {n}"))
    project.environ.update(certificate(tmp_path))
    dask = [sys.executable, "-m", "distributed.cli.dask_scheduler"]
    words = ["--protocol", "tls", "--host", "127.0.0.1", "--port", "0", "--no-dashboard"]
    with ExitStack() as ending:
        log = tmp_path / "scheduler.log"
        process = subprocess.Popen([*dask, *words], env=project.env(), stderr=log.open("w"))
        ending.callback(process.wait)
        ending.callback(process.kill)
        address = _address(log)
        worker = [
            sys.executable, "-m", "distributed.cli.dask_worker", address, "--nthreads", "1", "--no-nanny",
            "--no-dashboard", "--local-directory", str(tmp_path / "dask"),
        ]  # fmt: skip
        yield address, project, worker


def _address(log: Path) -> str:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if found := re.search(r"tls://127\.0\.0\.1:\d+", log.read_text()):
            return found[0]
        time.sleep(0.1)
    raise AssertionError(log.read_text())


def test_the_workers_of_a_cluster_train_and_their_certificates_are_asked_for(
    cluster: tuple[str, Project, list[str]],
) -> None:
    address, project, worker = cluster
    code, refused = sweep(project, address)
    assert code == 2 and "None of the 0 workers" in refused["error"]["message"]
    assert f"dask worker {address}" in refused["error"]["next_command"]
    with ExitStack() as ending:
        for _ in range(2):
            command = [*worker, "--resources", "machine=1"]
            process = subprocess.Popen(command, env=project.env(), stderr=subprocess.DEVNULL)
            ending.callback(process.wait)
            ending.callback(process.kill)
        end = time.monotonic() + 60
        while (answer := sweep(project, address))[0] == 2:
            assert time.monotonic() < end, answer
        code, done = answer
        assert code == 0, done
        assert done["left"] == [] and project.json("status")["leases"] == []
        assert [point["metrics"] for point in done["points"]] == [{"loss": 1.0}, {"loss": 2.0}, {"loss": 3.0}]
        assert {point["lease"].rpartition("-")[0] for point in done["points"]} <= {"tiny-m1", "tiny-m2"}
        (project.folder / "train.py").write_text("raise SystemExit(3)\n")
        code, failed = sweep(project, address)
        assert code == 6 and [point["error"]["kind"] for point in failed["points"]] == ["RunFailed"] * 3
        stranger = Project(project.folder, project.state)  # without the certificates
        code, refused = sweep(stranger, address)
        assert code == 2 and "No Dask scheduler answers" in refused["error"]["message"]


def sweep(project: Project, address: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the answer, of a process of its own: Dask reads its settings when it is imported."""
    words = [sys.executable, "-m", "orchestrator", *SWEEP, "--scheduler", address, "--json"]
    done = subprocess.run(
        words, cwd=project.folder, env=project.env(), capture_output=True, text=True, timeout=300
    )
    return done.returncode, json.loads(done.stdout)
