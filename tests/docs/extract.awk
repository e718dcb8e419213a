# extract.awk - extracts the snippets of a Markdown page: one file for each ```c and ```python block, and for others that
# are marked.
#
#     awk -v out=FOLDER -f extract.awk README.md
#
# A block with a main() is a program. Any other block becomes the body of main(): a scope is opened
# before it, and the program fails if the library has recorded a failure after it. Code that the
# reader need not see can precede a block in a comment of the page:
#
#     <!-- given
#     gd_tensor *x = gd_scalar(3);
#     -->
#
# A ```python block is a program as it stands; where it does not import gradus, "import gradus as gd" is before it. What is
# given to it is Python. After the line <!-- needs numpy --> it is run where that package is installed.
#
# A ``` block after the line <!-- prints --> is the expected output of the previous program. After
# <!-- prints, and fails --> the program must also end with a recorded failure. Messages of the
# library refer to the lines of a block as lines of "example.c".
#
# A ```sh block after the line <!-- runs --> is a script that must succeed; NN.sh has it. A block after
# <!-- from src/FILE --> is a part of that file, not a program; NN.quote has the path and then the block.

function flush_python(    file) {
    if (body == "") return
    file = sprintf("%s/%02d.py", out, ++count)
    print "# line " first " of " FILENAME > file
    if (needs != "") {
        package = sprintf("%s/%02d.needs", out, count)
        print needs > package
        close(package)
        needs = ""
    }
    if ((given body) !~ /(^|\n)import gradus/) print "import gradus as gd" > file
    printf "%s%s", given, body > file
    close(file)
    body = given = ""
}

function flush_program(    file) {
    if (body == "") return
    file = sprintf("%s/%02d.c", out, ++count)
    print "/* line " first " of " FILENAME " */" > file
    if (body ~ /int main\(/) {
        printf "%s#line 1 \"example.c\"\n%s", given, body > file
    } else {
        print "#include <gradus/gradus.h>" > file
        print "#include <stdio.h>" > file
        print "#include <stdlib.h>" > file
        print "#include <string.h>" > file
        print "#pragma GCC diagnostic ignored \"-Wunused-variable\"" > file
        print "int main(void) {\n    GD_SCOPE;" > file
        printf "%s#line 1 \"example.c\"\n%s", given, body > file
        print "    if (gd_failed()) fprintf(stderr, \"%s\\n\", gd_error_message());" > file
        print "    return gd_failed();\n}" > file
    }
    close(file)
    body = given = ""
}

/^<!-- given *$/ { in_given = 1; next }
in_given && /^-->/ { in_given = 0; next }
in_given { given = given $0 "\n"; next }

/^<!-- prints, and fails -->/ {
    expect = 1
    failing = sprintf("%s/%02d.fails", out, count)
    printf "" > failing
    close(failing)
    next
}
/^<!-- needs [a-z_]+ -->/ { needs = $3; next }
/^<!-- prints -->/ { expect = 1; next }
/^<!-- runs -->/ { script = sprintf("%s/%02d.sh", out, ++count); next }
/^<!-- from .* -->/ {
    quote = sprintf("%s/%02d.quote", out, ++count)
    print $3 > quote
    next
}
/^```/ && !fence {
    fence = 1
    is_c = $0 ~ /^```c *$/ && !quote
    is_python = $0 ~ /^```python *$/ && !quote
    first = NR + 1
    if (expect) {
        expect_file = sprintf("%s/%02d.expect", out, count)
        printf "" > expect_file
    }
    next
}
/^```/ && fence {
    fence = 0
    if (is_c) flush_program()
    if (is_python) flush_python()
    if (expect) { close(expect_file); expect = 0 }
    if (script) close(script)
    if (quote) close(quote)
    script = quote = ""
    next
}
fence && (is_c || is_python) { body = body $0 "\n" }
fence && expect { print > expect_file }
fence && script { print > script }
fence && quote { print > quote }

END {
    if (fence || in_given) { print "a block is not closed" > "/dev/stderr"; exit 1 }
    print count + 0
}
