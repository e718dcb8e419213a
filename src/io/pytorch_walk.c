/* pytorch_walk.c - the objects in a pickle as a list of tensors and values with names.
 *
 * Keys of dictionaries, indices of lists and attributes of objects are joined by dots. An object
 * whose state has _parameters, _buffers and _modules is a module of any class: its names are those of
 * its state dict. Sets, functions and None have no names.
 *
 * The walk keeps its own stack: objects may lie in each other to any depth, and contain themselves.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/number.h"
#include "io/pytorch.h"

enum { MOST_PARTS = 4, MOST_SKIPPED = 4096 };

/* Values inside another one. */
typedef struct part {
    const gd_pickle_value *of; /* items, or keys and values by turns, or pairs */
    enum { ITEMS, KEYS_AND_VALUES, PAIRS } kind;
    const gd_pickle_value *skipped; /* a set of keys; NULL: none */
} part;

/* A value whose parts are visited. */
typedef struct frame {
    gd_pickle_value *value;
    part parts[MOST_PARTS];
    int n_parts, part;
    size_t index, name_length; /* of the value's own name */
} frame;

typedef struct walker {
    gd_torch *t;
    frame *frames;
    size_t depth, frames_room;
    char *name;
    size_t name_room;
    uint64_t budget; /* bytes of names that may still be visited */
} walker;

/* --- parts ------------------------------------------------------------------------------------ */

static void add_part(frame *f, const gd_pickle_value *of, int kind,
                     const gd_pickle_value *skipped) {
    if (of && f->n_parts < MOST_PARTS)
        f->parts[f->n_parts++] = (part){.of = of, .kind = kind, .skipped = skipped};
}

static bool is_dict_class(const gd_pickle_value *of) {
    return gd_pickle_is_global(of, "collections", "OrderedDict") ||
           gd_pickle_is_global(of, "collections", "defaultdict");
}

/* The keys and values of a dict or of an OrderedDict, which may be made of a list of pairs. */
static void add_dict(frame *f, const gd_pickle_value *v, const gd_pickle_value *skipped) {
    if (v && v->type == GD_PICKLE_DICT) add_part(f, v, KEYS_AND_VALUES, skipped);
    if (!v || v->type != GD_PICKLE_OBJECT) return;
    const gd_pickle_value *pairs = gd_torch_argument(v->arguments, 0);
    if (pairs && pairs->type == GD_PICKLE_LIST && is_dict_class(v->of))
        add_part(f, pairs, PAIRS, skipped);
    add_part(f, v->dict, KEYS_AND_VALUES, skipped);
}

/* A set, which protocol 2 writes as a call of `set` with a list. */
static const gd_pickle_value *set_of(const gd_pickle_value *v) {
    if (v && v->type == GD_PICKLE_OBJECT) v = gd_torch_argument(v->arguments, 0);
    return v && (v->type == GD_PICKLE_SET || v->type == GD_PICKLE_LIST) ? v : NULL;
}

static void add_module(frame *f, const gd_pickle_value *state) {
    add_dict(f, gd_pickle_get(state, "_parameters"), NULL);
    add_dict(f, gd_pickle_get(state, "_buffers"),
             set_of(gd_pickle_get(state, "_non_persistent_buffers_set")));
    add_dict(f, gd_pickle_get(state, "_modules"), NULL);
}

static void add_object(frame *f, const gd_pickle_value *v) {
    const gd_pickle_value *with, *of = gd_torch_call(v, &with), *state = v->state;
    if (gd_pickle_is_global(of, "torch", "Size")) add_part(f, gd_torch_argument(with, 0), ITEMS, 0);
    add_dict(f, v, NULL);
    add_part(f, v->list, ITEMS, NULL);
    if (is_dict_class(v->of) || !state) return;
    if (gd_pickle_get(state, "_modules") && gd_pickle_get(state, "_parameters")) {
        f->n_parts = 0;
        add_module(f, state);
        return;
    }
    /* (attributes, slots) */
    if (state->type == GD_PICKLE_TUPLE && state->count == 2) {
        add_dict(f, state->items[0], NULL);
        state = state->items[1];
    }
    add_dict(f, state, NULL);
}

static void add_parts(frame *f, const gd_pickle_value *v) {
    if (v->type == GD_PICKLE_DICT) add_dict(f, v, NULL);
    if (v->type == GD_PICKLE_LIST || v->type == GD_PICKLE_TUPLE) add_part(f, v, ITEMS, NULL);
    if (v->type == GD_PICKLE_OBJECT) add_object(f, v);
}

static bool is_skipped(const part *p, const gd_pickle_value *key) {
    if (!p->skipped || key->type != GD_PICKLE_TEXT) return false;
    for (size_t i = 0; i < p->skipped->count && i < MOST_SKIPPED; i++) {
        const gd_pickle_value *v = p->skipped->items[i];
        if (v->type == GD_PICKLE_TEXT && v->text.length == key->text.length &&
            memcmp(v->text.at, key->text.at, v->text.length) == 0)
            return true;
    }
    return false;
}

/* The next value inside a frame, and its key, or NULL if the index is the key; false: no more. */
static bool next_value(frame *f, gd_pickle_value **key, gd_pickle_value **value, size_t *index) {
    for (; f->part < f->n_parts; f->part++, f->index = 0) {
        const part *p = &f->parts[f->part];
        while (f->index < p->of->count) {
            *index = f->index++;
            *key = NULL;
            *value = p->of->items[*index];
            if (p->kind == ITEMS) return true;
            if (p->kind == KEYS_AND_VALUES) {
                if (f->index == p->of->count) break; /* no value: cannot be */
                *key = *value;
                *value = p->of->items[f->index++];
            } else {
                *key = gd_torch_argument(*value, 0);
                *value = gd_torch_argument(*value, 1);
            }
            if (*key && *value && !is_skipped(p, *key)) return true;
        }
    }
    return false;
}

/* --- names ------------------------------------------------------------------------------------ */

/* Appends a text to the name of the value on top, and a dot before it if that is not empty. */
static gd_status set_name(walker *w, size_t at, const char *text, size_t length) {
    if (memchr(text, 0, length))
        return gd_fail(GD_E_FORMAT, "%s: a name in the pickle has a zero byte", w->t->list->path);
    if (at + length + 2 > w->name_room) {
        const size_t room = 2 * (at + length + 64);
        char *larger = gd_realloc(w->name, room);
        if (!larger) return gd_torch_no_memory(w->t);
        w->name = larger;
        w->name_room = room;
    }
    if (at > 0) w->name[at++] = '.';
    memcpy(w->name + at, text, length);
    w->name[at + length] = 0;
    if (at + length + 1 > w->budget)
        return gd_fail(GD_E_FORMAT,
                       "%s: the pickle lists its objects far more often than it has them; it is no "
                       "file that a program has written to be read",
                       w->t->list->path);
    w->budget -= at + length + 1;
    return GD_OK;
}

/* Names the value after its key; *known is false if the key is neither a text nor an integer. */
static gd_status name_value(walker *w, size_t at, const gd_pickle_value *key, size_t index,
                            bool *known) {
    char number[32];
    *known = true;
    if (key && key->type == GD_PICKLE_TEXT) return set_name(w, at, key->text.at, key->text.length);
    if (key && key->type != GD_PICKLE_INT && key->type != GD_PICKLE_BOOL) *known = false;
    const int n = key ? snprintf(number, sizeof number, "%" PRId64, key->integer)
                      : snprintf(number, sizeof number, "%zu", index);
    return *known ? set_name(w, at, number, (size_t)n) : GD_OK;
}

static char *copy_name(walker *w, const char *text, size_t length) {
    char *copy = gd_pickle_allocate(&w->t->pickle, length + 1);
    if (!copy) return NULL;
    memcpy(copy, text, length);
    copy[length] = 0;
    return copy;
}

/* --- values ----------------------------------------------------------------------------------- */

static gd_status text_of(walker *w, gd_pickle_value *v, const char **out) {
    char number[GD_DOUBLE_TEXT];
    *out = NULL;
    switch (v->type) {
    case GD_PICKLE_BOOL: *out = v->integer ? "true" : "false"; return GD_OK;
    case GD_PICKLE_INT: snprintf(number, sizeof number, "%" PRId64, v->integer); break;
    case GD_PICKLE_FLOAT:
        if (isfinite(v->number)) gd_double_print(number, v->number);
        else strcpy(number, isnan(v->number) ? "nan" : v->number > 0 ? "inf" : "-inf");
        break;
    case GD_PICKLE_TEXT:
        if (memchr(v->text.at, 0, v->text.length)) return GD_OK;
        if (v->mark == 2) { /* copied for an earlier name: it ends with a zero byte */
            *out = v->text.at;
            return GD_OK;
        }
        if (!(*out = copy_name(w, v->text.at, v->text.length))) return gd_torch_no_memory(w->t);
        v->text.at = *out;
        v->mark = 2;
        return GD_OK;
    case GD_PICKLE_OBJECT: return gd_torch_scalar_of(w->t, v, out);
    default: return GD_OK;
    }
    *out = copy_name(w, number, strlen(number));
    return *out ? GD_OK : gd_torch_no_memory(w->t);
}

static gd_status add_tensor(walker *w, gd_torch_tensor *x) {
    const char *name = copy_name(w, w->name, strlen(w->name));
    if (!name) return gd_torch_no_memory(w->t);
    return gd_state_list_tensor(w->t->list, (gd_source_tensor){.name = name,
                                                               .dtype_name = x->dtype_name,
                                                               .dtype = x->dtype,
                                                               .rank = x->rank,
                                                               .dims = x->dims,
                                                               .file = x});
}

static gd_status push(walker *w, gd_pickle_value *v, size_t name_length) {
    frame f = {.value = v, .name_length = name_length};
    add_parts(&f, v);
    if (f.n_parts == 0) return GD_OK;
    if (w->depth == w->frames_room) {
        const size_t room = w->frames_room ? 2 * w->frames_room : 32;
        frame *larger = gd_realloc(w->frames, room * sizeof *larger);
        if (!larger) return gd_torch_no_memory(w->t);
        w->frames = larger;
        w->frames_room = room;
    }
    w->frames[w->depth++] = f;
    v->mark = 1;
    return GD_OK;
}

/* Lists a value under the current name, or the values inside it after this. */
static gd_status visit(walker *w, gd_pickle_value *v) {
    gd_torch_tensor *x;
    const char *text;
    v = gd_torch_unwrap(v);
    if (!v || v->mark == 1) return GD_OK; /* it contains itself */
    GD_TRY(gd_torch_tensor_of(w->t, v, w->name, &x));
    if (x) return add_tensor(w, x);
    GD_TRY(text_of(w, v, &text));
    if (text) {
        const char *name = copy_name(w, w->name, strlen(w->name));
        if (!name) return gd_torch_no_memory(w->t);
        return gd_state_list_value(w->t->list, name, text);
    }
    return push(w, v, strlen(w->name));
}

static gd_status visit_all(walker *w) {
    while (w->depth > 0) {
        frame *f = &w->frames[w->depth - 1];
        gd_pickle_value *key, *value;
        size_t index;
        bool known;
        if (!next_value(f, &key, &value, &index)) {
            f->value->mark = 0;
            w->depth--;
            continue;
        }
        GD_TRY(name_value(w, f->name_length, key, index, &known));
        if (known) GD_TRY(visit(w, value));
    }
    return GD_OK;
}

gd_status gd_torch_walk(gd_torch *t) {
    walker w = {.t = t, .budget = 64 * (uint64_t)t->pickle.bytes + (1 << 20)};
    gd_pickle_value *root = gd_torch_unwrap(t->pickle.root);
    gd_torch_tensor *x;
    gd_status status = gd_torch_tensor_of(t, root, "tensor", &x);
    /* a file of one tensor: its name is that of gradus.save */
    if (status == GD_OK) status = set_name(&w, 0, "tensor", x ? strlen("tensor") : 0);
    if (status == GD_OK && x) status = add_tensor(&w, x);
    else if (status == GD_OK && root) status = visit(&w, root);
    if (status == GD_OK) status = visit_all(&w);
    gd_free(w.frames);
    gd_free(w.name);
    return status;
}
