/* page.c - writes ops.md, the reference page of all ops. */
#include <string.h>

#include "codegen/opgen/opgen.h"

static void print_signature(FILE *out, const gd_record *r) {
    fprintf(out, "gd_%s(", r->name);
    for (int i = 0; i < r->n_order; i++) {
        int k = r->order[i];
        fprintf(out, "%s%s", i ? ", " : "", k < 0 ? r->attrs[~k].name : r->inputs[k].name);
        if (k >= 0 && r->inputs[k].variadic) fputs("...", out);
        if (k >= 0 && r->inputs[k].optional) fputs("?", out);
    }
    fputs(")", out);
}

const char *type_text(const gd_op_attr *a) {
    static const char *const names[] = {"int",          "float",  "bool",          "ints",
                                        "list of ints", "word",   "dtype",         "string",
                                        "graph",        "number", "list of floats"};
    return names[a->type];
}

/* Prints documentation as one paragraph; lines that begin with "- " are items of a list. */
void print_doc(FILE *out, const char *doc) {
    for (const char *c = doc; *c; c++) {
        bool item = strncmp(c, "\n- ", 3) == 0;
        fputc(*c == '\n' && !item ? ' ' : *c, out);
    }
    fputs("\n", out);
}

static bool has_public_ops(const source *s) {
    for (int i = 0; i < n_ops; i++)
        if (ops[i]->source == s && !(ops[i]->record.flags & GD_OP_INTERNAL)) return true;
    return false;
}

/* The section of one op. */
static void print_section(FILE *out, const op *o) {
    const gd_record *r = &o->record;
    fputs("### `", out);
    print_signature(out, r);
    fputs("`\n\n", out);
    print_python_signature(out, o);
    if (visible_outputs(o) > 1) {
        fputs("Returns ", out);
        for (int k = 0, n = 0; k < r->n_outputs; k++)
            if (!r->outputs[k].hidden) fprintf(out, "%s`.%s`", n++ ? ", " : "", r->outputs[k].name);
        fputs(". ", out);
    }
    print_doc(out, r->doc);
    for (int k = 0; k < r->n_attrs; k++)
        if (r->attrs[k].required && r->attrs[k].words) {
            fprintf(out, "`%s` is one of ", r->attrs[k].name);
            print_constants(out, r->attrs[k].words, "`");
            fputs(".\n", out);
        }
    if (r->inplace_too) fprintf(out, "In place: `gd_%s_`.\n", r->name);
    if (r->flags & GD_OP_NO_GRAD) fputs("No gradient.\n", out);
    if (r->flags & GD_OP_LOW_PRECISION) fputs("Autocast: low precision.\n", out);
    if (r->flags & GD_OP_FULL_PRECISION) fputs("Autocast: f32.\n", out);
    if (*r->onnx.name || *r->caffe.name) {
        fputs("\n", out);
        if (*r->onnx.name) fprintf(out, "ONNX `%s`. ", r->onnx.name);
        if (*r->caffe.name) fprintf(out, "Caffe `%s`.", r->caffe.name);
        fputs("\n", out);
    }
    if (has_options(o)) {
        fputs("\n| option | type | default | |\n|---|---|---|---|\n", out);
        for (int k = 0; k < r->n_attrs; k++) {
            const gd_op_attr *a = &r->attrs[k];
            if (a->required) continue;
            fprintf(out, "| `.%s` | %s | ", a->name, type_text(a));
            if (a->words) {
                fputc('`', out);
                print_default(out, a, IN_MACRO);
                fputs("` | ", out);
                print_constants(out, a->words, "`");
                if (*a->doc) fputs(": ", out);
            } else fprintf(out, "%s | ", a->default_text);
            fprintf(out, "%s |\n", a->doc);
        }
        for (int k = 0; k < r->n_inputs; k++)
            if (r->inputs[k].option)
                fprintf(out, "| `.%s` | tensor | none | %s%s|\n", r->inputs[k].name,
                        r->input_docs[k], *r->input_docs[k] ? " " : "");
    }
    fputs("\n", out);
}

/* The public ops of a source, after its title. */
static void print_source(FILE *out, const source *s) {
    fprintf(out, "%s\n\n", s->title);
    for (int i = 0; i < n_ops; i++)
        if (ops[i]->source == s && !(ops[i]->record.flags & GD_OP_INTERNAL))
            print_section(out, ops[i]);
}

/* A family, the file of its name first. */
static void print_family(FILE *out, const char *family) {
    fprintf(out, "## %s\n\n", family);
    for (int pass = 0; pass < 2; pass++)
        for (int s = 0; s < n_sources; s++) {
            const bool first = strcmp(sources[s].stem, family) == 0;
            if (first == (pass == 0) && strcmp(sources[s].family, family) == 0 &&
                has_public_ops(&sources[s]))
                print_source(out, &sources[s]);
        }
}

void write_page(void) {
    FILE *out = begin_output("ops.md");
    fputs(
        "# Ops\n\nThe build writes this page from the op records (`make docs`); to change it, "
        "change the records. Names and meanings are PyTorch's unless stated otherwise. `x?` may be "
        "NULL; `xs...` is a list, `gd_list(a, b)`. An option that is one of several constants "
        "(`.reduction = GD_SUM`) is a word in text: `\"reduction=sum\"`. The headings are the "
        "families of "
        "ops, which are folders of `src/ops`. A call in Python ([python.md](../guide/python.md)) "
        "has "
        "the options by the same names, or by those of its line.\n\n",
        out);
    const char *last = "";
    for (int s = 0; s < n_sources; s++) {
        if (!has_public_ops(&sources[s]) || strcmp(sources[s].family, last) == 0) continue;
        last = sources[s].family;
        print_family(out, last);
    }
    finish_output();
}

void write_counts(void) {
    FILE *out = begin_output("counts.txt");
    int visible = 0;
    for (int i = 0; i < n_ops; i++) visible += !(ops[i]->record.flags & GD_OP_INTERNAL);
    fprintf(out, "ops %d\nkernels %d\n", visible, n_kernels);
    print_factory_counts(out);
    finish_output();
}
