#!/bin/sh
# poweroff, halt, reboot and shutdown of a machine: all of them end it. Only `shutdown` knows delays.
pending=@RUN@/shutdown.pid
delay=0
[ "${0##*/}" != shutdown ] || delay=60
for word in "$@"; do
    case $word in
    -c)
        [ ! -f "$pending" ] || kill "$(cat "$pending")"
        rm -f "$pending"
        exit 0
        ;;
    now | -*) ;;
    +[0-9]*) delay=$((${word#+} * 60)) ;;
    *)
        echo "${0##*/}: $word: only now and +MINUTES are known here" >&2
        exit 1
        ;;
    esac
    [ "$word" != now ] || delay=0
done
if [ "$delay" -gt 0 ]; then
    (sleep "$delay" && kill -s TERM @INIT@) >/dev/null 2>&1 </dev/null &
    echo $! >"$pending"
    exit 0
fi
kill -s TERM @INIT@
