#!/bin/sh
# said.sh PAGE HEADING WORDS... - checks that the section of the page below this heading has each of the WORDS.
page=$1
heading=$2
shift 2
section=$(awk -v heading="$heading" '/^#+ / { inside = index($0, heading) > 0 } inside' "$page")
test -n "$section" || { echo "$page has no heading with '$heading'"; exit 1; }
missing=0
for words in "$@"; do
    printf '%s' "$section" | grep -qF -- "$words" || { echo "$page, $heading: no '$words'"; missing=1; }
done
exit $missing
