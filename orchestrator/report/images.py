"""Format machine images: what they hold, and what they cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from orchestrator.report.units import duration, money, size, table


def images_text(images: Sequence[Mapping[str, Any]], refused: Mapping[str, str]) -> str:
    """A table of images with the sum of their costs. See `orch image list --json`."""
    lines = [_table(images)] if images else ["No image was made by orch."]
    known = [each["usd_month"] for each in images if each["usd_month"] is not None]
    if sum(known):
        lines.append(f"Together at most {money(sum(known))} a month, until: orch image delete NAME")
    lines += [f"{cloud} was not asked: {why}" for cloud, why in refused.items()]
    return "\n".join(lines)


def baked_text(image: Mapping[str, Any], *, existed: bool, cost: float, seconds: float, up: str) -> str:
    """The end screen of `orch image bake`."""
    what = f"The image {image['name']} ({_held(image)}, {_where(image)})"
    made = "exists already" if existed else f"was made in {duration(seconds)}"
    after = "" if existed else f"; its machine was deleted, and cost {money(cost)}"
    lines = [f"{what} {made}{after}."]
    if image["usd_month"]:
        lines.append(
            f"It costs at most {money(image['usd_month'])} a month, until: orch image delete {image['name']}"
        )
    return "\n".join((*lines, f"Next: {up}    # boots it by itself"))


def _table(images: Sequence[Mapping[str, Any]]) -> str:
    rows = [["image", "where", "state", "holds", "$/month", "age"]]
    for each in images:
        age = (datetime.now(UTC) - datetime.fromisoformat(each["created_at"])).total_seconds()
        cost = "unknown" if each["usd_month"] is None else money(each["usd_month"])
        rows.append([each["name"], _where(each), each["state"], _held(each), cost, duration(max(age, 0))])
    return table(rows)


def _held(image: Mapping[str, Any]) -> str:
    return size(image["size"]) if image["size"] is not None else f"at most {size(image['disk'])}"


def _where(image: Mapping[str, Any]) -> str:
    return " ".join(part for part in (image["provider"], image["region"]) if part)
