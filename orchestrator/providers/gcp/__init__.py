"""The provider `gcp`: machines of Google Compute Engine, by Google's own client library."""
