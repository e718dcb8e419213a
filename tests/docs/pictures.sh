#!/bin/sh
# pictures.sh speed|terminal|parse SOURCE - checks the pictures of the pages and the scripts that draw them.
#
#   speed      the chart and the tables of docs/speed.md agree with bench/figures.json
#   terminal   tools/draw_terminal.py draws a known output as tests/docs/terminal.svg
#   parse      every picture is XML with a title and a description
#
# Without Python it exits with status 77, which the tests report as skipped.
set -eu
what=$1
cd "$2"
command -v python3 >/dev/null || { echo "skipped: there is no python3"; exit 77; }
export PYTHONDONTWRITEBYTECODE=1

case $what in
speed)
    python3 bench/draw_speed.py --check
    ;;
terminal)
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    # a line that is redrawn, colours, blocks, what XML escapes, a line that is left out, empty lines at the end
    printf 'working\r\033[Kepoch 1/5 \033[32m━━━\033[39;2m──\033[0m  60%%\n\nleft out\n\033[1;31mred\033[0m █▓▀▄░ <a & b>\n\n' >"$work/output"
    python3 tools/draw_terminal.py --out "$work/terminal.svg" --columns 40 --lines 1-2,4-9 --typed "train" \
        --title "A test" -- cat "$work/output"
    diff tests/docs/terminal.svg "$work/terminal.svg"
    # what the terminal does not understand is an error, and so is a program that fails
    printf '\033[2J' >"$work/output"
    if python3 tools/draw_terminal.py --out "$work/no.svg" -- cat "$work/output" 2>"$work/message"; then
        echo "an unknown escape sequence was drawn"
        exit 1
    fi
    grep -q "is unknown" "$work/message"
    if python3 tools/draw_terminal.py --out "$work/no.svg" -- false 2>"$work/message"; then
        echo "the output of a program that failed was drawn"
        exit 1
    fi
    [ ! -e "$work/no.svg" ]
    ;;
parse)
    python3 - docs/images/*.svg <<'PYTHON'
import sys
import xml.etree.ElementTree as tree
SVG = "{http://www.w3.org/2000/svg}"
for path in sys.argv[1:]:
    root = tree.parse(path).getroot()
    for name in ("title", "desc"):
        element = root.find(SVG + name)
        if root.tag != SVG + "svg" or element is None or not element.text:
            sys.exit(f"{path} has no {name}")
PYTHON
    ;;
esac
