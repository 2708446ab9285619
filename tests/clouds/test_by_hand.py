"""`scripts/testcloud`: a test cloud for a person, with the environment as lines for a shell."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.clouds.aws import Cloud

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "testcloud"


@contextmanager
def served(*argv: str) -> Iterator[dict[str, str]]:
    """What a shell exports that reads its lines."""
    server = subprocess.Popen(
        [str(SCRIPT), *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "ORCH_SETUP_PACKAGES": "0"},
        text=True,
    )
    assert server.stdout is not None
    try:
        first = server.stdout.readline()
        assert first.startswith("export "), first
        os.set_blocking(server.stdout.fileno(), False)
        lines = [first, *server.stdout.readlines()]
        pairs = (line.removeprefix("export ").strip().partition("=") for line in lines)
        yield {name: value for name, _, value in pairs}
        assert server.poll() is None, "it serves until it is asked to end"
    finally:
        server.terminate()
        assert server.wait(60) == 0
        server.stdout.close()


def test_aws_is_furnished_as_terraform_leaves_an_account(tmp_path: Path) -> None:
    with served("aws", "--set", "machines=false", "--state", str(tmp_path)) as environ:
        by_hand = Cloud(environ, environ["AWS_ENDPOINT_URL"])
        assert by_hand.instances() == []
        groups = by_hand.client("ec2").describe_security_groups(GroupNames=["orch-ssh"])["SecurityGroups"]
        assert groups[0]["IpPermissions"][0]["FromPort"] == 22


def test_google(tmp_path: Path) -> None:
    with served("gcp", "--state", str(tmp_path)) as environ:
        shown = subprocess.run(
            [SCRIPT.parents[1] / ".venv/bin/orch", "doctor", "gcp"],
            env={**os.environ, **environ},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert environ["GOOGLE_CLOUD_PROJECT"] in shown.stdout and shown.returncode in (0, 5), shown.stderr
