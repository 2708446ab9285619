# Make <base>/<kind>/<name> of what was unpacked in <base>/<kind>/<fresh>, at once or not at all.
# Arguments: base folder, kind (python, runtime, uv), fresh name, name. Whoever comes second yields.
cd "$1/$2" || exit 1
find . -maxdepth 1 -name '.new-*' -mmin +1440 -exec rm -rf {} + 2>/dev/null # left by a push that was killed
if [ "$2" = uv ]; then
    chmod 755 "$3/uv" && mv -f "$3/uv" "$4" && mv -f "$3/edition" edition && rmdir "$3"
    exit $?
fi
mv -T "$3" "$4" 2>/dev/null && exit 0
rm -rf "$3"
[ -d "$4" ]
