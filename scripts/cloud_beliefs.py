"""Beliefs about the real clouds, as questions to them; each has the name of a row in docs/clouds.md."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator import catalog


class Unasked(Exception):
    """The cloud could not be asked; the text says why."""


class Refused(Exception):
    """A verb of orch failed: its exit code, and what it said."""

    def __init__(self, verb: str, code: int, answer: str) -> None:
        told = json.loads(answer)["error"] if answer.startswith("{") else {"message": answer}
        remedy = f"\nNext: {told['next_command']}" if told.get("next_command") else ""
        super().__init__(f"orch {verb}: {told['message']}{remedy}")
        self.exit_code = code


@dataclass
class World:
    """What the checks look at. `held`: what `orch up --json` said; `seen`: as the cloud's API shows it."""

    cloud: str
    region: str
    type: str
    folder: Path
    clients: Any
    held: dict[str, Any] = field(default_factory=dict)
    seen: dict[str, Any] = field(default_factory=dict)

    def orch(self, *argv: str, apart: bool = False) -> subprocess.CompletedProcess[str]:
        """Run a verb. `apart`: Ctrl-C of the terminal does not reach it."""
        command = (sys.executable, "-m", "orchestrator", *argv)
        return subprocess.run(
            command,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            text=True,
            stdin=subprocess.DEVNULL,
            start_new_session=apart,
        )

    def json(self, verb: str, *argv: str) -> dict[str, Any]:
        """Raises Refused where the verb fails."""
        print(f"$ orch {' '.join((verb, *argv))}", flush=True)
        done = self.orch(verb, "--json", *argv)
        if done.returncode:
            raise Refused(verb, done.returncode, done.stdout)
        value: dict[str, Any] = json.loads(done.stdout)
        return value

    def there(self, *command: str) -> subprocess.CompletedProcess[str]:
        return self.orch("ssh", "--", *command)

    def kind(self) -> Any:
        kinds = catalog.load(self.cloud).kinds
        return next(kind for kind in kinds if kind.instance_type == self.type)


Check = Callable[[World], str]
"""Returns "" where the belief holds, else what the cloud says instead. Raises Unasked."""


def same(found: object, believed: object) -> str:
    return "" if found == believed else f"{found!r}, where {believed!r} was believed"


# ---------------------------------------------------------------- AWS

UBUNTU = "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"
DLAMI = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id"


def aws_image(parameter: str) -> Check:
    def check(world: World) -> str:
        ssm, ec2 = world.clients.client("ssm", world.region), world.clients.ec2(world.region)
        identity = ssm.get_parameter(Name=parameter)["Parameter"]["Value"]
        (image,) = ec2.describe_images(ImageIds=[identity])["Images"]
        return same((image["Architecture"], image["State"]), ("x86_64", "available"))

    return check


def aws_type(world: World) -> str:
    ec2, kind = world.clients.ec2(world.region), world.kind()
    (found,) = ec2.describe_instance_types(InstanceTypes=[world.type])["InstanceTypes"]
    says = (found["VCpuInfo"]["DefaultVCpus"], found["MemoryInfo"]["SizeInMiB"] << 20)
    return same(says, (kind.cpus, kind.memory))


def aws_quota(world: World) -> str:
    client = world.clients.client("service-quotas", world.region)
    found = client.get_service_quota(ServiceCode="ec2", QuotaCode="L-1216C47A")["Quota"]
    return "" if "Standard" in found["QuotaName"] else found["QuotaName"]


def aws_instance(world: World) -> dict[str, Any]:
    ec2 = world.clients.ec2(world.region)
    (reservation,) = ec2.describe_instances(InstanceIds=[world.held["machine"]])["Reservations"]
    (found,) = reservation["Instances"]
    volume = found["BlockDeviceMappings"][0]["Ebs"]["VolumeId"]
    (disk,) = ec2.describe_volumes(VolumeIds=[volume])["Volumes"]
    ending = ec2.describe_instance_attribute(
        InstanceId=found["InstanceId"], Attribute="instanceInitiatedShutdownBehavior"
    )
    return {**found, "disk": disk, "ending": ending["InstanceInitiatedShutdownBehavior"]["Value"]}


def aws_labels(world: World) -> str:
    def labelled(thing: Mapping[str, Any]) -> bool:
        keys = {tag["Key"] for tag in thing.get("Tags", thing.get("TagSet", ()))}
        return {"orch-lease", "purpose"} <= keys

    return same((labelled(world.seen), labelled(world.seen["disk"])), (True, True))


def aws_disk(world: World) -> str:
    disk, mapping = world.seen["disk"], world.seen["BlockDeviceMappings"][0]["Ebs"]
    says = (disk["VolumeType"], disk.get("Iops"), disk.get("Throughput"), mapping["DeleteOnTermination"])
    return same(says, ("gp3", 3000, 125, True))


def aws_metadata(world: World) -> str:
    options = world.seen["MetadataOptions"]
    return same((options["HttpTokens"], options["HttpPutResponseHopLimit"]), ("required", 1))


def aws_proof(world: World) -> str:
    tags = {tag["Key"]: tag["Value"] for tag in world.seen["Tags"]}
    return same(tags.get("orch-proof"), "renewed")


def aws_deadline(world: World) -> str:
    done = world.there("systemctl", "is-active", "orch-deadline.timer")
    if done.returncode in (1, 126, 127):
        raise Unasked("there is no systemd on the machine")
    return same(done.stdout.strip(), "active")


def aws_confined(world: World) -> str:
    if world.there("test", "-d", "/etc/sudoers.d").returncode:
        raise Unasked("the machine's sudo has no /etc/sudoers.d, or there is none")
    return "" if world.there("sudo", "-n", "true").returncode else "the job's user may become root"


def aws_terminated(world: World) -> str:
    ec2 = world.clients.ec2(world.region)
    found = ec2.describe_instances(InstanceIds=[world.held["machine"]])["Reservations"]
    return same([one["Instances"][0]["State"]["Name"] for one in found], ["terminated"])


def aws_disk_gone(world: World) -> str:
    ec2, volume = world.clients.ec2(world.region), world.seen["disk"]["VolumeId"]
    wanted = [{"Name": "volume-id", "Values": [volume]}]
    end = time.monotonic() + 60
    while (found := ec2.describe_volumes(Filters=wanted)["Volumes"]) and time.monotonic() < end:
        time.sleep(2)
    return same([disk["State"] for disk in found], [])


# ---------------------------------------------------------------- Google Cloud


def gcp_family(project: str, name: str) -> Check:
    def check(world: World) -> str:
        from orchestrator.providers.gcp.images import Family

        return "" if world.clients.newest(Family(project, name)) else f"{project} has no family {name}"

    return check


def gcp_instance(world: World) -> dict[str, Any]:
    found = world.clients.instance(world.held["zone"], world.held["machine"])
    if found is None:
        raise SystemExit("Google does not know the machine that it has just made.")
    return dict(found)


def gcp_deadline(world: World) -> str:
    scheduling = world.seen["scheduling"]
    seconds = int(scheduling.get("maxRunDuration", {}).get("seconds", 0))
    says = (scheduling.get("instanceTerminationAction"), 1500 <= seconds <= 1800)
    return same(says, ("DELETE", True))


def gcp_labels(world: World) -> str:
    return same(sorted({"orch-lease", "purpose"} - set(world.seen.get("labels", {}))), [])


def gcp_disk(world: World) -> str:
    return same([disk.get("autoDelete") for disk in world.seen["disks"]], [True])


def gcp_host_key(world: World) -> str:
    found = world.clients.guest_attributes(world.held["zone"], world.held["machine"], "hostkeys/")
    return same("ssh-ed25519" in {item.get("key") for item in found}, True)


def gcp_gone(world: World) -> str:
    return same(world.clients.instance(world.held["zone"], world.held["machine"]), None)


def gcp_remembered(world: World) -> str:
    told = world.clients.done_to(world.held["zone"], str(world.seen["id"]))
    return same("delete" in {str(one.get("operationType", "")).lower() for one in told}, True)


# ---------------------------------------------------------------- both


def no_identity(key: str) -> Check:
    return lambda world: same(world.seen.get(key) or None, None)


def login(world: World) -> str:
    done = world.there("uname", "-m")
    return same((done.returncode, done.stdout.strip()), (0, "x86_64"))


BEFORE: dict[str, dict[str, Check]] = {
    "aws": {
        "aws-ubuntu": aws_image(UBUNTU),
        "aws-dlami": aws_image(DLAMI),
        "aws-type": aws_type,
        "aws-quota": aws_quota,
    },
    "gcp": {
        "gcp-ubuntu": gcp_family("ubuntu-os-cloud", "ubuntu-2404-lts-amd64"),
        "gcp-gpu-image": gcp_family("deeplearning-platform-release", "common-cu129-ubuntu-2204-nvidia-580"),
    },
}
WITH_MACHINE: dict[str, dict[str, Check]] = {
    "aws": {
        "aws-labels": aws_labels,
        "aws-disk": aws_disk,
        "aws-power-off": lambda world: same(world.seen["ending"], "terminate"),
        "aws-metadata": aws_metadata,
        "aws-no-identity": no_identity("IamInstanceProfile"),
        "aws-host-key": aws_proof,
        "aws-login": login,
        "aws-deadline": aws_deadline,
        "aws-confined": aws_confined,
    },
    "gcp": {
        "gcp-deadline": gcp_deadline,
        "gcp-labels": gcp_labels,
        "gcp-disk": gcp_disk,
        "gcp-no-identity": no_identity("serviceAccounts"),
        "gcp-host-key": gcp_host_key,
        "gcp-login": login,
    },
}
AFTER: dict[str, dict[str, Check]] = {
    "aws": {"aws-terminated": aws_terminated, "aws-disk-gone": aws_disk_gone},
    "gcp": {"gcp-gone": gcp_gone, "gcp-remembered": gcp_remembered},
}


def judge(world: World, checks: Mapping[str, Check]) -> list[str]:
    """The names of the beliefs that are wrong; each is printed with what the cloud says."""
    wrong = []
    for name, check in checks.items():
        try:
            says = check(world)
            print(f"{'WRONG' if says else 'ok':<6} {name}{f': {says}' if says else ''}", flush=True)
            wrong += [name] if says else []
        except Exception as error:  # a cloud may refuse any question; the others are asked all the same
            print(f"?      {name}: {type(error).__name__}: {error}", flush=True)
    return wrong
