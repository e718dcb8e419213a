# Writes a C file with an array that holds the text of several headers, one after the other, without
# their includes of each other:  cmake -DOUT=file.c -DNAME=array -DIN="a.h;b.h" -P embed.cmake
set(text "")
foreach(file ${IN})
  file(READ ${file} part)
  string(REGEX REPLACE "#include \"[^\"]*\"\n" "" part "${part}")
  string(APPEND text "${part}\n")
endforeach()
file(WRITE ${OUT}.txt "${text}")
file(READ ${OUT}.txt bytes HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
string(REGEX REPLACE "(0x0a,)" "\\1\n" bytes "${bytes}")
file(WRITE ${OUT} "/* Written by the build from headers of kernels. */\n#include <stddef.h>\n
extern const char ${NAME}[];\nextern const size_t ${NAME}_bytes;\nconst char ${NAME}[] = {\n${bytes}0};\nconst size_t ${NAME}_bytes = sizeof ${NAME} - 1;\n")
