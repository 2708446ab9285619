"""Objects in a bucket, a folder or memory, by one protocol: see model.stores.Store."""

from orchestrator.errors import Changed, Corrupt, Missing, StorageDenied, StorageError, StorageUnreachable
from orchestrator.model.stores import LARGEST_GET, Grant, Link, Store, Stored

from .opening import open_store

__all__ = [
    "LARGEST_GET",
    "Changed",
    "Corrupt",
    "Grant",
    "Link",
    "Missing",
    "StorageDenied",
    "StorageError",
    "StorageUnreachable",
    "Store",
    "Stored",
    "open_store",
]
