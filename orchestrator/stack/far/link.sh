# Take a Python of the machine itself: <base>/python/<fresh>/bin/python3 points to it.
# Arguments: base folder, fresh name, the interpreter's real path.
set -e
mkdir -p "$1/python/$2/bin"
ln -s "$3" "$1/python/$2/bin/python3"
echo "$3" >"$1/python/$2/complete"
