#!/bin/sh
# words.sh OPGEN PAGE - every word of records and kernel blocks is explained on the page, in backquotes: alone, or as
# the beginning of an example (`reduces mean`), or as the end of a function's name (`NAME_infer`).
words=$("$1" --words) || exit 1
test -n "$words" || { echo "opgen printed no words"; exit 1; }
set -f
missing=0
for word in $words; do
    pattern=$(printf '%s' "$word" | sed 's/[][*.?/{}]/\\&/g')
    grep -Eq "\`([A-Z]+_)?$pattern([ (][^\`]*)?\`" "$2" || { echo "$2 does not explain \`$word\`"; missing=1; }
done
exit $missing
