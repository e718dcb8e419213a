/* factory_range.c - checks options against the ranges that their documentation begins with:
 * "in [0, 1): ...". */
#include <math.h>
#include <string.h>

#include "core/number.h"
#include "dispatch/call.h"
#include "dispatch/factory.h"

typedef struct option_range {
    double low, high;
    bool with_low, with_high; /* whether the ends belong to the range */
    int length;               /* of its text */
} option_range;

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

/* False if the documentation does not begin with a range. */
static bool parse_range(const char *doc, option_range *r) {
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

static bool range_contains(const option_range *r, double value) {
    return (r->with_low ? value >= r->low : value > r->low) &&
           (r->with_high ? value <= r->high : value < r->high);
}

static gd_status fail_range(const gd_factory *factory, const gd_op_attr *a, double value,
                            const option_range *r, const char *prefix) {
    return gd_fail(GD_E_ARGUMENT, "%s%s: %s is %g; it must be in %.*s", prefix,
                   factory->record.name, a->name, value, r->length, a->doc + 3);
}

gd_status gd_check_ranges(const gd_factory *factory, const void *options, const char *prefix) {
    for (int i = 0; i < factory->record.n_attrs; i++) {
        const gd_op_attr *a = &factory->record.attrs[i];
        option_range r;
        if (!parse_range(a->doc, &r)) continue;
        const gd_shape *list =
            a->type == GD_ATTR_SHAPE ? (const void *)((const char *)options + a->offset) : NULL;
        for (int k = 0; list && k < list->rank; k++)
            if (!range_contains(&r, (double)list->at[k]))
                return fail_range(factory, a, (double)list->at[k], &r, prefix);
        if (list) continue;
        const gd_floats *floats =
            a->type == GD_ATTR_FLOATS ? (const void *)((const char *)options + a->offset) : NULL;
        for (int k = 0; floats && k < floats->count; k++)
            if (!range_contains(&r, floats->at[k]))
                return fail_range(factory, a, floats->at[k], &r, prefix);
        if (floats) continue;
        const double value = gd_attr_number(a, options).value;
        if (!range_contains(&r, value)) return fail_range(factory, a, value, &r, prefix);
    }
    return GD_OK;
}
