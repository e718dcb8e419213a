/* pickle_ops.h - the opcodes of pickles: their bytes and names, in Python's spelling. pickle.c reads
 * the first list; the second is for messages. */
#ifndef GRADUS_FORMAT_PICKLE_OPS_H
#define GRADUS_FORMAT_PICKLE_OPS_H

/* clang-format off */
#define GD_PICKLE_OPS(X)                                                                         \
    X(PROTO, 0x80) X(FRAME, 0x95) X(MARK, '(') X(STOP, '.') X(POP, '0') X(POP_MARK, '1')         \
    X(NONE, 'N') X(NEWTRUE, 0x88) X(NEWFALSE, 0x89)                                              \
    X(BININT, 'J') X(BININT1, 'K') X(BININT2, 'M') X(LONG1, 0x8a) X(LONG4, 0x8b)                 \
    X(BINFLOAT, 'G')                                                                             \
    X(BINSTRING, 'T') X(SHORT_BINSTRING, 'U')                                                    \
    X(BINUNICODE, 'X') X(SHORT_BINUNICODE, 0x8c) X(BINUNICODE8, 0x8d)                            \
    X(BINBYTES, 'B') X(SHORT_BINBYTES, 'C') X(BINBYTES8, 0x8e) X(BYTEARRAY8, 0x96)               \
    X(EMPTY_TUPLE, ')') X(TUPLE, 't') X(TUPLE1, 0x85) X(TUPLE2, 0x86) X(TUPLE3, 0x87)            \
    X(EMPTY_LIST, ']') X(LIST, 'l') X(APPEND, 'a') X(APPENDS, 'e')                               \
    X(EMPTY_DICT, '}') X(DICT, 'd') X(SETITEM, 's') X(SETITEMS, 'u')                             \
    X(EMPTY_SET, 0x8f) X(ADDITEMS, 0x90) X(FROZENSET, 0x91)                                      \
    X(BINPUT, 'q') X(LONG_BINPUT, 'r') X(MEMOIZE, 0x94) X(BINGET, 'h') X(LONG_BINGET, 'j')       \
    X(GLOBAL, 'c') X(STACK_GLOBAL, 0x93) X(REDUCE, 'R') X(NEWOBJ, 0x81) X(NEWOBJ_EX, 0x92)       \
    X(BUILD, 'b') X(BINPERSID, 'Q')

#define GD_PICKLE_OTHER_OPS(X)                                                                   \
    X(DUP, '2') X(INT, 'I') X(LONG, 'L') X(FLOAT, 'F') X(STRING, 'S') X(UNICODE, 'V')            \
    X(PERSID, 'P') X(INST, 'i') X(OBJ, 'o') X(GET, 'g') X(PUT, 'p')                              \
    X(EXT1, 0x82) X(EXT2, 0x83) X(EXT4, 0x84)                                                    \
    X(NEXT_BUFFER, 0x97) X(READONLY_BUFFER, 0x98)
/* clang-format on */

#endif
