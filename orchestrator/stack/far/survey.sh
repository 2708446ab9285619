# What lies on a machine already, as name=value lines: one command, because each costs a round trip.
# Arguments: base folder, interpreter ("cpython-3.11.7"), its binary ("python3.11"), digest of the runtime,
# edition of uv.
base=$1 interpreter=$2 binary=$3 runtime=$4 uv=$5
system=$(uname -s) machine=$(uname -m)
key="$interpreter-$system-$machine"
echo "system=$system"
echo "machine=$machine"
echo "key=$key"
[ -f "$base/python/$key/complete" ] && [ -x "$base/python/$key/bin/python3" ] && echo python=1
[ -f "$base/runtime/$runtime/enter.py" ] && echo runtime=1
[ -x "$base/uv/uv" ] && [ "$(cat "$base/uv/edition" 2>/dev/null)" = "$uv" ] && echo uv=1
command -v gzip >/dev/null 2>&1 && echo gzip=1
if ! { [ -f "$base/python/$key/complete" ] && [ -x "$base/python/$key/bin/python3" ]; }; then
    echo "libc=$(getconf GNU_LIBC_VERSION 2>/dev/null)"
    for name in "$binary" python3; do
        found=$(command -v "$name" 2>/dev/null) && echo "candidate=$found"
    done
    for folder in /lib /lib64 /usr/lib /usr/lib64 /lib/"$machine"-linux-gnu /usr/lib/"$machine"-linux-gnu /usr/local/lib; do
        for library in "$folder"/lib*.so*; do
            [ -e "$library" ] && echo "library=${library##*/}"
        done
    done
fi
exit 0
