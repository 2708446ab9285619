"""Reach a machine without a public address through a tunnel of Session Manager. Pure."""

from __future__ import annotations

PURPOSE = "The tunnel of Session Manager (ORCH_AWS_ADDRESS=ssm)"
_DEB = (
    "https://s3.amazonaws.com/session-manager-downloads/plugin/latest/ubuntu_64bit/session-manager-plugin.deb"
)
PROGRAMS = {
    "aws": "pip install awscli",
    "session-manager-plugin": f"curl -sO {_DEB} && sudo dpkg -i session-manager-plugin.deb",
}
"""Programs that the tunnel needs on this computer, and how to install each."""


def proxy_command(instance: str, region: str) -> tuple[str, ...]:
    """Return the command whose standard streams are the machine's ssh server. The machine runs the agent
    of AWS, and is allowed to use Session Manager by its instance profile or by the account's default host
    management.
    """
    return (
        *("aws", "ssm", "start-session"),
        f"--region={region}",
        f"--target={instance}",
        "--document-name=AWS-StartSSHSession",
        "--parameters=portNumber=22",
    )
