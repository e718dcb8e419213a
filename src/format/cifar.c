/* cifar.c - see cifar.h. */
#include "format/cifar.h"

#include "core/alloc.h"
#include "core/error.h"

static gd_status grow_records(gd_cifar *c, gd_stream *s, int labels) {
    if (c->count < c->room) return GD_OK;
    /* doubles the room, up to the most that the file can hold (for gzip, an upper bound) */
    const uint64_t most = gd_stream_most(s) / (uint64_t)(GD_CIFAR_PIXELS + labels) + 1;
    int64_t more = c->room < 1000 ? 1000 : c->room;
    if ((uint64_t)more > most) more = (int64_t)most;
    if (c->room + more > GD_CIFAR_MAX)
        return gd_fail(GD_E_FORMAT, "%s: more than %d records", gd_stream_path(s), GD_CIFAR_MAX);
    const size_t room = (size_t)(c->room + more);
    uint8_t *pixels = gd_realloc(c->pixels, room * GD_CIFAR_PIXELS);
    if (pixels) c->pixels = pixels;
    uint8_t *names = pixels ? gd_realloc(c->labels, room * (size_t)labels) : NULL;
    if (!names) return gd_file_no_memory(gd_stream_path(s));
    c->labels = names;
    c->room = (int64_t)room;
    return GD_OK;
}

gd_status gd_cifar_read(gd_cifar *c, gd_stream *s, int labels, const int *limits) {
    const int64_t before = c->count;
    for (;;) {
        uint8_t label[2];
        size_t got;
        const unsigned long long at = gd_stream_offset(s);
        GD_TRY(gd_stream_read(s, label, (size_t)labels, &got));
        if (got == 0) break;
        if (got < (size_t)labels)
            return gd_fail(GD_E_FORMAT,
                           "%s: ends at byte %llu, inside the labels of a record; is it truncated?",
                           gd_stream_path(s), at + got);
        for (int k = 0; k < labels; k++)
            if (label[k] >= limits[k])
                return gd_fail(
                    GD_E_FORMAT,
                    "%s: the label at byte %llu (record %lld) is %d; labels are below %d",
                    gd_stream_path(s), at + (unsigned)k, (long long)(c->count - before), label[k],
                    limits[k]);
        GD_TRY(grow_records(c, s, labels));
        GD_TRY(gd_stream_take(s, c->pixels + (size_t)c->count * GD_CIFAR_PIXELS, GD_CIFAR_PIXELS,
                              "the pixels of a record"));
        for (int k = 0; k < labels; k++) c->labels[c->count * labels + k] = label[k];
        c->count++;
    }
    return c->count > before ? GD_OK : gd_fail(GD_E_FORMAT, "%s: is empty", gd_stream_path(s));
}

void gd_cifar_free(gd_cifar *c) {
    gd_free(c->pixels);
    gd_free(c->labels);
    *c = (gd_cifar){.count = 0};
}
