"""Reach a machine without a public address through Google's IAP tunnel. Pure."""

from __future__ import annotations

PURPOSE = "The tunnel of the Identity-Aware Proxy (ORCH_GCP_INTERNAL=iap)"
PROGRAMS = {
    "gcloud": "curl -sSL https://sdk.cloud.google.com | bash    # or your system's google-cloud-cli package",
}
"""Programs that the tunnel needs on this computer, and how to install each."""


def tunnel_command(project: str, zone: str, name: str, port: int) -> tuple[str, ...]:
    """Return the command that forwards `port` of this computer to the machine's ssh server while it runs."""
    return _command(project, zone, name, f"--local-host-port=127.0.0.1:{port}")


def proxy_command(project: str, zone: str, name: str) -> tuple[str, ...]:
    """Return the command whose standard streams are the machine's ssh server. The firewall must admit
    Google's proxies (35.235.240.0/20) to port 22, and the caller needs roles/iap.tunnelResourceAccessor.
    """
    return _command(project, zone, name, "--listen-on-stdin", "--verbosity=warning")


def _command(project: str, zone: str, name: str, *how: str) -> tuple[str, ...]:
    words = ("gcloud", "compute", "start-iap-tunnel", name, "22")
    return (*words, *how, f"--zone={zone}", f"--project={project}")
