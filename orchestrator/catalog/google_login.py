"""The login at Google, and the project for which a request with a person's own credentials counts.

Some APIs (Service Usage, Resource Manager, OS Login, Cloud Billing) count it for the project of the client
that made the credentials, unless the request names another one. That of `gcloud auth application-default
login` is gcloud's own, in which these APIs are not enabled: hashicorp/terraform-provider-google#1538. gcloud
writes a project into the credentials only where one was chosen before.
"""

from __future__ import annotations

import warnings
from typing import Any

_SCOPE = "https://www.googleapis.com/auth/cloud-platform"


def default() -> tuple[Any, str]:
    """Return the application-default credentials, and the project that comes with them or "".

    Raises google.auth.exceptions.GoogleAuthError.
    """
    import google.auth

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*without a quota project", category=UserWarning)
        credentials, project = google.auth.default(scopes=[_SCOPE])
    return credentials, project or ""


def counted_for(project: str, credentials: Any) -> Any:
    """Return `credentials` that name `project`, where they are a person's and name none yet."""
    from google.oauth2.credentials import Credentials

    if not project or not isinstance(credentials, Credentials) or credentials.quota_project_id:
        return credentials
    return credentials.with_quota_project(project)
