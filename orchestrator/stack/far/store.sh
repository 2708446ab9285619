# The wheels under <base>/wheels, and what is left of earlier pushes in .part.
# Arguments: base folder. On stdin "sha256 filename" lines, the wheels that are wanted.
# A wheel of .part whose bytes are right is adopted. Prints the hash of each wanted wheel that is not there.
mkdir -p "$1/wheels/.part" && cd "$1/wheels" || exit 1
while read -r digest name; do
    [ -f "$digest/$name" ] && continue
    if [ -f ".part/$digest/$name" ] && echo "$digest  .part/$digest/$name" | sha256sum -c --status; then
        rm -rf "$digest"
        mv ".part/$digest" "$digest" && continue
    fi
    rm -rf ".part/$digest"
    echo "$digest"
done
