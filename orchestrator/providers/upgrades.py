"""Prevent automatic upgrades of a machine's packages: shell code for the first boot on every cloud. Pure.

An upgrade during a run may replace the GPU's driver, which a training then cannot open any more
("Driver/library version mismatch": github.com/lyulyul/shine-cluster/issues/50, pando85/homelab/pull/4110). An
upgrade that has begun is not stopped: interrupting dpkg would break the machine.
"""

from __future__ import annotations

NO_UPGRADES = r"""
if command -v systemctl >/dev/null 2>&1; then
  systemctl mask apt-daily.service apt-daily-upgrade.service unattended-upgrades.service
  systemctl mask apt-daily.timer apt-daily-upgrade.timer dnf-automatic.timer
  systemctl stop --no-block apt-daily.timer apt-daily-upgrade.timer dnf-automatic.timer
fi >/dev/null 2>&1
if [ -d /etc/apt/apt.conf.d ]; then
  printf '%s\n' 'APT::Periodic::Enable "0";' 'APT::Periodic::Unattended-Upgrade "0";' \
    'DPkg::Lock::Timeout "600";' >/etc/apt/apt.conf.d/99orch
fi
""".strip()
"""With the timeout (apt >= 1.9.11), an installation waits for an upgrade that has begun."""
