"""The way to a machine without a public address: Google's own tunnel. Pure."""

from __future__ import annotations


def tunnel_command(project: str, zone: str, name: str, port: int) -> tuple[str, ...]:
    """The command that makes ssh of the machine answer at `port` of this computer while it runs."""
    return (
        "gcloud",
        "compute",
        "start-iap-tunnel",
        name,
        "22",
        f"--local-host-port=127.0.0.1:{port}",
        f"--zone={zone}",
        f"--project={project}",
    )
