#!/bin/sh
# links.sh SOURCE - checks that whatever the pages of the tree refer to exists:
#
#   - every relative link and image of every Markdown page, and the heading that a link names behind '#'
#   - every file or folder that README.md and the pages of docs/ name in backquotes, such as `examples/mnist.c`
#   - every page that any file names by its path from the root, in a comment or in a message
#
# and that examples/README.md has a line for every example.
# It also finds marked counts that would end a paragraph in the middle.
# Addresses of other sites are not visited.
set -eu
cd "$1"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Folders that start with a dot, and those of builds, are not part of the tree.
find . \( -name '.?*' -o -name 'build*' \) -prune -o -type f -name '*.md' -print | sed 's|^\./||' | sort >"$work/pages"
tr '\n' '\0' <"$work/pages" | xargs -0 awk -f tests/docs/links.awk >"$work/found"
sed -n 's/^anchor //p' "$work/found" >"$work/anchors"

# Removes '.' and 'x/..' from a path.
simplify() {
    echo "/$1/" | sed -e ':a' -e 's|/\./|/|g' -e 's|//|/|g' -e 's|/[^/.][^/]*/\.\./|/|' -e 'ta' -e 's|^/||' -e 's|/$||'
}

check_link() { # PAGE:LINE TARGET
    page=${1%:*}
    case $2 in
    *://* | mailto:*) return 0 ;;
    \#*) path=$page ;;
    *) path=$(simplify "$(dirname "$page")/${2%%#*}") ;;
    esac
    case $path in
    ..*) echo "$1: the link $2 leaves the tree" && return 0 ;;
    esac
    [ -e "$path" ] || { echo "$1: the link $2 leads to $path, which does not exist" && return 0; }
    case $2 in
    *.md\#* | \#*)
        grep -Fqx "$path#${2#*#}" "$work/anchors" || echo "$1: $path has no heading #${2#*#}"
        ;;
    esac
}

sed -n 's/^link //p' "$work/found" | while read -r where target; do check_link "$where" "$target"; done >"$work/wrong"

grep -E '^path (README|docs/)' "$work/found" |
    sed -nE 's%^path ([^ ]*) ((bench|cmake|docs|examples|include|src|tests|tools)/[A-Za-z0-9_./-]*)$%\1 \2%p' |
    while read -r where path; do [ -e "$path" ] || echo "$where: $path does not exist"; done >>"$work/wrong"

grep -rnoE '(^|[^A-Za-z0-9_/.-])docs/[A-Za-z0-9_/-]+\.(md|svg)' --exclude-dir='.?*' --exclude-dir='build*' . |
    sed -E 's%^\./([^:]*:[0-9]*):[^d]?(docs/.*)$%\1 \2%' | sort -u |
    while read -r where path; do [ -e "$path" ] || echo "$where: $path does not exist"; done >>"$work/wrong"

for example in examples/*.c; do
    name=${example#examples/}
    grep -Fq "[$name]($name)" examples/README.md || echo "examples/README.md: $name is missing"
done >>"$work/wrong"

sed -n 's/^mark \(.*\)/\1: a count at the start of a line ends the paragraph/p' "$work/found" >>"$work/wrong"

sort -u "$work/wrong"
links=$(grep -c '^link ' "$work/found")
echo "$(wc -l <"$work/pages") pages, $links links, $(sort -u "$work/wrong" | wc -l) of them wrong"
[ ! -s "$work/wrong" ]
