"""What anybody would write without orch: a machine by boto3 or google-cloud-compute, a command by paramiko.

python plain_launch.py aws|gcp NAME KEY      KEY: path of an ed25519 key pair, for the login and the machine

Prints {"accepted", "reached"}, in seconds since 1970, and ends the machine. It verifies the host key as orch
does (AWS: one sent along; Google: that of the guest attributes) and does nothing else: no deadline, no
labels, no journal, no second try, no proof that the machine is gone.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import paramiko

_UBUNTU = "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"
_FAMILY = "projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-amd64"
_ZONE = "us-central1-a"


def aws(name: str, key: Path) -> tuple[float, float]:
    import boto3

    session = boto3.Session(region_name="us-east-1")
    ec2, ssm = session.client("ec2"), session.client("ssm")
    public = key.with_suffix(".pub").read_text().strip()
    login = {
        "ssh_authorized_keys": [public],
        "ssh_deletekeys": True,
        "ssh_keys": {"ed25519_private": key.read_text(), "ed25519_public": public},
    }
    groups = ec2.describe_security_groups(Filters=[{"Name": "group-name", "Values": ["orch-ssh"]}])
    answer = ec2.run_instances(
        MinCount=1,
        MaxCount=1,
        ImageId=ssm.get_parameter(Name=_UBUNTU)["Parameter"]["Value"],
        InstanceType="t3.micro",
        SecurityGroupIds=[groups["SecurityGroups"][0]["GroupId"]],
        UserData="#cloud-config\n" + json.dumps(login),
        TagSpecifications=[{"ResourceType": "instance", "Tags": [{"Key": "Name", "Value": name}]}],
    )
    accepted = time.time()
    identity = answer["Instances"][0]["InstanceId"]

    def address() -> str | None:
        try:
            found = ec2.describe_instances(InstanceIds=[identity])["Reservations"][0]["Instances"][0]
        except ec2.exceptions.ClientError:  # not seen yet
            return None
        return str(found["PublicIpAddress"]) if found["State"]["Name"] == "running" else None

    try:
        _say_true(_awaited(address), "ubuntu", key, {public.split()[1]})
        return accepted, time.time()
    finally:
        ec2.terminate_instances(InstanceIds=[identity])


def gcp(name: str, key: Path) -> tuple[float, float]:
    from google.api_core.client_options import ClientOptions
    from google.api_core.exceptions import NotFound
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import compute_v1

    given: dict[str, Any] = {
        "credentials": AnonymousCredentials(),
        "client_options": ClientOptions(
            api_endpoint=os.environ["CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE"].partition("/compute/")[0]
        ),
    }
    project = os.environ["GOOGLE_CLOUD_PROJECT"]
    instances, operations = compute_v1.InstancesClient(**given), compute_v1.ZoneOperationsClient(**given)
    public = key.with_suffix(".pub").read_text().strip()
    body = {
        "name": name,
        "machineType": f"zones/{_ZONE}/machineTypes/e2-standard-2",
        "disks": [{"boot": True, "autoDelete": True, "initializeParams": {"sourceImage": _FAMILY}}],
        "networkInterfaces": [
            {"network": "global/networks/default", "accessConfigs": [{"type": "ONE_TO_ONE_NAT"}]}
        ],
        "metadata": {
            "items": [
                {"key": "ssh-keys", "value": f"plain:{public}"},
                {"key": "enable-guest-attributes", "value": "TRUE"},
            ]
        },
    }
    wanted = compute_v1.Instance.from_json(json.dumps(body))
    begun = instances.insert_unary(project=project, zone=_ZONE, instance_resource=wanted)
    accepted = time.time()
    where = {"project": project, "zone": _ZONE, "instance": name}
    operations.wait(project=project, zone=_ZONE, operation=begun.name)

    def keys() -> set[str] | None:
        request = compute_v1.GetGuestAttributesInstanceRequest(**where, query_path="hostkeys/")
        try:
            return {item.value for item in instances.get_guest_attributes(request).query_value.items}
        except NotFound:  # not written yet
            return None

    try:
        known = _awaited(keys)
        found = instances.get(**where).network_interfaces[0].access_configs[0].nat_i_p
        _say_true(found, "plain", key, known)
        return accepted, time.time()
    finally:
        instances.delete_unary(**where)


def _awaited(look: Callable[[], Any]) -> Any:
    while not (found := look()):
        time.sleep(0.1)
    return found


def _say_true(address: str, user: str, key: Path, known: set[str]) -> None:
    """One command, over a connection whose host key is one of `known`, in base64."""
    while True:
        try:
            transport = paramiko.Transport((address, 22))
            transport.start_client(timeout=10)
            shown = base64.b64encode(transport.get_remote_server_key().asbytes()).decode()
            if shown not in known:
                sys.exit("another host key")
            transport.auth_publickey(user, paramiko.Ed25519Key.from_private_key_file(str(key)))
            break
        except (paramiko.SSHException, OSError, EOFError):
            time.sleep(0.1)
    channel = transport.open_session()
    channel.exec_command("true")
    if channel.recv_exit_status():
        sys.exit("true is not true")
    transport.close()


if __name__ == "__main__":
    cloud, name, key = sys.argv[1:]
    accepted, reached = {"aws": aws, "gcp": gcp}[cloud](name, Path(key))
    print(json.dumps({"accepted": accepted, "reached": reached}))
