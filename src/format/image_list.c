/* image_list.c - see image_list.h. */
#include "format/image_list.h"

#include <string.h>

#include "core/alloc.h"
#include "core/ascii.h"
#include "core/error.h"

enum { MAX_BYTES = 1 << 30 };

static bool is_number(const char *s) {
    const size_t length = strspn(s, "0123456789");
    if (length == 0 || s[length] || length > 10) return false;
    int64_t v = 0;
    for (size_t i = 0; i < length; i++) v = v * 10 + (s[i] - '0');
    return v <= INT32_MAX;
}

/* Makes room for one more line; false: no memory. */
static bool grow_lines(gd_image_list *list, int64_t *room) {
    if (list->count < *room) return true;
    const int64_t larger = *room ? 2 * *room : 256;
    gd_image_line *lines = gd_realloc(list->lines, (size_t)larger * sizeof *lines);
    if (!lines) return false;
    list->lines = lines;
    *room = larger;
    return true;
}

/* Parses the line from s to end. Writes a zero byte after its path and after its label. */
static gd_status parse_line(gd_image_list *list, int64_t *room, char *s, char *end, int64_t line,
                            const char *name) {
    while (s < end && gd_is_space(*s)) s++;
    while (end > s && gd_is_space(end[-1])) end--;
    if (s == end) return GD_OK;
    *end = 0;
    char *label = end;
    while (label > s && !gd_is_space(label[-1])) label--;
    char *path_end = label;
    while (path_end > s && gd_is_space(path_end[-1])) path_end--;
    if (path_end == s)
        return gd_fail(GD_E_FORMAT, "%s: line %lld: a path and a label are expected, not '%.60s'",
                       name, (long long)line, s);
    *path_end = 0;
    if (!grow_lines(list, room)) return gd_fail(GD_E_MEMORY, "%s: no memory for its lines", name);
    list->lines[list->count++] = (gd_image_line){s, label, line};
    list->numbers = list->numbers && is_number(label);
    return GD_OK;
}

static gd_status read_lines(gd_image_list *list, gd_stream *stream) {
    size_t bytes;
    int64_t room = 0, line = 0;
    GD_TRY(gd_stream_read_all(stream, MAX_BYTES, &list->text, &bytes));
    list->numbers = true;
    for (char *s = list->text, *end = s + bytes; s < end; s++) {
        char *stop = memchr(s, '\n', (size_t)(end - s));
        if (!stop) stop = end;
        line++;
        if (memchr(s, 0, (size_t)(stop - s)))
            return gd_fail(GD_E_FORMAT, "%s: line %lld: a zero byte, which text cannot contain",
                           gd_stream_path(stream), (long long)line);
        GD_TRY(parse_line(list, &room, s, stop, line, gd_stream_path(stream)));
        s = stop;
    }
    return GD_OK;
}

gd_status gd_image_list_read(gd_image_list *list, gd_stream *stream) {
    *list = (gd_image_list){.count = 0};
    const gd_status status = read_lines(list, stream);
    if (status != GD_OK) gd_image_list_free(list);
    return status;
}

void gd_image_list_free(gd_image_list *list) {
    gd_free(list->lines);
    gd_free(list->text);
    *list = (gd_image_list){.count = 0};
}
