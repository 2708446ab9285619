"""orch init --terraform: from the outputs of terraform to a profile and the commands for the shell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator.api.terraform import terraform_outputs
from orchestrator.errors import UsageError
from orchestrator.profile import load, starter
from orchestrator.profile.terraform import TerraformOutputs, read_ground

AWS: dict[str, Any] = {
    "version": 1,
    "cloud": "aws",
    "regions": ["eu-west-1"],
    "environment": {"ORCH_AWS_REGIONS": "eu-west-1"},
}
GCP: dict[str, Any] = {
    "version": 1,
    "cloud": "gcp",
    "regions": ["us-central1", "europe-west4"],
    "environment": {"GOOGLE_CLOUD_PROJECT": "mine-1", "ORCH_GCP_SUBNETWORK": "orch"},
}
KIND = ["object", {"cloud": "string"}]


def printed(value: Any) -> str:
    """As `terraform output -json`."""
    return json.dumps({"orch": {"sensitive": False, "type": KIND, "value": value}, "bucket": {"value": "b"}})


def state(value: Any) -> str:
    outputs = {"orch": {"value": value, "type": KIND}}
    return json.dumps({"version": 4, "terraform_version": "1.11.4", "outputs": outputs, "resources": []})


@pytest.mark.parametrize("form", [printed, state])
def test_both_forms_are_read(form: Any) -> None:
    found = read_ground(form(GCP), "here")
    assert found == TerraformOutputs("gcp", ("us-central1", "europe-west4"), GCP["environment"])
    assert found.exports == ("export GOOGLE_CLOUD_PROJECT=mine-1", "export ORCH_GCP_SUBNETWORK=orch")


@pytest.mark.parametrize(
    ("value", "region"),
    [
        (AWS, "eu-west-1"),
        ({**AWS, "regions": ["eu-west-1", "us-east-1"]}, None),
        (GCP, "us-central1"),
    ],
)
def test_the_profile_says_the_cloud_and_where_it_must_be(
    tmp_path: Path, value: Any, region: str | None
) -> None:
    """Of several regions of AWS the cheapest may win: orch looks in no others. Google's subnetwork is chosen
    by the region."""
    text = starter(tmp_path, read_ground(printed(value), "here"))
    path = tmp_path / "orch.yaml"
    path.write_text(text)
    profile = load(path, environ={})
    assert (profile.cloud, profile.region) == (value["cloud"], region)
    for name, said in value["environment"].items():
        assert f"export {name}={said}" in text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("not json", "not JSON"),
        ("[]", "no output orch"),
        (json.dumps({"version": 4, "outputs": {}}), "no output orch"),
        (json.dumps({"version": 4, "encrypted_data": "abc"}), "no output orch"),
        (printed({**AWS, "version": 2}), "version 2"),
        (printed({**AWS, "cloud": "azure"}), "azure"),
        (printed({**AWS, "regions": []}), "regions"),
        (printed({**AWS, "regions": ["us-east-1\nspot: true"]}), "regions"),
        (printed({**AWS, "environment": {"ORCH_AWS_REGIONS": "x; rm -rf /"}}), "environment"),
        (printed({**AWS, "environment": {"lower": "x"}}), "environment"),
        (printed({**AWS, "environment": {"A": "x\nB"}}), "environment"),
    ],
)
def test_what_is_no_output_of_ours_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_ground(text, "here")
    assert said in refused.value.message


def test_a_folder_with_its_state_and_its_workspace(tmp_path: Path) -> None:
    (tmp_path / "terraform.tfstate").write_text(state(AWS))
    assert terraform_outputs(tmp_path).cloud == "aws"
    (tmp_path / ".terraform").mkdir()
    (tmp_path / ".terraform" / "environment").write_text("team")
    with pytest.raises(UsageError, match="team"):
        terraform_outputs(tmp_path)
    other = tmp_path / "terraform.tfstate.d" / "team"
    other.mkdir(parents=True)
    (other / "terraform.tfstate").write_text(state(GCP))
    assert terraform_outputs(tmp_path).cloud == "gcp"
    assert terraform_outputs(tmp_path / "terraform.tfstate").cloud == "aws"


def test_a_folder_where_nothing_was_applied(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        terraform_outputs(tmp_path)
    assert "terraform" in (refused.value.next_command or "")
    with pytest.raises(UsageError, match="neither"):
        terraform_outputs(tmp_path / "nowhere")


PROGRAM = """\
#!/bin/sh
echo "$0 $*" >>"$CALLS"
test -z "$BROKEN" || { echo "no access to the state" >&2; exit 1; }
cat "$PRINTED"
"""


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of terraform whose state is kept elsewhere, and programs that can read it."""
    folder, programs = tmp_path / "ground", tmp_path / "bin"
    (folder / ".terraform").mkdir(parents=True)
    (folder / ".terraform" / "terraform.tfstate").write_text('{"backend": {"type": "s3"}}')
    programs.mkdir()
    for name in ("terraform", "tofu"):
        (programs / name).write_text(PROGRAM)
        (programs / name).chmod(0o755)
    (tmp_path / "printed").write_text(printed(GCP))
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("PRINTED", str(tmp_path / "printed"))
    return folder


def test_a_state_that_is_elsewhere_is_asked_for(elsewhere: Path) -> None:
    assert terraform_outputs(elsewhere).cloud == "gcp"
    (elsewhere / ".terraform.lock.hcl").write_text('provider "registry.opentofu.org/hashicorp/google" {}\n')
    assert terraform_outputs(elsewhere).cloud == "gcp"
    first, second = (elsewhere.parent / "calls").read_text().splitlines()
    assert first.endswith(f"/terraform -chdir={elsewhere} output -json -no-color")
    assert second.split()[0].endswith("/tofu")


def test_a_program_that_fails_is_quoted(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKEN", "1")
    with pytest.raises(UsageError, match="no access to the state"):
        terraform_outputs(elsewhere)


def test_without_a_program_it_is_said_how(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(elsewhere))
    with pytest.raises(UsageError) as refused:
        terraform_outputs(elsewhere)
    assert "outputs.json" in (refused.value.next_command or "")


def test_the_command(tmp_path: Path) -> None:
    """From a file; the shell's exports are printed, and stand in the profile."""
    (tmp_path / "outputs.json").write_text(printed(GCP))
    command = [sys.executable, "-m", "orchestrator", "init", "--terraform", "outputs.json", str(tmp_path)]
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    shown = subprocess.run(
        command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=True
    ).stdout
    assert "export GOOGLE_CLOUD_PROJECT=mine-1" in shown
    assert load(tmp_path / "orch.yaml", environ={}).region == "us-central1"
    again = subprocess.run(
        [*command, "--force", "--json"], cwd=tmp_path, env=environ, capture_output=True, text=True
    )
    assert json.loads(again.stdout)["environment"] == GCP["environment"]
    (tmp_path / "outputs.json").write_text("{}")
    refused = subprocess.run([*command, "--force"], cwd=tmp_path, env=environ, capture_output=True, text=True)
    assert refused.returncode == 2
