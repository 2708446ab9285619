#!/bin/sh
# The init of a machine: runs its user-data once, keeps its sshd alive, reaps orphans, and powers
# off at the deadline or when told, whether or not anybody is connected.
#
#   init.sh SSHD CONFIG LASTS USER_DATA LOG SERVER_PID MARK
#
# LASTS is seconds until the deadline, counted by a clock that nobody sets. SERVER_PID is the file in which sshd
# writes its number. MARK is empty where this is process 1 of a process namespace;
# otherwise the processes of the machine are those with ORCH_MACHINE=MARK in their environment.
# TERM, INT, HUP and USR1 are `poweroff`; USR2 is the power button, pressed some time before the plug is pulled.
# The sshd puts itself into the background: a shell would start it with SIGINT ignored, and so every job.
sshd=$1 config=$2 lasts=$3 user_data=$4 log=$5 server_pid=$6 mark=$7
user_data_patience=20 # seconds by which a user-data script may delay sshd
umask 022

uptime() { # of this computer, in whole seconds
    read -r up rest </proc/uptime
    echo "${up%.*}"
}
deadline=$(($(uptime) + lasts + 1)) # the rest of this second is not its time

trap 'power_off 10' TERM INT HUP USR1
trap 'power_off 90' USR2
trap : PIPE

members() {
    for process in /proc/[0-9]*; do
        if grep -qsxz "ORCH_MACHINE=$mark" "$process/environ"; then echo "${process#/proc/}"; fi
    done
}

signal_all() { # SIGNAL; false where there is nobody left
    if [ -z "$mark" ]; then
        kill -s "$1" -- -1 2>/dev/null
    else
        all=$(members)
        # shellcheck disable=SC2086
        [ -n "$all" ] && kill -s "$1" $all 2>/dev/null
    fi
}

power_off() { # GRACE: every process gets SIGTERM and so many seconds
    trap '' TERM INT HUP USR1 USR2
    signal_all CONT
    signal_all TERM
    end=$(($(uptime) + $1))
    sleep 0.05
    while signal_all 0 && [ "$(uptime)" -lt "$end" ]; do sleep 0.1; done
    signal_all KILL
    exit 0
}

serve() { # as a process that the kernel may choose when memory runs out, unlike this shell
    ( echo 0 >/proc/self/oom_score_adj; ORCH_MACHINE=$mark exec "$sshd" -f "$config" -E "${log%/*}/sshd.log" ) \
        >/dev/null 2>&1 </dev/null
}

serving() {
    read -r server <"$server_pid" && kill -0 "$server"
} 2>/dev/null

first_boot() {
    [ -f "$user_data" ] || return 0
    ended=$user_data.ended
    ( echo 0 >/proc/self/oom_score_adj; ORCH_MACHINE=$mark "$user_data"; echo $? >"$ended" ) >"$log" 2>&1 </dev/null &
    tenths=0
    while [ ! -e "$ended" ] && [ $tenths -lt ${user_data_patience}0 ]; do
        [ "$(uptime)" -lt "$deadline" ] || power_off 10
        sleep 0.1
        tenths=$((tenths + 1))
    done
}

if [ -z "$mark" ]; then
    echo -1000 2>/dev/null >/proc/self/oom_score_adj || :
else
    echo "pid $$"
    read -r _ || exit 75
fi
echo built
exec >/dev/null 2>&1 </dev/null
first_boot
serve

while :; do
    left=$((deadline - $(uptime)))
    [ $left -gt 0 ] || power_off 10
    [ $left -lt 5 ] || left=5
    sleep $left &
    wait $!
    serving || serve
done
