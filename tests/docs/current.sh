#!/bin/sh
# current.sh GENERATED REFERENCE - fails if a generated page differs from the one in docs/reference, or if one of the two
# does not exist.
set -eu
status=0
for page in "$1"/*.md; do
    if ! cmp -s "$page" "$2/$(basename "$page")"; then
        echo "docs/reference/$(basename "$page") does not agree with the records: run make docs"
        status=1
    fi
done
for page in "$2"/*.md; do
    if [ ! -f "$1/$(basename "$page")" ]; then
        echo "docs/reference/$(basename "$page") is not generated: written pages are in docs/guide"
        status=1
    fi
done
exit $status
