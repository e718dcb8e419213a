/* pickle.c - reads pickles as data; see pickle.h.
 *
 * Order: memory; values; the input; the stack and the memo; opcodes; the machine.
 */
#include "format/pickle.h"

#include <inttypes.h>
#include <string.h>

#include "core/alloc.h"
#include "core/error.h"
#include "format/bytes.h"
#include "format/pickle_ops.h"

#define ENUM(name, byte) OP_##name = (byte),
enum { GD_PICKLE_OPS(ENUM) };
#undef ENUM

enum { LATEST_PROTOCOL = 5, BLOCK_BYTES = 4096 };

/* --- memory ----------------------------------------------------------------------------------- */

typedef struct gd_pickle_block {
    struct gd_pickle_block *next;
    size_t used, size;
    _Alignas(16) char bytes[];
} block;

void *gd_pickle_allocate(gd_pickle *p, size_t bytes) {
    bytes = (bytes + 15) / 16 * 16;
    if (!p->blocks || bytes > p->blocks->size - p->blocks->used) {
        /* larger blocks for larger pickles, so that there are few */
        size_t size = p->memory / 2 < BLOCK_BYTES ? BLOCK_BYTES : p->memory / 2;
        if (size > (size_t)BLOCK_BYTES * 256) size = (size_t)BLOCK_BYTES * 256;
        if (size < bytes) size = bytes;
        block *b = gd_malloc(sizeof *b + size);
        if (!b) return NULL;
        *b = (block){.next = p->blocks, .size = size};
        p->blocks = b;
        p->memory += size;
    }
    void *at = p->blocks->bytes + p->blocks->used;
    p->blocks->used += bytes;
    return at;
}

void gd_pickle_free(gd_pickle *p) {
    for (block *b = p->blocks; b;) {
        block *next = b->next;
        gd_free(b);
        b = next;
    }
    gd_free(p->persistent);
    *p = (gd_pickle){0};
}

/* --- values ----------------------------------------------------------------------------------- */

const char *gd_pickle_type_name(const gd_pickle_value *v) {
    static const char *const names[] = {
        [GD_PICKLE_NONE] = "None",        [GD_PICKLE_BOOL] = "a bool",
        [GD_PICKLE_INT] = "an int",       [GD_PICKLE_BIGINT] = "a large int",
        [GD_PICKLE_FLOAT] = "a float",    [GD_PICKLE_TEXT] = "a str",
        [GD_PICKLE_BYTES] = "bytes",      [GD_PICKLE_TUPLE] = "a tuple",
        [GD_PICKLE_LIST] = "a list",      [GD_PICKLE_SET] = "a set",
        [GD_PICKLE_DICT] = "a dict",      [GD_PICKLE_GLOBAL] = "a class or function",
        [GD_PICKLE_OBJECT] = "an object", [GD_PICKLE_PERSISTENT] = "a persistent id",
    };
    return v ? names[v->type] : "nothing";
}

static bool same_text(gd_pickle_text a, const char *b) {
    return a.length == strlen(b) && memcmp(a.at, b, a.length) == 0;
}

bool gd_pickle_is_text(const gd_pickle_value *v, const char *text) {
    return v && v->type == GD_PICKLE_TEXT && same_text(v->text, text);
}

bool gd_pickle_is_global(const gd_pickle_value *v, const char *module, const char *name) {
    return v && v->type == GD_PICKLE_GLOBAL && same_text(v->module, module) &&
           same_text(v->name, name);
}

gd_pickle_value *gd_pickle_get(const gd_pickle_value *dict, const char *key) {
    if (!dict || dict->type != GD_PICKLE_DICT) return NULL;
    for (size_t i = dict->count / 2; i-- > 0;) /* the last one counts, as in Python */
        if (gd_pickle_is_text(dict->items[2 * i], key)) return dict->items[2 * i + 1];
    return NULL;
}

/* --- the input -------------------------------------------------------------------------------- */

typedef struct reader {
    gd_pickle *out;
    const char *name;
    const uint8_t *data;
    size_t bytes, at;
    size_t op_at; /* the position of the opcode, for messages */
    uint64_t begin;
    bool cut;
    gd_pickle_value **stack; /* NULL: a mark */
    size_t depth, stack_room;
    gd_pickle_value **memo; /* NULL: not set */
    size_t memo_count, memo_room;
    size_t persistent_room;
} reader;

static const char *op_name(uint8_t op) {
    switch (op) {
#define NAME(name, byte) \
    case (byte): return #name;
        GD_PICKLE_OPS(NAME)
        GD_PICKLE_OTHER_OPS(NAME)
#undef NAME
    }
    return "unknown";
}

static gd_status fail_at(const reader *r, const char *what) {
    return gd_fail(GD_E_FORMAT, "%s: the pickle is wrong at byte %" PRIu64 " (%s): %s", r->name,
                   r->begin + r->op_at, op_name(r->data[r->op_at]), what);
}

static gd_status no_memory(const reader *r) { return gd_no_memory(r->name, "for a pickle"); }

/* The next bytes of the input. */
static gd_status take(reader *r, uint64_t bytes, const uint8_t **at) {
    *at = NULL;
    if (bytes > r->bytes - r->at) {
        r->cut = true;
        return gd_fail(GD_E_FORMAT, "%s: ends inside a pickle, at byte %" PRIu64, r->name,
                       r->begin + r->bytes);
    }
    *at = r->data + r->at;
    r->at += (size_t)bytes;
    return GD_OK;
}

/* A length of 1, 4 or 8 bytes, or an index of 1 or 4. */
static gd_status take_number(reader *r, int width, uint64_t *number) {
    const uint8_t *p = NULL;
    GD_TRY(take(r, (uint64_t)width, &p));
    *number = width == 1   ? p[0]
              : width == 2 ? gd_get_u16(p)
              : width == 4 ? gd_get_u32(p)
                           : gd_get_u64(p);
    return GD_OK;
}

/* A line, without its end. */
static gd_status take_line(reader *r, gd_pickle_text *text) {
    const uint8_t *from = r->data + r->at, *p = NULL, *end = memchr(from, '\n', r->bytes - r->at);
    if (!end) return take(r, UINT64_MAX, &p);
    GD_TRY(take(r, (uint64_t)(end - from) + 1, &p));
    *text = (gd_pickle_text){(const char *)p, (size_t)(end - from)};
    return GD_OK;
}

/* --- the stack and the memo ------------------------------------------------------------------- */

/* An array with room for more than `count` pointers; false if out of memory. */
static bool reserve(gd_pickle_value ***array, size_t count, size_t *room) {
    if (count < *room) return true;
    const size_t larger = *room ? 2 * *room : 64;
    gd_pickle_value **grown = gd_realloc(*array, larger * sizeof *grown);
    if (!grown) return false;
    *array = grown;
    *room = larger;
    return true;
}

static gd_status push(reader *r, gd_pickle_value *v) {
    if (!reserve(&r->stack, r->depth, &r->stack_room)) return no_memory(r);
    r->stack[r->depth++] = v;
    return GD_OK;
}

static gd_status push_new(reader *r, gd_pickle_value value) {
    gd_pickle_value *v = gd_pickle_allocate(r->out, sizeof *v);
    if (!v) return no_memory(r);
    *v = value;
    return push(r, v);
}

static gd_status pop(reader *r, gd_pickle_value **v) {
    if (r->depth == 0 || !r->stack[r->depth - 1])
        return fail_at(r, "there is no value on the stack");
    *v = r->stack[--r->depth];
    return GD_OK;
}

/* The values above the latest mark, which leave the stack; valid until the next push. */
static gd_status pop_to_mark(reader *r, gd_pickle_value ***items, size_t *count) {
    size_t from = r->depth;
    while (from > 0 && r->stack[from - 1]) from--;
    if (from == 0) return fail_at(r, "there is no mark on the stack");
    *items = r->stack + from;
    *count = r->depth - from;
    r->depth = from - 1;
    return GD_OK;
}

static gd_status memo_put(reader *r, uint64_t index) {
    if (r->depth == 0 || !r->stack[r->depth - 1])
        return fail_at(r, "there is no value to remember");
    /* Python numbers them in order; the memo takes no memory for numbers that the input does not
     * back */
    if (index >= r->bytes) return fail_at(r, "the number is larger than the pickle");
    while (r->memo_count <= index) {
        if (!reserve(&r->memo, r->memo_count, &r->memo_room)) return no_memory(r);
        r->memo[r->memo_count++] = NULL;
    }
    r->memo[index] = r->stack[r->depth - 1];
    return GD_OK;
}

static gd_status memo_get(reader *r, uint64_t index) {
    if (index >= r->memo_count || !r->memo[index])
        return fail_at(r, "nothing was remembered under this number");
    return push(r, r->memo[index]);
}

/* --- opcodes ---------------------------------------------------------------------------------- */

static gd_status push_text(reader *r, gd_pickle_type type, int width) {
    uint64_t length = 0;
    const uint8_t *p = NULL;
    GD_TRY(take_number(r, width, &length));
    GD_TRY(take(r, length, &p));
    return push_new(r, (gd_pickle_value){.type = type, .text = {(const char *)p, (size_t)length}});
}

static gd_status push_integer(reader *r, int64_t integer) {
    return push_new(r, (gd_pickle_value){.type = GD_PICKLE_INT, .integer = integer});
}

static gd_status push_small(reader *r, int width) {
    uint64_t number = 0;
    GD_TRY(take_number(r, width, &number));
    return push_integer(r, width == 4 ? (int32_t)number : (int64_t)number);
}

/* Two's complement of any length. */
static gd_status push_long(reader *r, int width) {
    uint64_t length = 0, bits = 0;
    const uint8_t *p = NULL;
    GD_TRY(take_number(r, width, &length));
    GD_TRY(take(r, length, &p));
    if (length > 8)
        return push_new(r, (gd_pickle_value){.type = GD_PICKLE_BIGINT,
                                             .text = {(const char *)p, (size_t)length}});
    for (size_t i = 0; i < length; i++) bits |= (uint64_t)p[i] << (8 * i);
    if (length > 0 && length < 8 && p[length - 1] & 0x80) bits |= UINT64_MAX << (8 * length);
    return push_integer(r, (int64_t)bits);
}

/* Big-endian. */
static gd_status push_float(reader *r) {
    const uint8_t *p = NULL;
    uint64_t bits = 0;
    double number;
    GD_TRY(take(r, 8, &p));
    for (int i = 0; i < 8; i++) bits = bits << 8 | p[i];
    memcpy(&number, &bits, sizeof number);
    return push_new(r, (gd_pickle_value){.type = GD_PICKLE_FLOAT, .number = number});
}

/* A new container of these values. */
static gd_status push_items(reader *r, gd_pickle_type type, gd_pickle_value *const *items,
                            size_t count) {
    gd_pickle_value v = {.type = type};
    if (count > 0) {
        v.items = gd_pickle_allocate(r->out, count * sizeof *v.items);
        if (!v.items) return no_memory(r);
        memcpy(v.items, items, count * sizeof *items);
        v.count = v.room = count;
    }
    return push_new(r, v);
}

static gd_status push_tuple(reader *r, size_t count) {
    if (r->depth < count) return fail_at(r, "there are too few values on the stack");
    for (size_t i = 0; i < count; i++)
        if (!r->stack[r->depth - 1 - i]) return fail_at(r, "there is a mark among the values");
    r->depth -= count;
    return push_items(r, GD_PICKLE_TUPLE, r->stack + r->depth, count);
}

static gd_status push_marked(reader *r, gd_pickle_type type) {
    gd_pickle_value **items;
    size_t count;
    GD_TRY(pop_to_mark(r, &items, &count));
    if (type == GD_PICKLE_DICT && count % 2) return fail_at(r, "a key has no value");
    return push_items(r, type, items, count);
}

/* The container for what is added to a value: the value itself, or a part of an object. */
static gd_status container_of(reader *r, gd_pickle_value *v, gd_pickle_type type,
                              gd_pickle_value **to) {
    *to = v;
    if (v->type == type) return GD_OK;
    if (v->type != GD_PICKLE_OBJECT || type == GD_PICKLE_SET)
        return fail_at(r, "the value below cannot hold others");
    gd_pickle_value **part = type == GD_PICKLE_DICT ? &v->dict : &v->list;
    if (!*part) {
        if (!(*part = gd_pickle_allocate(r->out, sizeof **part))) return no_memory(r);
        **part = (gd_pickle_value){.type = type};
    }
    *to = *part;
    return GD_OK;
}

/* Adds values that have left the stack to the one on its top. */
static gd_status add_items(reader *r, gd_pickle_type type, gd_pickle_value *const *items,
                           size_t count) {
    gd_pickle_value *to;
    if (r->depth == 0 || !r->stack[r->depth - 1]) return fail_at(r, "there is nothing to add to");
    if (type == GD_PICKLE_DICT && count % 2) return fail_at(r, "a key has no value");
    GD_TRY(container_of(r, r->stack[r->depth - 1], type, &to));
    if (count > to->room - to->count) {
        size_t room = to->room * 2 < to->count + count ? to->count + count : to->room * 2;
        gd_pickle_value **grown = gd_pickle_allocate(r->out, room * sizeof *grown);
        if (!grown) return no_memory(r);
        if (to->count) memcpy(grown, to->items, to->count * sizeof *grown);
        to->items = grown;
        to->room = room;
    }
    if (count) memcpy(to->items + to->count, items, count * sizeof *items);
    to->count += count;
    return GD_OK;
}

static gd_status add_last(reader *r, gd_pickle_type type, size_t count) {
    gd_pickle_value *items[2];
    for (size_t i = count; i-- > 0;) GD_TRY(pop(r, &items[i]));
    return add_items(r, type, items, count);
}

static gd_status add_marked(reader *r, gd_pickle_type type) {
    gd_pickle_value **items;
    size_t count;
    GD_TRY(pop_to_mark(r, &items, &count));
    return add_items(r, type, items, count);
}

static gd_status push_global(reader *r, bool from_stack) {
    gd_pickle_value v = {.type = GD_PICKLE_GLOBAL}, *module = NULL, *name = NULL;
    if (!from_stack) {
        GD_TRY(take_line(r, &v.module));
        GD_TRY(take_line(r, &v.name));
        return push_new(r, v);
    }
    GD_TRY(pop(r, &name));
    GD_TRY(pop(r, &module));
    if (name->type != GD_PICKLE_TEXT || module->type != GD_PICKLE_TEXT)
        return fail_at(r, "the name of a class is no str");
    v.module = module->text;
    v.name = name->text;
    return push_new(r, v);
}

/* A call of a function, or a new object of a class; the keywords of NEWOBJ_EX are left out. */
static gd_status push_object(reader *r, bool has_keywords) {
    gd_pickle_value v = {.type = GD_PICKLE_OBJECT}, *keywords;
    if (has_keywords) GD_TRY(pop(r, &keywords));
    GD_TRY(pop(r, &v.arguments));
    GD_TRY(pop(r, &v.of));
    if (v.arguments->type != GD_PICKLE_TUPLE) return fail_at(r, "the arguments are no tuple");
    return push_new(r, v);
}

static gd_status push_persistent(reader *r) {
    gd_pickle_value v = {.type = GD_PICKLE_PERSISTENT};
    gd_pickle *out = r->out;
    GD_TRY(pop(r, &v.of));
    GD_TRY(push_new(r, v));
    if (!reserve(&out->persistent, out->n_persistent, &r->persistent_room)) return no_memory(r);
    out->persistent[out->n_persistent++] = r->stack[r->depth - 1];
    return GD_OK;
}

static gd_status build(reader *r) {
    gd_pickle_value *state = NULL, *object = NULL;
    GD_TRY(pop(r, &state));
    GD_TRY(pop(r, &object));
    if (object->type == GD_PICKLE_OBJECT) object->state = state;
    else if (object->type != GD_PICKLE_PERSISTENT && object->type != GD_PICKLE_GLOBAL)
        return fail_at(r, "the value below has no state");
    return push(r, object);
}

static gd_status check_protocol(reader *r) {
    uint64_t version = 0;
    GD_TRY(take_number(r, 1, &version));
    if (version <= LATEST_PROTOCOL) return GD_OK;
    return gd_fail(GD_E_UNSUPPORTED, "%s: is a pickle of protocol %d; the latest known is %d",
                   r->name, (int)version, LATEST_PROTOCOL);
}

/* --- the machine ------------------------------------------------------------------------------ */

static gd_status run_number(reader *r, uint8_t op) {
    switch (op) {
    case OP_NONE: return push_new(r, (gd_pickle_value){.type = GD_PICKLE_NONE});
    case OP_NEWTRUE:
    case OP_NEWFALSE:
        return push_new(r, (gd_pickle_value){.type = GD_PICKLE_BOOL, .integer = op == OP_NEWTRUE});
    case OP_BININT: return push_small(r, 4);
    case OP_BININT1: return push_small(r, 1);
    case OP_BININT2: return push_small(r, 2);
    case OP_LONG1: return push_long(r, 1);
    case OP_LONG4: return push_long(r, 4);
    case OP_BINFLOAT: return push_float(r);
    case OP_BINSTRING:
    case OP_BINUNICODE: return push_text(r, GD_PICKLE_TEXT, 4);
    case OP_SHORT_BINSTRING:
    case OP_SHORT_BINUNICODE: return push_text(r, GD_PICKLE_TEXT, 1);
    case OP_BINUNICODE8: return push_text(r, GD_PICKLE_TEXT, 8);
    case OP_BINBYTES: return push_text(r, GD_PICKLE_BYTES, 4);
    case OP_SHORT_BINBYTES: return push_text(r, GD_PICKLE_BYTES, 1);
    case OP_BINBYTES8:
    case OP_BYTEARRAY8: return push_text(r, GD_PICKLE_BYTES, 8);
    }
    return gd_fail(GD_E_UNSUPPORTED,
                   "%s: the pickle has the opcode %s (0x%02x) at byte %" PRIu64
                   ", which is not read",
                   r->name, op_name(op), op, r->begin + r->op_at);
}

static gd_status run_container(reader *r, uint8_t op) {
    switch (op) {
    case OP_EMPTY_TUPLE: return push_tuple(r, 0);
    case OP_TUPLE1: return push_tuple(r, 1);
    case OP_TUPLE2: return push_tuple(r, 2);
    case OP_TUPLE3: return push_tuple(r, 3);
    case OP_TUPLE: return push_marked(r, GD_PICKLE_TUPLE);
    case OP_EMPTY_LIST: return push_items(r, GD_PICKLE_LIST, NULL, 0);
    case OP_LIST: return push_marked(r, GD_PICKLE_LIST);
    case OP_APPEND: return add_last(r, GD_PICKLE_LIST, 1);
    case OP_APPENDS: return add_marked(r, GD_PICKLE_LIST);
    case OP_EMPTY_DICT: return push_items(r, GD_PICKLE_DICT, NULL, 0);
    case OP_DICT: return push_marked(r, GD_PICKLE_DICT);
    case OP_SETITEM: return add_last(r, GD_PICKLE_DICT, 2);
    case OP_SETITEMS: return add_marked(r, GD_PICKLE_DICT);
    case OP_EMPTY_SET: return push_items(r, GD_PICKLE_SET, NULL, 0);
    case OP_FROZENSET: return push_marked(r, GD_PICKLE_SET);
    case OP_ADDITEMS: return add_marked(r, GD_PICKLE_SET);
    }
    return run_number(r, op);
}

static gd_status run_op(reader *r, uint8_t op) {
    gd_pickle_value *v = NULL, **items;
    uint64_t number = 0;
    size_t count;
    switch (op) {
    case OP_PROTO: return check_protocol(r);
    case OP_FRAME: return take_number(r, 8, &number); /* a hint for buffers */
    case OP_MARK: return push(r, NULL);
    case OP_POP:
        if (r->depth == 0) return fail_at(r, "the stack is empty");
        r->depth--;
        return GD_OK;
    case OP_POP_MARK: return pop_to_mark(r, &items, &count);
    case OP_BINPUT: GD_TRY(take_number(r, 1, &number)); return memo_put(r, number);
    case OP_LONG_BINPUT: GD_TRY(take_number(r, 4, &number)); return memo_put(r, number);
    case OP_MEMOIZE: return memo_put(r, r->memo_count);
    case OP_BINGET: GD_TRY(take_number(r, 1, &number)); return memo_get(r, number);
    case OP_LONG_BINGET: GD_TRY(take_number(r, 4, &number)); return memo_get(r, number);
    case OP_GLOBAL: return push_global(r, false);
    case OP_STACK_GLOBAL: return push_global(r, true);
    case OP_REDUCE:
    case OP_NEWOBJ: return push_object(r, false);
    case OP_NEWOBJ_EX: return push_object(r, true);
    case OP_BUILD: return build(r);
    case OP_BINPERSID: return push_persistent(r);
    case OP_STOP:
        GD_TRY(pop(r, &v));
        r->out->root = v;
        return GD_OK;
    }
    return run_container(r, op);
}

gd_status gd_pickle_read(gd_pickle *out, const char *name, const void *data, size_t bytes,
                         uint64_t begin, bool *cut) {
    reader r = {.out = out, .name = name, .data = data, .bytes = bytes, .begin = begin};
    gd_status status = GD_OK;
    const uint8_t *op = NULL;
    *out = (gd_pickle){0};
    while (status == GD_OK && !out->root) {
        r.op_at = r.at;
        status = take(&r, 1, &op);
        if (status == GD_OK) status = run_op(&r, *op);
    }
    out->bytes = r.at;
    gd_free(r.stack);
    gd_free(r.memo);
    if (cut) *cut = r.cut;
    if (status != GD_OK) gd_pickle_free(out);
    return status;
}
