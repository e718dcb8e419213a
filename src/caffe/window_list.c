/* window_list.c - see window_list.h. */
#include "caffe/window_list.h"

#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/ascii.h"
#include "core/error.h"
#include "core/number.h"

enum { MAX_BYTES = 1 << 30 };

typedef struct parser {
    gd_caffe_window_list *list;
    const char *path;
    char *at;
    int64_t line;
    double object_from, background_below;
    int images_room;
} parser;

/* The next word, with a zero byte after it; NULL: the end of the file. `what` is for messages. */
static gd_status next_word(parser *p, const char *what, char **word) {
    for (; gd_is_space(*p->at); p->at++) p->line += *p->at == '\n';
    if (!*p->at) return gd_fail(GD_E_FORMAT, "%s: ends where %s is expected", p->path, what);
    *word = p->at;
    while (*p->at && !gd_is_space(*p->at)) p->at++;
    if (*p->at == '\n') p->line++;
    if (*p->at) *p->at++ = 0;
    return GD_OK;
}

static gd_status fail_word(const parser *p, const char *what, const char *word) {
    return gd_fail(GD_E_FORMAT, "%s: line %lld: %s is expected, not '%.60s'", p->path,
                   (long long)p->line, what, word);
}

static gd_status next_integer(parser *p, const char *what, int *n) {
    char *word, *end;
    GD_TRY(next_word(p, what, &word));
    const long long value = strtoll(word, &end, 10);
    if (end == word || *end || value < INT32_MIN || value > INT32_MAX)
        return fail_word(p, what, word);
    *n = (int)value;
    return GD_OK;
}

static gd_status next_number(parser *p, const char *what, double *x) {
    char *word, *end;
    GD_TRY(next_word(p, what, &word));
    *x = gd_double_parse(word, &end);
    return end > word && !*end ? GD_OK : fail_word(p, what, word);
}

static gd_status add_window(const parser *p, gd_caffe_window_set *w, gd_caffe_window window) {
    if (w->count == w->room) {
        const int64_t room = w->room ? 2 * w->room : 256;
        gd_caffe_window *at = gd_realloc(w->at, (size_t)room * sizeof *at);
        if (!at) return gd_no_memory(p->path, "for its windows");
        w->at = at;
        w->room = room;
    }
    w->at[w->count++] = window;
    return GD_OK;
}

static gd_status read_window(parser *p) {
    gd_caffe_window_list *l = p->list;
    gd_caffe_window w = {.image = l->n_images - 1};
    double overlap;
    GD_TRY(next_integer(p, "the class of a window", &w.label));
    GD_TRY(next_number(p, "an overlap", &overlap));
    GD_TRY(next_integer(p, "x1 of a window", &w.x1));
    GD_TRY(next_integer(p, "y1 of a window", &w.y1));
    GD_TRY(next_integer(p, "x2 of a window", &w.x2));
    GD_TRY(next_integer(p, "y2 of a window", &w.y2));
    if (overlap >= p->object_from) {
        if (w.label <= 0)
            return gd_fail(GD_E_FORMAT,
                           "%s: line %lld: the class of an object is %d; 0 is the "
                           "background",
                           p->path, (long long)p->line, w.label);
        return add_window(p, &l->object, w);
    }
    w.label = 0;
    return overlap < p->background_below ? add_window(p, &l->background, w) : GD_OK;
}

static gd_status add_image(parser *p, const char *path) {
    gd_caffe_window_list *l = p->list;
    if (l->n_images == p->images_room) {
        p->images_room = p->images_room ? 2 * p->images_room : 64;
        const char **paths = gd_realloc(l->paths, (size_t)p->images_room * sizeof *paths);
        if (!paths) return gd_no_memory(p->path, "for its images");
        l->paths = paths;
    }
    l->paths[l->n_images++] = path;
    return GD_OK;
}

static gd_status read_image(parser *p) {
    char *word;
    int ignored, channels, windows;
    GD_TRY(next_word(p, "'#' before an image", &word));
    if (strcmp(word, "#") != 0) return fail_word(p, "'#' before an image", word);
    GD_TRY(next_integer(p, "the number of an image", &ignored));
    GD_TRY(next_word(p, "the path of an image", &word));
    GD_TRY(add_image(p, word));
    GD_TRY(next_integer(p, "the number of channels", &channels));
    GD_TRY(next_integer(p, "a height", &ignored));
    GD_TRY(next_integer(p, "a width", &ignored));
    GD_TRY(next_integer(p, "the number of windows", &windows));
    if (channels != 3)
        return gd_fail(GD_E_UNSUPPORTED, "%s: line %lld: an image has %d channels; 3 are read",
                       p->path, (long long)p->line, channels);
    for (int i = 0; i < windows; i++) GD_TRY(read_window(p));
    return GD_OK;
}

static gd_status read_images(parser *p, size_t bytes) {
    if (strlen(p->list->text) != bytes)
        return gd_fail(GD_E_FORMAT, "%s: a zero byte, which text cannot contain", p->path);
    do {
        GD_TRY(read_image(p));
        for (; gd_is_space(*p->at); p->at++) p->line += *p->at == '\n';
    } while (*p->at);
    return GD_OK;
}

gd_status gd_caffe_window_list_read(gd_caffe_window_list *list, gd_stream *stream,
                                    double object_from, double background_below) {
    size_t bytes;
    *list = (gd_caffe_window_list){.n_images = 0};
    GD_TRY(gd_stream_read_all(stream, MAX_BYTES, &list->text, &bytes));
    parser p = {.list = list,
                .path = gd_stream_path(stream),
                .at = list->text,
                .line = 1,
                .object_from = object_from,
                .background_below = background_below};
    const gd_status status = read_images(&p, bytes);
    if (status != GD_OK) gd_caffe_window_list_free(list);
    return status;
}

void gd_caffe_window_list_free(gd_caffe_window_list *l) {
    gd_free(l->object.at);
    gd_free(l->background.at);
    gd_free(l->paths);
    gd_free(l->text);
    *l = (gd_caffe_window_list){.n_images = 0};
}
