#!/bin/sh
# check.sh EXAMPLE PROGRAM [ARGUMENTS] - runs an example and fails unless its output is that of a net that has learned:
# expected.txt says which numbers it prints.
set -u
here=$(cd "$(dirname "$0")" && pwd)
example=$1
shift
output=$(mktemp) || exit 1
trap 'rm -f "$output"' EXIT
"$@" >"$output"
status=$?
cat "$output"
if [ $status -ne 0 ]; then
    echo "$example: exit status $status" >&2
    exit 1
fi

awk -v example="$example" '
    # the text as a regular expression
    function escaped(text) { gsub(/[][\\.^$*+?(){}|\/]/, "\\\\&", text); return text }
    function fail(why) { print example ": " why | "cat 1>&2"; failed = 1 }

    FNR == NR { # expected.txt
        if ($1 != example) next
        checks++
        which[checks] = $2
        text = $0
        skip = $2 == "has" ? 2 : $2 == "each" ? 5 : 4 # words in front of the text
        for (i = 0; i < skip; i++) sub(/^ *[^ ]+ +/, "", text)
        count[checks] = $2 == "each" ? $3 : 1
        from[checks] = $(skip - 1)
        to[checks] = $skip
        texts[checks] = text
        at = index(text, "#")
        before[checks] = escaped(substr(text, 1, at - 1))
        after[checks] = escaped(substr(text, at + 1))
        next
    }
    { # the output
        for (c = 1; c <= checks; c++) {
            if (which[c] == "has") {
                if (index($0, texts[c])) found[c]++
                continue
            }
            if (!match($0, before[c] " *[-+]?[0-9][0-9.]*([eE][-+]?[0-9]+)?" after[c])) continue
            number = substr($0, RSTART, RLENGTH)
            sub("^" before[c], "", number)
            number += 0
            found[c]++
            if (which[c] == "first" && found[c] > 1) continue
            good[c] = number >= from[c] + 0 && number <= to[c] + 0
            seen[c] = number
            if (which[c] == "each" && !good[c]) bad[c] = 1
        }
    }
    END {
        if (!checks) fail("expected.txt has no line for it")
        for (c = 1; c <= checks; c++) {
            if (!found[c]) fail("it does not print \"" texts[c] "\"")
            else if (which[c] == "each" && found[c] != count[c])
                fail("it prints \"" texts[c] "\" " found[c] " times, not " count[c])
            else if (which[c] != "has" && (!good[c] || bad[c]))
                fail("the " which[c] " \"" texts[c] "\" is " seen[c] ", not in " from[c] " .. " to[c])
        }
        exit failed
    }' "$here/expected.txt" "$output"
