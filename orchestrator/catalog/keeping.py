"""Where catalogs are stored: one is shipped with the package, refreshed ones have a folder each.

A refreshed catalog appears completely or not at all: `<cache>/catalog/<cloud>/<time>/` is renamed into place.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from collections.abc import Mapping, MutableMapping
from datetime import datetime
from pathlib import Path

from orchestrator.catalog.rows import Catalog
from orchestrator.catalog.tables import read, write
from orchestrator.model import clouds

SHIPPED = Path(__file__).parent / "data"
"""The catalogs that are shipped with the package."""

_KEPT = 2
"""Number of refreshed catalogs to keep for one cloud: the newest, and one that another process may be
reading.
"""


def cache_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Return the folder of refreshed catalogs: $ORCH_CACHE_HOME, $XDG_CACHE_HOME/orch or ~/.cache/orch."""
    given = os.environ if environ is None else environ
    if home := given.get("ORCH_CACHE_HOME"):
        return Path(home)
    cache = given.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "orch"


def shipped_folder(cloud: str) -> Path:
    """Return the folder `data` beside the module that refreshes the catalog of `cloud`, without loading the
    module.
    """
    spec = importlib.util.find_spec(clouds.traits(cloud).catalog)
    return Path(str(spec and spec.origin)).parent / "data"


def newest(cloud: str, folder: Path, loaded: MutableMapping[Path, Catalog]) -> Catalog:
    """Return the newest catalog, refreshed or shipped. A refreshed one that cannot be read is skipped: it is
    only a cache.
    """
    shipped = _once(shipped_folder(cloud), cloud, loaded)
    for place in _folders(cloud, folder):
        try:
            found = _once(place, cloud, loaded)
        except (OSError, ValueError, KeyError):
            continue
        if _latest(found) >= _latest(shipped):
            return found
    return shipped


def keep(catalog: Catalog, folder: Path, now: datetime) -> Path:
    """Write `catalog` under `folder`, completely or not at all. Returns its folder."""
    place = folder / "catalog" / catalog.cloud
    place.mkdir(parents=True, exist_ok=True)
    staged = Path(tempfile.mkdtemp(prefix=".new-", dir=place))
    try:
        write(staged, catalog)
        target = place / now.strftime("%Y-%m-%dT%H-%M-%S-%fZ")
        staged.rename(target)
    except BaseException:
        shutil.rmtree(staged, ignore_errors=True)
        raise
    for old in _folders(catalog.cloud, folder)[_KEPT:]:
        shutil.rmtree(old, ignore_errors=True)
    return target


def _folders(cloud: str, folder: Path) -> list[Path]:
    """Return the folders of refreshed catalogs, newest first."""
    place = folder / "catalog" / cloud
    if not place.is_dir():
        return []
    return sorted((each for each in place.iterdir() if not each.name.startswith(".")), reverse=True)


def _once(place: Path, cloud: str, loaded: MutableMapping[Path, Catalog]) -> Catalog:
    key = place / cloud
    if key not in loaded:
        loaded[key] = read(place, cloud)
    return loaded[key]


def _latest(catalog: Catalog) -> str:
    return max([catalog.facts.date, *catalog.facts.regions.values()]).isoformat()
