/* convert_state.c - converts a file of weights to a safetensors file, for against_pytorch.py:
 *
 *     convert_state IN OUT [PREFIX]
 *
 * Prints the message and returns 1 if that fails. */
#include <stdio.h>
#include <string.h>

#include "gradus/gradus.h"

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    gd_state *state = gd_read_state(argv[1]);
    if (state && gd_save_state(argv[2], gd_part("", state)) == GD_OK) return 0;
    printf("%s\n", gd_error_message());
    return 1;
}
