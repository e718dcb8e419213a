/* options.c - compares and prints the options of nodes and steps. */
#include "graph/build/options.h"

#include <string.h>

#include "core/index_set.h"
#include "core/integer.h"
#include "core/number.h"

bool gd_same_option(const gd_op_attr *a, const void *x, const void *y) {
    switch (a->type) {
    case GD_ATTR_INT: return memcmp(x, y, sizeof(int64_t)) == 0;
    case GD_ATTR_FLOAT: return memcmp(x, y, sizeof(double)) == 0;
    case GD_ATTR_NUMBER: return gd_number_equal(*(const gd_number *)x, *(const gd_number *)y);
    case GD_ATTR_BOOL: return *(const bool *)x == *(const bool *)y;
    case GD_ATTR_INTS: return memcmp(x, y, (size_t)a->count * sizeof(int64_t)) == 0;
    case GD_ATTR_SHAPE: {
        const gd_shape *s = (const gd_shape *)x, *t = (const gd_shape *)y;
        return s->rank == t->rank && s->form == t->form &&
               memcmp(s->at, t->at, sizeof(int64_t) * (size_t)(s->rank > 0 ? s->rank : 0)) == 0;
    }
    case GD_ATTR_FLOATS: {
        const gd_floats *s = x, *t = y;
        return s->count == t->count && s->form == t->form &&
               memcmp(s->at, t->at, sizeof(double) * (size_t)(s->count > 0 ? s->count : 0)) == 0;
    }
    case GD_ATTR_WORD: return *(const gd_word *)x == *(const gd_word *)y;
    case GD_ATTR_DTYPE: return *(const gd_dtype *)x == *(const gd_dtype *)y;
    case GD_ATTR_STRING: {
        const char *s = *(const char *const *)x, *t = *(const char *const *)y;
        return s == t || (s && t && strcmp(s, t) == 0);
    }
    case GD_ATTR_GRAPH: return *(gd_subgraph *const *)x == *(gd_subgraph *const *)y;
    }
    return false;
}

static uint64_t hash_words(uint64_t hash, int count, const void *words) {
    uint64_t word;
    for (int i = 0; i < count; i++) {
        memcpy(&word, (const char *)words + (size_t)i * sizeof word, sizeof word);
        hash = gd_hash_mix(hash, word);
    }
    return hash;
}

/* Options of the types without a case differ rarely where the inputs are the same. */
uint64_t gd_hash_option(uint64_t hash, const gd_op_attr *a, const void *x) {
    switch (a->type) {
    case GD_ATTR_INT:
    case GD_ATTR_FLOAT: return hash_words(hash, 1, x);
    case GD_ATTR_INTS: return hash_words(hash, a->count, x);
    case GD_ATTR_SHAPE:
        return hash_words(hash, ((const gd_shape *)x)->rank, ((const gd_shape *)x)->at);
    case GD_ATTR_FLOATS:
        return hash_words(hash, ((const gd_floats *)x)->count, ((const gd_floats *)x)->at);
    case GD_ATTR_NUMBER: {
        const double value = ((const gd_number *)x)->value;
        return hash_words(hash, 1, &value);
    }
    default: return hash;
    }
}

void gd_fprint_options(FILE *out, const gd_op *op, const void *attrs) {
    for (int i = 0; i < op->n_attrs && attrs; i++) {
        const gd_op_attr *a = &op->attrs[i];
        const char *field = (const char *)attrs + a->offset;
        const char *default_field = (const char *)op->defaults + a->offset;
        char text[128];
        switch (a->type) {
        case GD_ATTR_INT:
            if (memcmp(field, default_field, sizeof(int64_t)) == 0) break;
            fprintf(out, " %s=%lld", a->name, (long long)*(const int64_t *)field);
            break;
        case GD_ATTR_FLOAT:
            if (memcmp(field, default_field, sizeof(double)) == 0) break;
            gd_fprintf(out, " %s=%.9g", a->name, *(const double *)field);
            break;
        case GD_ATTR_NUMBER: {
            const gd_number n = *(const gd_number *)field;
            if (gd_same_option(a, field, default_field)) break;
            if (gd_number_is_integer(n) && (double)gd_number_i64(n) == n.value)
                fprintf(out, " %s=%lld", a->name, (long long)gd_number_i64(n));
            else gd_fprintf(out, " %s=%.9g", a->name, n.value);
            break;
        }
        case GD_ATTR_BOOL:
            if (*(const bool *)field == *(const bool *)default_field) break;
            fprintf(out, " %s=%s", a->name, *(const bool *)field ? "true" : "false");
            break;
        case GD_ATTR_INTS:
            if (memcmp(field, default_field, (size_t)a->count * sizeof(int64_t)) == 0) break;
            fprintf(out, " %s=%s", a->name,
                    gd_numbers_text(a->count, (const int64_t *)field, text, sizeof text));
            break;
        case GD_ATTR_SHAPE: {
            const gd_shape *s = (const gd_shape *)field;
            if (s->form == 1)
                fprintf(out, " %s=%s", a->name, gd_numbers_text(s->rank, s->at, text, sizeof text));
            break;
        }
        case GD_ATTR_DTYPE:
            if (*(const gd_dtype *)field)
                fprintf(out, " %s=%s", a->name, gd_dtype_name(*(const gd_dtype *)field));
            break;
        default: break;
        }
    }
}
