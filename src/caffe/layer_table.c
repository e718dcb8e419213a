/* layer_table.c - the types of layers that need a function, by their names. Types that are one op are rows of
 * the ops' records; a type that is in neither is an op or a layer of the program. */
#include <string.h>

#include "caffe/layer.h"

enum { ANY = -1, SAME = -2, LOSS = GD_CAFFE_LOSS | GD_CAFFE_NO_TOP_NEEDED };

/* Name; the least and the most bottoms and tops; flags. The function is gd_caffe_make_NAME. */
#define TYPES(T) T(Silence, 1, ANY, 0, 0, 0)

#define DECLARE(name, ...) gd_status gd_caffe_make_##name(gd_caffe_layer *l);
TYPES(DECLARE)

#define ENTRY(name, ...) {#name, gd_caffe_make_##name, __VA_ARGS__},
static const gd_caffe_type types[] = {TYPES(ENTRY)};

const gd_caffe_type *gd_caffe_find_type(const char *name) {
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, name) == 0) return &types[i];
    return NULL;
}
