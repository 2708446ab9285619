"""What people read: plain text that fits 100 columns, from the same facts that `--json` prints."""
