"""The provider `aws`: EC2 instances, by boto3.

Everything of a machine goes into one RunInstances call; nothing is created beside it and nothing has to
be cleaned up after it. What AWS is asked, and by which settings, is in `settings`.
"""
