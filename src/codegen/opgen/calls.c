/* calls.c - writes op_calls.c: the functions behind the macros of ops.h. */
#include <string.h>

#include "codegen/opgen/opgen.h"

static bool has_list_attr(const gd_record *r) {
    for (int i = 0; i < r->n_attrs; i++)
        if (r->attrs[i].type == GD_ATTR_INTS || r->attrs[i].type == GD_ATTR_SHAPE) return true;
    return false;
}

static void print_call_body(FILE *out, const op *o) {
    const gd_record *r = &o->record;
    bool options = has_options(o), attrs = r->n_attrs > 0;
    fputs(" {\n", out);
    if (options)
        fprintf(out, "    gd_%s_options attrs = options ? *options : gd_%s_defaults_;\n", r->name,
                r->name);
    else if (attrs)
        fprintf(out, "    gd_%s_options attrs;\n    memset(&attrs, 0, sizeof attrs);\n", r->name);
    for (int i = 0; i < r->n_attrs; i++)
        if (r->attrs[i].required)
            fprintf(out, "    attrs.%s = %s;\n", r->attrs[i].name, r->attrs[i].name);
    const char *attrs_arg = attrs ? "&attrs" : "NULL";
    bool variadic = r->n_inputs > 0 && r->inputs[r->n_inputs - 1].variadic;
    const char *in = "in";
    char count[96];
    if (variadic && r->n_inputs == 1) {
        fprintf(out, "    gd_tensor *const *in = %s.at;\n", r->inputs[0].name);
        snprintf(count, sizeof count, "(int)%s.count", r->inputs[0].name);
    } else if (variadic) {
        const char *last = r->inputs[r->n_inputs - 1].name;
        fprintf(out, "    gd_tensor *in[%d + GD_MAX_VARIADIC] = {", r->n_inputs - 1);
        for (int i = 0; i + 1 < r->n_inputs; i++)
            fprintf(out, "%s%s", i ? ", " : "", r->inputs[i].name);
        fprintf(out, "};\n    int count = gd_join_inputs(in, %d, %s);\n", r->n_inputs - 1, last);
        snprintf(count, sizeof count, "count");
    } else {
        if (r->n_inputs == 0) fputs("    gd_tensor *const *in = NULL;\n", out);
        else {
            fputs("    gd_tensor *in[] = {", out);
            for (int i = 0; i < r->n_inputs; i++)
                fprintf(out, "%s%s%s", i ? ", " : "", r->inputs[i].option ? "attrs." : "",
                        r->inputs[i].name);
            fputs("};\n", out);
        }
        snprintf(count, sizeof count, "%d", r->n_inputs);
    }
    if (attrs && has_list_attr(r))
        fprintf(out, "    gd_attrs_normalize(&gd_op_%s, &attrs);\n", r->name);
    if (variadic_output(o))
        fprintf(out, "    return gd_dispatch_list(&gd_op_%s, site, %s, %s, %s);\n", r->name, in,
                count, attrs_arg);
    else if (visible_outputs(o) == 1)
        fprintf(out, "    return gd_dispatch_one(&gd_op_%s, site, %s, %s, %s);\n", r->name, in,
                count, attrs_arg);
    else {
        fprintf(out, "    gd_tensor *out[%d];\n", r->n_outputs);
        fprintf(out, "    gd_dispatch(&gd_op_%s, site, %s, %s, %s, out, %d);\n", r->name, in, count,
                attrs_arg, r->n_outputs);
        fprintf(out, "    return (gd_%s_outputs){", r->name);
        for (int i = 0, n = 0; i < r->n_outputs; i++)
            if (!r->outputs[i].hidden) fprintf(out, "%sout[%d]", n++ ? ", " : "", i);
        fputs("};\n", out);
    }
    fputs("}\n\n", out);
}

static void print_numbers_call(FILE *out, const op *o) {
    const gd_record *r = &o->record;
    print_numbers_prototype(out, o);
    fputs(" {\n", out);
    const bool inplace = !is_operand(o, 0);
    if (inplace) fprintf(out, "    gd_operand written = {.tensor = %s};\n", r->inputs[0].name);
    fputs("    gd_operand *const operands[] = {", out);
    for (int i = 0; i < r->n_inputs; i++)
        fprintf(out, "%s&%s", i ? ", " : "", i == 0 && inplace ? "written" : r->inputs[i].name);
    fprintf(out,
            "};\n    gd_scope *scope = gd_operands_begin(&gd_op_%s, site, operands, %#x);\n"
            "    return gd_operands_end(scope, gd_%s_at(site",
            r->name, deciding_inputs(o), r->name);
    for (int i = 0; i < r->n_order; i++) {
        const int k = r->order[i];
        fprintf(out, ", %s%s", k < 0 ? r->attrs[~k].name : r->inputs[k].name,
                k >= 0 && is_operand(o, k) ? ".tensor" : "");
    }
    fprintf(out, "%s));\n}\n\n", has_options(o) ? ", options" : "");
}

/* `inplace`: o is the in-place form, which shares the options struct. */
static void print_call(FILE *out, const op *o, bool inplace) {
    const gd_record *r = &o->record;
    fprintf(out, "extern const gd_op gd_op_%s;\n", r->name);
    if (has_options(o)) {
        fprintf(out, "static const gd_%s_options gd_%s_defaults_ = {", r->name, r->name);
        int n = 0;
        for (int i = 0; i < r->n_attrs; i++) {
            if (r->attrs[i].required) continue;
            fprintf(out, "%s.%s = ", n++ ? ", " : "", r->attrs[i].name);
            print_default(out, &r->attrs[i], FILLED);
        }
        for (int i = 0; i < r->n_inputs; i++)
            if (r->inputs[i].option)
                fprintf(out, "%s.%s = NULL", n++ ? ", " : "", r->inputs[i].name);
        fputs("};\n", out);
        if (!inplace)
            fprintf(out, "gd_%s_options gd_%s_defaults(void) { return gd_%s_defaults_; }\n",
                    r->name, r->name, r->name);
    }
    print_prototype(out, o);
    print_call_body(out, o);
    if (takes_numbers(o)) print_numbers_call(out, o);
}

void write_calls(void) {
    FILE *out = begin_output("op_calls.c");
    fputs("/* Written by the build from the op records. */\n#include <string.h>\n\n#include "
          "\"gradus/ops.h\"\n#include \"dispatch/call.h\"\n#include \"dispatch/op.h\"\n#include "
          "\"dispatch/operand.h\"\n\n",
          out);
    for (int i = 0; i < n_ops; i++) {
        print_call(out, ops[i], false);
        if (!ops[i]->record.inplace_too) continue;
        op inplace = *ops[i];
        char name[80];
        snprintf(name, sizeof name, "%s_", inplace.record.name);
        inplace.record.name = name;
        print_call(out, &inplace, true);
    }
    finish_output();
}
