"""The provider `gcp`: Compute Engine instances, through Google's client library."""
