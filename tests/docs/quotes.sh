#!/bin/sh
# quotes.sh SOURCE PAGE... - code that a page quotes from the tree is there, letter by letter. A quoted block begins with
# ```c PATH; a line with nothing but ... stands for lines that are left out.
cd "$1" || exit 1
shift
awk '
function fail(text) { print FILENAME ":" FNR ": " text; failures = 1 }
# The text of a file, with a newline before the first line.
function read_file(path,    line, text) {
    text = "\n"
    while ((getline line < path) > 0) text = text line "\n"
    close(path)
    return text
}
function check_piece() {
    if (piece != "" && !index(tree, "\n" piece)) fail(path " has no such lines:\n" piece)
    piece = ""
}
/^```c [^ ]+$/ {
    path = $2
    tree = read_file(path)
    if (tree == "\n") fail("there is no file " path)
    inside = 1
    quotes++
    next
}
inside && /^```$/ { check_piece(); inside = 0; next }
inside && /^\.\.\.$/ { check_piece(); next }
inside { piece = piece $0 "\n" }
END {
    if (!quotes) { print "no page quotes the tree"; failures = 1 }
    exit failures
}' "$@"
