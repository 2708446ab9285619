#!/usr/bin/env bash
# Train today's model. Prints nothing on success; on failure it prints the log, which cron mails.
# Put it beside orch.yaml. It may be called again at any time: one day is one run.
set -euo pipefail
cd "$(dirname "$0")"

run=nightly-$(date -u +%F)
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Seconds to wait before each retry. A retry has the same id: it continues, and nothing is paid for twice.
for pause in ${NIGHTLY_PAUSES-60 600 3600} last; do
    code=0
    orch run orch.yaml --run-id "$run" >>"$log" 2>&1 || code=$?
    case $code in
    0) exit 0 ;;
    4 | 8 | 11 | 12 | 14 | 15 | 16) [ "$pause" = last ] || sleep "$pause" ;; # worth a retry: docs/schedule.md
    *) break ;;
    esac
done

echo "$run failed with exit code $code on $(hostname), and nobody will retry it before tomorrow."
cat "$log"
exit "$code"
