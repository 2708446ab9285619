"""Run programs again in forks, with seeds, files and settings imposed."""
