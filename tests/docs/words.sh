#!/bin/sh
# words.sh OPGEN PAGE - checks that the page explains every keyword of records and kernel blocks, in backquotes: alone,
# at the start of an example (`reduces mean`), or at the end of a function's name (`NAME_infer`).
words=$("$1" --words) || exit 1
test -n "$words" || { echo "opgen printed no words"; exit 1; }
set -f
missing=0
for word in $words; do
    pattern=$(printf '%s' "$word" | sed 's/[][*.?/{}]/\\&/g')
    grep -Eq "\`([A-Z]+_)?$pattern([ (][^\`]*)?\`" "$2" || { echo "$2 does not explain \`$word\`"; missing=1; }
done
exit $missing
