/* state_fields.c - see state_fields.h. */
#include "core/state_fields.h"

static gd_status put_field(gd_state *state, const char *at, const gd_state_field *f) {
    switch (f->kind) {
    case GD_FIELD_INTEGER: return gd_state_put_integer(state, f->name, *(const int64_t *)at);
    case GD_FIELD_UNSIGNED: return gd_state_put_unsigned(state, f->name, *(const uint64_t *)at);
    case GD_FIELD_FLOAT: return gd_state_put_float(state, f->name, *(const double *)at);
    case GD_FIELD_TEXT: return gd_state_put_text(state, f->name, *(char *const *)at);
    case GD_FIELD_TENSOR: return gd_state_put_tensor(state, f->name, *(gd_tensor *const *)at);
    }
    return GD_OK;
}

static gd_status load_field(gd_loading *in, char *at, const gd_state_field *f) {
    switch (f->kind) {
    case GD_FIELD_INTEGER: return gd_loading_integer(in, f->name, (int64_t *)at);
    case GD_FIELD_UNSIGNED: return gd_loading_unsigned(in, f->name, (uint64_t *)at);
    case GD_FIELD_FLOAT: return gd_loading_float(in, f->name, (double *)at);
    case GD_FIELD_TEXT: return gd_loading_text(in, f->name, (char **)at);
    case GD_FIELD_TENSOR: return gd_loading_tensor(in, f->name, *(gd_tensor **)at);
    }
    return GD_OK;
}

gd_status gd_state_put_fields(gd_state *state, const void *of, const gd_state_field *fields,
                              int count) {
    for (int i = 0; i < count; i++)
        GD_TRY(put_field(state, (const char *)of + fields[i].offset, &fields[i]));
    return GD_OK;
}

gd_status gd_loading_fields(gd_loading *in, void *of, const gd_state_field *fields, int count) {
    for (int i = 0; i < count; i++)
        GD_TRY(load_field(in, (char *)of + fields[i].offset, &fields[i]));
    return GD_OK;
}
