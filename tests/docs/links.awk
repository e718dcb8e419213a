# links.awk - lists the headings and the links of Markdown pages, for links.sh.
#
#     awk -f links.awk PAGE...
#
# It prints one line for each of these:
#
#     anchor PAGE#NAME        a heading, as GitHub names it, or an element with an id
#     link PAGE:LINE TARGET   a link, an image, or the source of an HTML element
#     path PAGE:LINE TARGET   a file or folder of the tree, in backquotes
#     mark PAGE:LINE          a count at the start of a line, where a comment would end the paragraph
#
# Blocks of code have none. Comments of HTML do not show, so what is in them is left out, too.

# A heading as GitHub writes it in an address: lower case, no punctuation, hyphens for spaces.
function anchor_of(heading,    name) {
    name = heading
    gsub(/\]\([^)]*\)/, "", name)       # links have the name of their text
    name = tolower(name)
    gsub(/[^a-z0-9 _-]/, "", name)
    gsub(/ /, "-", name)
    if (seen[FILENAME, name]++) name = name "-" (seen[FILENAME, name] - 1)
    return name
}

# Prints what comes after `before` (a regular expression) and ends before `after` (a set of characters), for each match.
function print_targets(kind, text, before, after,    target) {
    while (match(text, before)) {
        text = substr(text, RSTART + RLENGTH)
        target = text
        sub("[" after "].*", "", target)
        if (target != "") print kind " " FILENAME ":" FNR " " target
    }
}

FNR == 1 { fence = comment = 0 }
/^ *```/ { fence = !fence; next }
fence || /^    / { next }
/^<!--/ && !/-->/ { comment = 1; next }
comment { if (/-->/) comment = 0; next }

/^ *<!--count/ { print "mark " FILENAME ":" FNR }
/^##* / {
    heading = $0
    sub(/^##* */, "", heading)
    print "anchor " FILENAME "#" anchor_of(heading)
}
{
    text = $0
    while (match(text, / id="[^"]*"/)) {
        print "anchor " FILENAME "#" substr(text, RSTART + 5, RLENGTH - 6)
        text = substr(text, RSTART + RLENGTH)
    }
    text = $0
    while (match(text, /`[^`]*`/)) {
        print "path " FILENAME ":" FNR " " substr(text, RSTART + 1, RLENGTH - 2)
        text = substr(text, 1, RSTART - 1) substr(text, RSTART + RLENGTH)
    }
    print_targets("link", text, "\\]\\(", ") ")
    print_targets("link", text, "^\\[[^\\]]*\\]: *", " ")
    print_targets("link", text, " (href|src|srcset)=\"", "\" ")
}
