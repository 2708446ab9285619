"""Prove that a job that is killed after a checkpoint resumes as if it had not been interrupted."""
