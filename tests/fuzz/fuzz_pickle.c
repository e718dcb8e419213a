/* fuzz_pickle.c - reads any bytes as a pickle: an error, or values that are inside the bytes and take
 * memory in proportion to them. */
#include "format/pickle.h"

#include <stdlib.h>
#include <string.h>

/* All values, without recursion: each is marked when it is seen. */
static void visit_values(const gd_pickle *p, size_t size) {
    const gd_pickle_value **todo = malloc((64 * size + 64) * sizeof *todo);
    size_t n = 0;
    volatile uint8_t sum = 0;
    p->root->mark = 1;
    todo[n++] = p->root;
    while (n > 0) {
        const gd_pickle_value *v = todo[--n], *const *items = NULL;
        const gd_pickle_value *parts[] = {NULL, NULL, NULL, NULL, NULL};
        size_t count = 0;
        switch (v->type) {
        case GD_PICKLE_TEXT:
        case GD_PICKLE_BYTES:
        case GD_PICKLE_BIGINT:
            if (v->text.length) sum ^= (uint8_t)v->text.at[v->text.length - 1];
            break;
        case GD_PICKLE_TUPLE:
        case GD_PICKLE_LIST:
        case GD_PICKLE_SET:
        case GD_PICKLE_DICT:
            if (v->type == GD_PICKLE_DICT && v->count % 2) abort();
            items = (const gd_pickle_value *const *)v->items;
            count = v->count;
            break;
        case GD_PICKLE_OBJECT:
            parts[4] = v->dict;
            parts[3] = v->list;
            parts[2] = v->state;
            parts[1] = v->arguments; /* fall through */
        case GD_PICKLE_PERSISTENT:
            parts[0] = v->of;
            items = parts;
            count = 5;
            break;
        default: break;
        }
        for (size_t i = 0; i < count; i++) {
            gd_pickle_value *inner = (gd_pickle_value *)(uintptr_t)items[i];
            if (!inner || inner->mark) continue;
            inner->mark = 1;
            todo[n++] = inner;
        }
    }
    free(todo);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    gd_pickle p;
    bool cut;
    if (gd_pickle_read(&p, "fuzz", data, size, 0, &cut) != GD_OK) return 0;
    if (p.bytes > size || p.memory > 400 * size + (1 << 16)) abort();
    visit_values(&p, size);
    gd_pickle_free(&p);
    return 0;
}
