"""The machines of the test AWS: real ones, that do what user-data says and whose end the cloud sees."""

from __future__ import annotations

import base64
import email.mime.multipart
import email.mime.text
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("boto3")
pytest.importorskip("moto")

from tests.clouds.aws import Cloud, running
from tests.clouds.aws_asking import await_state, await_that, described, launch

pytestmark = [
    pytest.mark.machine,
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("sshd", path="/usr/sbin:/sbin:/usr/bin") is None,
        reason="machines with an address of their own need root and sshd",
    ),
]
AL2023 = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"
KEYS = re.compile(r"-----BEGIN SSH HOST KEY KEYS-----\s+(.*?)\s+-----END SSH HOST KEY KEYS-----", re.S)


@dataclass(frozen=True)
class Key:
    """A key pair; `public` is its OpenSSH line."""

    private: Path
    public: str


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Key:
    return make_key(tmp_path_factory.mktemp("key") / "login")


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    with running(machine_memory=1 << 30, machine_disk=1 << 30) as made:
        yield made


@pytest.fixture(scope="module")
def open_group(cloud: Cloud) -> str:
    ec2 = cloud.client("ec2")
    group = str(ec2.create_security_group(GroupName="open", Description="ssh")["GroupId"])
    ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=[SSH_RULE])
    return group


@pytest.fixture(scope="module")
def key_name(cloud: Cloud, key: Key) -> str:
    cloud.client("ec2").import_key_pair(KeyName="login", PublicKeyMaterial=key.public.encode())
    return "login"


SSH_RULE = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "10.0.0.0/8"}]}


def make_key(path: Path) -> Key:
    make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(path)]
    subprocess.run(make, check=True)
    return Key(path, path.with_suffix(".pub").read_text().strip())


def console(cloud: Cloud, identity: str) -> str:
    output = cloud.client("ec2").get_console_output(InstanceId=identity, Latest=True)
    return str(output.get("Output", ""))


def host_keys(cloud: Cloud, identity: str) -> list[str]:
    """The host keys that the console tells, "type base64"."""
    found = await_that(lambda: KEYS.search(console(cloud, identity)))
    return [" ".join(line.split()[:2]) for line in found.group(1).splitlines() if line.strip()]


def ssh(
    address: str, user: str, key: Key, command: str, *, trusted: list[str], timeout: float = 30
) -> subprocess.CompletedProcess[str]:
    """Run a command there, trusting no host key but those."""
    known = key.private.with_name("known_hosts")
    known.write_text("".join(f"{address} {line}\n" for line in trusted))
    options = [
        f"UserKnownHostsFile={known}",
        "StrictHostKeyChecking=yes",
        "BatchMode=yes",
        "ConnectTimeout=5",
    ]
    flags = [word for option in options for word in ("-o", option)]
    argv = ["ssh", "-F", "none", "-i", str(key.private), *flags, f"{user}@{address}", command]
    return subprocess.run(argv, capture_output=True, text=True, timeout=timeout, check=False)


def told(address: str, user: str, key: Key, command: str, *, trusted: list[str]) -> str:
    """What the command prints; it must succeed."""
    done = ssh(address, user, key, command, trusted=trusted)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def imds(path: str) -> str:
    """Shell text that prints what the metadata service says at that path below /latest/."""
    base = "http://169.254.169.254/latest"
    token = f"$(curl -sf -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' {base}/api/token)"
    return f'curl -s -w "\\n%{{http_code}}" -H "X-aws-ec2-metadata-token: {token}" {base}/{path}'


def test_a_script_runs_and_the_console_tells_the_host_key(
    cloud: Cloud, key: Key, key_name: str, open_group: str
) -> None:
    script = "#!/bin/sh\nid -un >/root/who\necho said by user-data\n"
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "Name", "Value": "box"}]}]
    made = launch(
        cloud, UserData=script, KeyName=key_name, SecurityGroupIds=[open_group], TagSpecifications=tags
    )
    identity = made["InstanceId"]
    address = await_state(cloud, identity, "running")["PublicIpAddress"]
    trusted = host_keys(cloud, identity)
    assert address.startswith("10.77.")
    assert "said by user-data" in console(cloud, identity)

    def there(command: str) -> str:
        return told(address, "ubuntu", key, command, trusted=trusted)

    assert there("id -un; sudo -n id -u; sudo cat /root/who; sudo -u ubuntu id -un").split() == [
        *("ubuntu", "0", "root", "ubuntu")
    ]
    assert there("sudo -i pwd; X=1 sudo A='b c' sh -c 'echo $A:$X:$HOME'").splitlines() == [
        "/root",
        "b c::/root",
    ]
    assert ssh(address, "ubuntu", key, "sudo false", trusted=trusted).returncode == 1
    assert "rather than the user" in ssh(address, "root", key, "true", trusted=trusted, timeout=40).stdout
    assert there(imds("meta-data/instance-id")).split() == [identity, "200"]
    assert there(imds("meta-data/placement/availability-zone")).split() == ["us-east-1a", "200"]
    assert there(imds("meta-data/spot/instance-action")).endswith("404")
    assert there(imds("user-data")).startswith("#!/bin/sh\nid -un")
    assert there("curl -s -o /dev/null -w '%{http_code}' http://169.254.169.254/latest/meta-data/") == "200"
    stranger = make_key(key.private.with_name("stranger")).public.split()[:2]
    assert ssh(address, "ubuntu", key, "true", trusted=[" ".join(stranger)]).returncode == 255
    cloud.client("ec2").terminate_instances(InstanceIds=[identity])
    await_state(cloud, identity, "terminated")
    assert ssh(address, "ubuntu", key, "true", trusted=trusted).returncode == 255


def test_cloud_config_and_scripts_in_one_message(
    cloud: Cloud, key: Key, open_group: str, tmp_path: Path
) -> None:
    injected = make_key(tmp_path / "host")
    config = {
        "ssh_keys": {
            "ed25519_private": injected.private.read_text(),
            "ed25519_public": injected.public,
        },
        "ssh_authorized_keys": [key.public],
        "bootcmd": ["echo boot >/root/order", ["sh", "-c", "ls /etc/marker || echo early >>/root/order"]],
        "write_files": [
            {"path": "/etc/marker", "content": "plain\n", "permissions": "0640"},
            {"path": "/opt/deep/b64", "encoding": "b64", "content": base64.b64encode(b"\0\1").decode()},
        ],
        "runcmd": [["sh", "-c", "echo 'run two words' >>/root/order"], "echo line >>/root/order"],
        "unheard_of": True,
    }
    message = email.mime.multipart.MIMEMultipart()
    message.attach(email.mime.text.MIMEText("#cloud-config\n" + yaml.safe_dump(config), "cloud-config"))
    message.attach(email.mime.text.MIMEText("#!/bin/sh\necho script >>/root/order\n", "x-shellscript"))
    image = cloud.client("ssm").get_parameter(Name=AL2023)["Parameter"]["Value"]
    made = launch(
        cloud,
        ImageId=image,
        UserData=message.as_string(),
        SecurityGroupIds=[open_group],
        MetadataOptions={"HttpTokens": "required"},
    )
    address = await_state(cloud, made["InstanceId"], "running")["PublicIpAddress"]
    public = " ".join(injected.public.split()[:2])

    def answers() -> bool:
        return ssh(address, "ec2-user", key, "true", trusted=[public]).returncode == 0

    await_that(answers)
    assert host_keys(cloud, made["InstanceId"]) == [public]
    assert "unheard_of" in console(cloud, made["InstanceId"])

    def there(command: str) -> str:
        return told(address, "ec2-user", key, command, trusted=[public])

    assert there("sudo cat /root/order").splitlines() == ["boot", "early", "script", "run two words", "line"]
    files = there("stat -c %a /etc/marker; sudo cat /etc/marker; od -An -tx1 /opt/deep/b64")
    assert files.split() == ["640", "plain", "00", "01"]
    unsigned = "curl -s -o /dev/null -w '%{http_code}' http://169.254.169.254/latest/meta-data/"
    assert there(unsigned) == "401"
    cloud.client("ec2").terminate_instances(InstanceIds=[made["InstanceId"]])


@pytest.mark.parametrize(("behaviour", "end"), [("terminate", "terminated"), ("stop", "stopped")])
def test_a_shutdown_inside_is_seen(
    cloud: Cloud, key: Key, key_name: str, open_group: str, behaviour: str, end: str
) -> None:
    made = launch(
        cloud,
        KeyName=key_name,
        SecurityGroupIds=[open_group],
        InstanceInitiatedShutdownBehavior=behaviour,
    )
    address = await_state(cloud, made["InstanceId"], "running")["PublicIpAddress"]
    ssh(address, "ubuntu", key, "sudo shutdown -h now", trusted=host_keys(cloud, made["InstanceId"]))
    ended = await_state(cloud, made["InstanceId"], end)
    assert ended["StateReason"]["Code"] == "Client.InstanceInitiatedShutdown"
    if end == "stopped":
        assert ended["BlockDeviceMappings"]  # it exists, and costs
        cloud.client("ec2").terminate_instances(InstanceIds=[made["InstanceId"]])
        await_state(cloud, made["InstanceId"], "terminated")


def test_a_spot_interruption_is_announced_inside(
    cloud: Cloud, key: Key, key_name: str, open_group: str
) -> None:
    made = launch(
        cloud,
        KeyName=key_name,
        SecurityGroupIds=[open_group],
        InstanceMarketOptions={"MarketType": "spot"},
        MetadataOptions={"HttpTokens": "required"},
    )
    identity = made["InstanceId"]
    address = await_state(cloud, identity, "running")["PublicIpAddress"]
    trusted = host_keys(cloud, identity)
    action = imds("meta-data/spot/instance-action")
    assert told(address, "ubuntu", key, action, trusted=trusted).endswith("404")
    cloud.interrupt(identity, notice_s=8)
    body = told(address, "ubuntu", key, action, trusted=trusted).splitlines()
    assert (json.loads(body[0])["action"], body[1]) == ("terminate", "200")
    ended = await_state(cloud, identity, "terminated")
    assert ended["StateReason"]["Code"] == "Server.SpotInstanceTermination"
    request = cloud.client("ec2").describe_spot_instance_requests(
        SpotInstanceRequestIds=[ended["SpotInstanceRequestId"]]
    )["SpotInstanceRequests"][0]
    assert request["Status"]["Code"] == "instance-terminated-no-capacity"


def test_without_an_open_port_there_is_no_way_in(cloud: Cloud, key: Key, key_name: str) -> None:
    ec2 = cloud.client("ec2")
    closed = ec2.create_security_group(GroupName="closed", Description="nothing")["GroupId"]
    made = launch(cloud, KeyName=key_name, SecurityGroupIds=[closed])
    address = await_state(cloud, made["InstanceId"], "running")["PublicIpAddress"]
    trusted = host_keys(cloud, made["InstanceId"])
    assert ssh(address, "ubuntu", key, "true", trusted=trusted).returncode == 255
    ec2.authorize_security_group_ingress(GroupId=closed, IpPermissions=[SSH_RULE])
    await_that(lambda: ssh(address, "ubuntu", key, "true", trusted=trusted).returncode == 0)
    ec2.terminate_instances(InstanceIds=[made["InstanceId"]])


def test_a_failing_host_takes_its_machine(cloud: Cloud, open_group: str) -> None:
    made = launch(cloud, SecurityGroupIds=[open_group])
    await_state(cloud, made["InstanceId"], "running")
    cloud.kill(made["InstanceId"])
    ended = await_state(cloud, made["InstanceId"], "terminated")
    assert ended["StateReason"]["Code"] == "Server.InternalError"


def test_terminated_while_it_still_starts_leaves_no_machine(cloud: Cloud, open_group: str) -> None:
    cloud.set(visible_after_s=0)
    made = launch(cloud, SecurityGroupIds=[open_group])
    cloud.client("ec2").terminate_instances(InstanceIds=[made["InstanceId"]])
    await_state(cloud, made["InstanceId"], "terminated")
    assert described(cloud, made["InstanceId"])["BlockDeviceMappings"] == []


def test_nothing_is_left_when_the_cloud_ends() -> None:
    with running(machine_memory=512 << 20, machine_disk=512 << 20) as brief:
        identity = launch(brief)["InstanceId"]
        await_state(brief, identity, "running")
        (before,) = [one for one in brief.instances() if one["id"] == identity]
        assert interface_of(before["address"])
    assert not interface_of(before["address"])


def interface_of(address: str) -> list[Any]:
    """Links of this computer to that machine."""
    routes: list[Any] = json.loads(
        subprocess.run(
            ["ip", "-j", "route", "show", "to", "match", address], capture_output=True, check=True
        ).stdout
        or "[]"
    )
    return [route for route in routes if route.get("dst", "").startswith("10.77.")]
