#!/bin/sh
# current.sh GENERATED DOCS - fails unless each page that the build has written is the one in docs/.
set -eu
status=0
for page in "$1"/*.md; do
    if ! cmp -s "$page" "$2/$(basename "$page")"; then
        echo "docs/$(basename "$page") is not what the records say: run make docs"
        status=1
    fi
done
exit $status
