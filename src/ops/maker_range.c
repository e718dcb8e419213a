/* maker_range.c - the ranges of options, which the documentation of an option begins with: "in [0, 1): of
 * ...". */
#include <math.h>
#include <string.h>

#include "core/number.h"
#include "ops/call.h"
#include "ops/maker.h"

typedef struct range {
    double low, high;
    bool with_low, with_high; /* the ends themselves */
    int length;               /* of its text */
} range;

static double parse_end(const char **text) {
    char *end;
    const bool minus = **text == '-';
    if (strncmp(*text + minus, "inf", 3) == 0) {
        *text += minus + 3;
        return minus ? -INFINITY : INFINITY;
    }
    const double value = gd_double_parse(*text, &end);
    *text = end;
    return value;
}

/* Whether the text begins with a range. */
static bool parse(const char *doc, range *r) {
    const char *at = doc;
    if (strncmp(at, "in ", 3) != 0 || (at[3] != '[' && at[3] != '(')) return false;
    r->with_low = at[3] == '[';
    at += 4;
    r->low = parse_end(&at);
    if (strncmp(at, ", ", 2) != 0) return false;
    at += 2;
    r->high = parse_end(&at);
    if (*at != ']' && *at != ')') return false;
    r->with_high = *at == ']';
    r->length = (int)(at + 1 - (doc + 3));
    return true;
}

static bool holds(const range *r, double value) {
    return (r->with_low ? value >= r->low : value > r->low) &&
           (r->with_high ? value <= r->high : value < r->high);
}

static gd_status refuse(const gd_maker *maker, const gd_op_attr *a, double value, const range *r,
                        const char *prefix) {
    return gd_fail(GD_E_ARGUMENT, "%s%s: %s is %g; it must be in %.*s", prefix, maker->record.name,
                   a->name, value, r->length, a->doc + 3);
}

gd_status gd_check_ranges(const gd_maker *maker, const void *options, const char *prefix) {
    for (int i = 0; i < maker->record.n_attrs; i++) {
        const gd_op_attr *a = &maker->record.attrs[i];
        range r;
        if (!parse(a->doc, &r)) continue;
        const gd_shape *list =
            a->type == GD_ATTR_SHAPE ? (const void *)((const char *)options + a->offset) : NULL;
        for (int k = 0; list && k < list->rank; k++)
            if (!holds(&r, (double)list->at[k]))
                return refuse(maker, a, (double)list->at[k], &r, prefix);
        if (list) continue;
        const gd_floats *floats =
            a->type == GD_ATTR_FLOATS ? (const void *)((const char *)options + a->offset) : NULL;
        for (int k = 0; floats && k < floats->count; k++)
            if (!holds(&r, floats->at[k])) return refuse(maker, a, floats->at[k], &r, prefix);
        if (floats) continue;
        const double value = gd_attr_number(a, options).value;
        if (!holds(&r, value)) return refuse(maker, a, value, &r, prefix);
    }
    return GD_OK;
}
