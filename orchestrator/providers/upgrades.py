"""Keep a machine's packages as its image has them: shell for the first boot of every cloud. Pure.

An upgrade in mid-run may replace the GPU's driver below a training, which then cannot open it any more
("Driver/library version mismatch": github.com/lyulyul/shine-cluster/issues/50, pando85/homelab/pull/4110).
An upgrade that has begun is left to end: to stop dpkg half-way would break the machine.
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
"""By the timeout (apt >= 1.9.11) whoever installs waits for an upgrade that had begun."""
