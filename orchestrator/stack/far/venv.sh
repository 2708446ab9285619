# Build the environment <base>/stacks/<digest> from a pylock.toml; nothing of an earlier attempt is kept.
# Arguments: base folder, digest, on or off (whether uv may use the network), interpreter, command that compiles.
# It is complete only when <digest>.json is written, which is not done here.
base=$1 digest=$2 network=$3 python=$4
shift 4
cd "$base/stacks" || exit 1
if command -v flock >/dev/null 2>&1; then
    exec 9>".$digest.lock"
    flock 9
fi
rm -f "$digest.json"
rm -rf "$digest"
export UV_CACHE_DIR="$base/uv-cache" UV_NO_CONFIG=1 UV_LINK_MODE=hardlink UV_PYTHON_DOWNLOADS=never UV_NO_PROGRESS=1
set -e
"$base/uv/uv" venv --quiet --no-project --python "$python" "$digest"
sync() {
    "$base/uv/uv" pip sync --quiet --color never --python "$digest/bin/python" --require-hashes \
        --allow-empty-requirements "$@" "pylock.$digest.toml"
}
alone='--offline --no-index --no-build'
if [ "$network" = off ]; then
    # shellcheck disable=SC2086 # words
    sync $alone
elif ! sync 2>".$digest.said"; then
    cat ".$digest.said" >&2
    grep -q certificate ".$digest.said" # of an index that only this system's certificates vouch for
    export UV_SYSTEM_CERTS=1
    sync
fi
rm -f ".$digest.said"
"$@"
