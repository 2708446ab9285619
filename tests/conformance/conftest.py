"""The emulated clouds, shared with the tests that speak to them directly."""

from tests.clouds.conftest import shared_aws, shared_google

__all__ = ["shared_aws", "shared_google"]
