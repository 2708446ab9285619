"""The provider `aws`: EC2 instances, through boto3.

One RunInstances call creates everything that a machine needs, so nothing else has to be cleaned up. The
settings are described in `settings`.
"""
