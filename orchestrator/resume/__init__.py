"""Prove that a job which is killed after a checkpoint goes on as if it never was."""
