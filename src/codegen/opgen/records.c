/* records.c - writes PATH.gen.h, the records of a source file as data, and op_table.c. */
#include <string.h>

#include "core/number.h"
#include "codegen/opgen/opgen.h"

void print_string(FILE *out, const char *text) {
    fputc('"', out);
    for (; text && *text; text++) {
        if (*text == '"' || *text == '\\') fputc('\\', out);
        if (*text == '\n') fputs("\\n", out);
        else fputc(*text, out);
    }
    fputc('"', out);
}

static void print_operator(FILE *out, const char *system, const gd_operator_text *t) {
    const char *const names[] = {"inputs", "attributes", "when", "cast"};
    const char *const lists[] = {t->inputs, t->attributes, t->when, t->cast};
    if (!*t->name) return;
    fprintf(out, ",\n    .%s = {.name = \"%s\"", system, t->name);
    for (int i = 0; i < 4; i++) {
        if (!lists[i]) continue;
        fprintf(out, ", .%s = ", names[i]);
        print_string(out, lists[i]);
    }
    fputs("}", out);
}

void print_operators(FILE *out, const gd_record *r) {
    print_operator(out, "onnx", &r->onnx);
    print_operator(out, "caffe", &r->caffe);
}

/* A number as a C constant; infinities and NaN have no digits. */
static void print_real(FILE *out, double value) {
    if (value != value) fputs("NAN", out);
    else if (value - value != 0) fprintf(out, "%sINFINITY", value < 0 ? "-" : "");
    else gd_fprintf(out, "%a", value);
}

void print_params(FILE *out, const char *op_name, const char *which, const gd_op_param *p, int n) {
    if (n == 0) return;
    fprintf(out, "static const gd_op_param %s_%s_[] = {\n", op_name, which);
    for (int i = 0; i < n; i++) {
        fprintf(out, "    {\"%s\", %d, %d, %d, %d, %d, %d, ", p[i].name, p[i].optional,
                p[i].variadic, p[i].mutated, p[i].option, p[i].hidden, p[i].has_neutral);
        print_real(out, p[i].neutral);
        fputs("},\n", out);
    }
    fputs("};\n", out);
}

void print_attrs(FILE *out, const gd_record *r) {
    static const char *const types[] = {"GD_ATTR_INT",    "GD_ATTR_FLOAT",  "GD_ATTR_BOOL",
                                        "GD_ATTR_INTS",   "GD_ATTR_SHAPE",  "GD_ATTR_WORD",
                                        "GD_ATTR_DTYPE",  "GD_ATTR_STRING", "GD_ATTR_GRAPH",
                                        "GD_ATTR_NUMBER", "GD_ATTR_FLOATS"};
    if (r->n_attrs == 0) return;
    fprintf(out, "static const gd_op_attr %s_attrs_[] = {\n", r->name);
    for (int i = 0; i < r->n_attrs; i++) {
        const gd_op_attr *a = &r->attrs[i];
        fprintf(out,
                "    {.name = \"%s\", .type = %s, .count = %d, .required = %d, .default_text = ",
                a->name, types[a->type], a->count, a->required);
        if (a->default_text) print_string(out, a->default_text);
        else fputs("NULL", out);
        fputs(", .words = ", out);
        if (a->words) print_string(out, a->words);
        else fputs("NULL", out);
        fputs(", .doc = ", out);
        print_string(out, a->doc);
        fprintf(out, ", .offset = offsetof(gd_%s_options, %s)},\n", r->name, a->name);
    }
    fprintf(out, "};\nstatic const gd_%s_options %s_default_attrs_ = {", r->name, r->name);
    for (int i = 0; i < r->n_attrs; i++) {
        fprintf(out, "%s.%s = ", i ? ", " : "", r->attrs[i].name);
        print_default(out, &r->attrs[i], FILLED);
    }
    fputs("};\n", out);
}

static void print_ir(FILE *out, const char *name, const gd_ir *ir) {
    fprintf(out, "static const gd_ir_node %s_nodes_[] = {", name);
    for (int i = 0; i < ir->count; i++) {
        const gd_ir_node *n = &ir->nodes[i];
        fprintf(out, "%s{%d, {%d, %d, %d}, ", i ? ", " : "", n->code, n->arg[0], n->arg[1],
                n->arg[2]);
        print_real(out, n->value);
        fputc('}', out);
    }
    fprintf(out, "};\nstatic const gd_ir %s_ir_ = {%d, %d, %d, %d, {", name, ir->count, ir->n_vars,
            ir->n_params, ir->n_outputs);
    for (int i = 0; i < ir->n_outputs; i++) fprintf(out, "%s%d", i ? ", " : "", ir->output[i]);
    fprintf(out, "}, %s_nodes_};\n", name);
}

static void print_expressions(FILE *out, op *o) {
    gd_record *r = &o->record;
    gd_ir_node nodes[GD_IR_MAX_NODES];
    gd_ir ir;
    char name[160];
    if (!gd_record_forward(r, &ir, nodes)) die(o->source->path, o->line, "%s", r->error);
    print_ir(out, r->name, &ir);
    for (int i = 0; i < r->n_inputs; i++) {
        if (!gd_record_gradient(r, i, &ir, nodes)) die(o->source->path, o->line, "%s", r->error);
        snprintf(name, sizeof name, "%s_g%s", r->name, r->inputs[i].name);
        print_ir(out, name, &ir);
    }
    fprintf(out, "static const gd_ir *const %s_gradients_[] = {", r->name);
    for (int i = 0; i < r->n_inputs; i++)
        fprintf(out, "%s&%s_g%s_ir_", i ? ", " : "", r->name, r->inputs[i].name);
    fputs("};\n", out);
}

/* The inputs and outputs that the gradients of an elementwise op read, as masks. */
static void elementwise_saves(op *o, uint32_t *in, uint32_t *out) {
    gd_record *r = &o->record;
    gd_ir_node nodes[GD_IR_MAX_NODES];
    gd_ir ir;
    *in = *out = 0;
    for (int i = 0; i < r->n_inputs; i++) {
        if (!gd_record_gradient(r, i, &ir, nodes)) die(o->source->path, o->line, "%s", r->error);
        for (int k = 0; k < r->n_inputs; k++)
            if (gd_ir_uses_var(&ir, r->n_outputs + k)) *in |= 1u << k;
        for (int k = 0; k < r->n_outputs; k++)
            if (gd_ir_uses_var(&ir, r->n_outputs + r->n_inputs + k)) *out |= 1u << k;
    }
}

static void print_operands(FILE *out, const char *name, const int8_t *at, int n) {
    fprintf(out, ", .n_%s = %d, .%s_in = {", name, n, name);
    for (int i = 0; i < n; i++) fprintf(out, "%s%d", i ? ", " : "", at[i]);
    fputs("}", out);
}

static void print_index(FILE *out, const char *name, const gd_op_index *f) {
    fprintf(out, ", .%s = {.tensor = %d, .of = %d, .axis = %d", name, f->tensor, f->of, f->axis);
    if (f->is_number) fputs(", .is_number = true", out);
    if (f->and_behind) fputs(", .and_behind = true", out);
    if (f->size) fprintf(out, ", .size = \"%s\"", f->size);
    if (f->axis_option) fprintf(out, ", .axis_option = \"%s\"", f->axis_option);
    if (f->but) fprintf(out, ", .but = \"%s\"", f->but);
    if (f->or_number) fprintf(out, ", .or_number = true, .number = %lld", (long long)f->number);
    fputs("}", out);
}

static void print_pair(FILE *out, const char *name, const gd_op_fuses *f) {
    if (!f->outer) return;
    fprintf(out, ", .%s = {.outer = \"%s\", .inner = \"%s\"", name, f->outer, f->inner);
    print_operands(out, "outer", f->outer_in, f->n_outer);
    print_operands(out, "inner", f->inner_in, f->n_inner);
    fputs("}", out);
}

static void print_facts(FILE *out, const gd_op_facts *f) {
    fprintf(out, "    .facts = {.control = %d, .reduces = %d", (int)f->control, (int)f->reduces);
    if (f->fills) fprintf(out, ", .fills = \"%s\"", f->fills);
    print_pair(out, "fuses", &f->fuses);
    print_pair(out, "folds", &f->folds);
    if (f->checks) print_index(out, "checks = true, .index", &f->index);
    if (f->makes_indices) print_index(out, "makes_indices = true, .gives", &f->gives);
    fputs("},\n", out);
}

const char *const op_rules[] = {"infer",     "vjp", "expand",    "macs",
                                "reference", "raw", "workspace", NULL};

/* Whether the source defines a rule of the op. */
static bool has_rule(const op *o, const char *rule) {
    const char *const *known = op_rules;
    while (*known && strcmp(*known, rule) != 0) known++;
    if (!*known) die("opgen", 0, "'%s' is not in op_rules", rule);
    return defines_rule(o->source, o->rules, rule);
}

/* Prints the record of an op, or of its in-place form. */
static void print_record(FILE *out, op *o, bool inplace) {
    gd_record *r = &o->record;
    bool elementwise = r->flags & GD_OP_ELEMENTWISE;
    uint32_t saves_in = r->saves_in, saves_out = r->saves_out;
    if (elementwise) elementwise_saves(o, &saves_in, &saves_out);
    int required = 0, mutated = inplace;
    for (int i = 0; i < r->n_inputs && !inplace; i++) mutated += r->inputs[i].mutated;
    while (required < r->n_inputs && !r->inputs[required].optional && !r->inputs[required].variadic)
        required++;
    if (inplace) {
        fprintf(out, "extern const gd_op gd_op_%s_;\nstatic gd_op_state %s__state_;\n", r->name,
                r->name);
        fprintf(out, "static const gd_op_param %s__inputs_[] = {\n", r->name);
        for (int i = 0; i < r->n_inputs; i++)
            fprintf(out, "    {\"%s\", %d, 0, %d, %d, 0, 0, 0},\n", r->inputs[i].name,
                    r->inputs[i].optional, i == 0, r->inputs[i].option);
        fputs("};\n", out);
    } else {
        fprintf(out, "extern const gd_op gd_op_%s;\nstatic gd_op_state %s_state_;\n", r->name,
                r->name);
    }
    fprintf(out, "const gd_op gd_op_%s%s = {\n    .name = \"%s%s\",\n    .doc = ", r->name,
            inplace ? "_" : "", r->name, inplace ? "_" : "");
    print_string(out, r->doc);
    fprintf(out, ",\n    .family = \"%s\"", o->source->family);
    if (!inplace) print_operators(out, r);
    fprintf(out, ",\n    .flags = 0x%x,\n", r->flags | (inplace ? GD_OP_INPLACE : 0));
    if (r->n_inputs)
        fprintf(out,
                "    .inputs = %s%s_inputs_, .n_inputs = %d, .n_required = %d, .n_mutated = %d,\n",
                r->name, inplace ? "_" : "", r->n_inputs, required, mutated);
    if (r->n_outputs)
        fprintf(out, "    .outputs = %s_outputs_, .n_outputs = %d,\n", r->name, r->n_outputs);
    if (r->n_attrs)
        fprintf(out,
                "    .attrs = %s_attrs_, .n_attrs = %d, .attrs_size = sizeof(gd_%s_options), "
                ".defaults = &%s_default_attrs_,\n",
                r->name, r->n_attrs, r->name, r->name);
    fprintf(out, "    .saves_in = 0x%xu, .saves_out = 0x%xu,\n", saves_in, saves_out);
    if (!inplace) print_facts(out, &r->facts);
    if (has_rule(o, "infer")) fprintf(out, "    .infer = %s_infer,\n", o->rules);
    else if (elementwise) fputs("    .infer = gd_infer_elementwise,\n", out);
    if (has_rule(o, "vjp")) fprintf(out, "    .vjp = %s_vjp,\n", o->rules);
    if (has_rule(o, "expand")) fprintf(out, "    .expand = %s_expand,\n", o->rules);
    if (has_rule(o, "macs")) fprintf(out, "    .macs = %s_macs,\n", o->rules);
    if (has_rule(o, "reference") || has_rule(o, "raw"))
        fprintf(out, "    .reference = &%s_kernel_,\n", r->name);
    if (elementwise)
        fprintf(out, "    .ir = &%s_ir_, .gradient_ir = %s_gradients_,\n", r->name, r->name);
    if (inplace) fprintf(out, "    .base = &gd_op_%s,\n", r->name);
    fprintf(out, "    .state = &%s%s_state_,\n};\n\n", r->name, inplace ? "_" : "");
}

static void print_op(FILE *out, op *o) {
    gd_record *r = &o->record;
    print_params(out, r->name, "inputs", r->inputs, r->n_inputs);
    print_params(out, r->name, "outputs", r->outputs, r->n_outputs);
    print_attrs(out, r);
    if (r->flags & GD_OP_ELEMENTWISE) print_expressions(out, o);
    bool reference = has_rule(o, "reference"), raw = has_rule(o, "raw");
    if (reference || raw)
        fprintf(out,
                "static const gd_kernel %s_kernel_ = {.op = \"%s\", .variant = \"reference\", "
                ".device = \"cpu\", .flags = %s, .run = %s_%s, "
                ".doc = \"The simplest implementation, with which the tests compare all others.\"",
                r->name, r->name, reference ? "GD_KERNEL_DOUBLE" : "0", o->rules,
                reference ? "reference" : "raw");
    if ((reference || raw) && has_rule(o, "workspace"))
        fprintf(out, ", .workspace = %s_workspace", o->rules);
    if (reference || raw) fputs("};\n", out);
    print_record(out, o, false);
    if (r->inplace_too) print_record(out, o, true);
}

void write_records(void) {
    for (int k = 0; k < n_sources; k++) {
        source *s = &sources[k];
        if (!s->has_ops && !s->has_kernels && !s->has_factories) continue;
        char name[160], include[180];
        snprintf(name, sizeof name, "%s.gen.h", s->name);
        snprintf(include, sizeof include, "#include \"%s\"", name);
        if (!strstr(s->text, include)) die(s->path, 1, "must end with %s", include);
        FILE *out = begin_output(name);
        fprintf(out, "/* Written by the build from the blocks in %s.c. */\n", s->name);
        for (int i = 0; i < n_ops; i++)
            if (ops[i]->source == s) print_op(out, ops[i]);
        if (s->has_ops) {
            fprintf(out,
                    "extern const gd_op *const gd_ops_%s[];\nconst gd_op *const gd_ops_%s[] = {\n",
                    s->symbol, s->symbol);
            for (int i = 0; i < n_ops; i++) {
                if (ops[i]->source != s) continue;
                fprintf(out, "    &gd_op_%s,\n", ops[i]->record.name);
                if (ops[i]->record.inplace_too)
                    fprintf(out, "    &gd_op_%s_,\n", ops[i]->record.name);
            }
            fprintf(out, "};\n");
        }
        if (s->has_kernels) print_kernel_table(out, s);
        if (s->has_factories) print_factories(out, s);
        finish_output();
    }
    FILE *out = begin_output("op_table.c");
    fputs("/* Written by the build from the op records. */\n#include \"dispatch/op.h\"\n\n", out);
    for (int k = 0; k < n_sources; k++)
        if (sources[k].has_ops)
            fprintf(out, "extern const gd_op *const gd_ops_%s[];\n", sources[k].symbol);
    fputs("\nconst gd_op_file gd_op_files[] = {\n", out);
    int files = 0;
    for (int k = 0; k < n_sources; k++) {
        int count = 0;
        for (int i = 0; i < n_ops; i++)
            if (ops[i]->source == &sources[k]) count += 1 + ops[i]->record.inplace_too;
        if (count) fprintf(out, "    {gd_ops_%s, %d},\n", sources[k].symbol, count), files++;
    }
    fprintf(out, "};\nconst int gd_op_file_count = %d;\n", files);
    finish_output();
    write_kernel_tables();
}
