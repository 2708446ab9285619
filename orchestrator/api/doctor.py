"""doctor: what this computer has, which tier of local machine it supports, and how to improve it."""

from __future__ import annotations

import platform
import shutil
from pathlib import Path
from typing import Any

from orchestrator.providers.local.survey import survey


def examine() -> dict[str, Any]:
    """{ready, tier, lost[], missing[], fix, checks[{name, ok, detail}]}; changes nothing."""
    found = survey()
    checks = [_python(), _uv(), _program("ssh", "orch ssh"), _program("git", "version control"), _disk()]
    ready = found.tier in ("netns", "userns", "process") and all(
        check["ok"] or not check["needed"] for check in checks
    )
    return {
        "ready": ready,
        "tier": found.tier,
        "lost": found.limits,
        "missing": found.missing,
        "fix": found.fix,
        "checks": checks,
    }


def _python() -> dict[str, Any]:
    detail = f"{platform.python_implementation()} {platform.python_version()}"
    return {"name": "python", "ok": True, "needed": True, "detail": detail}


def _uv() -> dict[str, Any]:
    import uv

    path = uv.find_uv_bin()
    return {"name": "uv", "ok": bool(path), "needed": True, "detail": path or "absent: pip install uv"}


def _program(name: str, used: str) -> dict[str, Any]:
    path = shutil.which(name)
    return {"name": name, "ok": bool(path), "needed": False, "detail": path or f"absent; needed by {used}"}


def _disk() -> dict[str, Any]:
    free = shutil.disk_usage(Path.cwd()).free
    enough = free > 6 << 30
    detail = f"{free / (1 << 30):.0f} GiB free" + ("" if enough else "; a TensorFlow stack needs about 6")
    return {"name": "disk", "ok": enough, "needed": False, "detail": detail}
