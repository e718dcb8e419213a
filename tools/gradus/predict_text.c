/* predict_text.c - continues a text: draws one character, or byte, after the other. */
#include <stdlib.h>
#include <string.h>

#include "tool.h"

/* The bytes of the UTF-8 character that begins here. */
static size_t character_length(const char *text) {
    size_t n = 1;
    while ((text[n] & 0xC0) == 0x80) n++;
    return n;
}

/* Classes of a net of bytes are all bytes; those that are not printable have names as \x0a. */
static bool has_bytes(const model_info *a) {
    return a->n_classes == 256 && strcmp(a->classes[0], "\\x00") == 0;
}

/* The class of the unit that begins at *at, which advances; -1: the net does not know it. */
static int64_t next_class(const model_info *a, const char **at) {
    if (has_bytes(a)) return (unsigned char)*(*at)++;
    const size_t n = character_length(*at);
    for (int64_t i = 0; i < a->n_classes; i++)
        if (strlen(a->classes[i]) == n && memcmp(a->classes[i], *at, n) == 0) {
            *at += n;
            return i;
        }
    return -1;
}

/* Appends the text of a class. */
static void put_class(const model_info *a, int64_t i, FILE *out) {
    if (has_bytes(a)) fputc((int)i, out);
    else fputs(a->classes[i], out);
}

/* Draws the class after `count` ones. A position of the net sees no later one, so shorter texts are
 * filled up at the end. */
static int64_t draw_class(gd_module *net, const model_info *a, const int64_t *classes,
                          int64_t count, double temperature) {
    GD_SCOPE;
    const int64_t used = count < a->length ? count : a->length;
    int64_t *window = calloc((size_t)a->length, sizeof *window);
    if (!window) return -1;
    memcpy(window, classes + count - used, sizeof *window * (size_t)used);
    gd_tensor *x = gd_from_array(gd_dims(1, a->length), GD_I64, window);
    free(window);
    gd_tensor *scores =
        gd_flatten(gd_narrow(gd_module_forward(net, x), 1, used - 1, 1)); /* (classes) */
    gd_tensor *next =
        temperature > 0
            ? gd_multinomial(gd_softmax(gd_mul(scores, gd_scalar(1 / temperature)), .axis = 0), 1)
            : gd_argmax(scores, .axis = 0);
    return gd_failed() ? -1 : gd_item_int(next);
}

/* Reads the prompt; *count is the number of classes. NULL: the failure is printed. */
static int64_t *read_prompt(const model_info *a, const char *text, int64_t more, int64_t *count) {
    int64_t *classes = malloc(sizeof *classes * (strlen(text) + (size_t)more + 1));
    *count = 0;
    for (const char *at = text; classes && *at;) {
        const char *begin = at;
        const int64_t c = next_class(a, &at);
        if (c < 0) {
            fail("--text: the net has not seen '%.*s'; it knows %lld characters",
                 (int)character_length(begin), begin, (long long)a->n_classes);
            free(classes);
            return NULL;
        }
        classes[(*count)++] = c;
    }
    return classes;
}

int predict_text(gd_module *net, const model_info *a, const predict_options *o) {
    char *made = NULL;
    size_t size;
    int64_t count;
    if (!a->n_classes) return fail("the model does not name its characters");
    int64_t *classes = read_prompt(a, o->text, o->length, &count);
    if (!classes) return FAILED;
    if (count == 0) classes[count++] = 0;
    FILE *out = common.json ? open_memstream(&made, &size) : stdout;
    fputs(o->text, out);
    for (int64_t i = 0; i < o->length && !gd_failed(); i++) {
        const int64_t next = draw_class(net, a, classes, count, o->temperature);
        if (next < 0) break;
        put_class(a, classes[count++] = next, out);
        fflush(out);
    }
    free(classes);
    if (common.json) {
        fclose(out);
        json_begin(NULL);
        json_text("text", made);
        json_end();
        json_line();
        free(made);
    } else putchar('\n');
    return gd_failed() ? failed() : DONE;
}
