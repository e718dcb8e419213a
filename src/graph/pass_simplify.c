/* pass_simplify.c - steps that change nothing. */
#include "graph/program.h"

int gd_pass_simplify(gd_program *p) {
    (void)p;
    return 0;
}
