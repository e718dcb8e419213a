/* header.c - writes gradus/ops.h: the typed calls of all ops. */
#include <string.h>

#include "codegen/opgen/opgen.h"
#include "core/ascii.h"

const char *attr_c_type(const gd_op_attr *attr) {
    static const char *const lists[] = {"", "gd_int1", "gd_int2", "gd_int3"};
    switch (attr->type) {
    case GD_ATTR_INT: return "int64_t";
    case GD_ATTR_FLOAT: return "double";
    case GD_ATTR_BOOL: return "bool";
    case GD_ATTR_INTS: return lists[attr->count];
    case GD_ATTR_SHAPE: return "gd_shape";
    case GD_ATTR_WORD: return "gd_word";
    case GD_ATTR_DTYPE: return "gd_dtype";
    case GD_ATTR_STRING: return "const char *";
    case GD_ATTR_GRAPH: return "gd_subgraph *";
    case GD_ATTR_NUMBER: return "gd_number";
    case GD_ATTR_FLOATS: return "gd_floats";
    }
    return "?";
}

static void print_upper(FILE *out, const char *text) {
    for (; *text && *text != ' '; text++) fputc(gd_to_upper(*text), out);
}

void print_constants(FILE *out, const char *words, const char *around) {
    for (const char *w = words; *w;) {
        if (w != words) fputs(", ", out);
        fprintf(out, "%sGD_", around);
        print_upper(out, w);
        fputs(around, out);
        w += strcspn(w, " ");
        w += strspn(w, " ");
    }
}

static void print_number(FILE *out, const char *text, const char *none) {
    if (strcmp(text, "none") == 0) fputs(none, out);
    else if (strcmp(text, "inf") == 0) fputs("(double)INFINITY", out);
    else if (strcmp(text, "-inf") == 0) fputs("-(double)INFINITY", out);
    else fputs(text, out);
}

/* Prints a default such as "none", "0.5" or "0.8, 1.2". If the macro held a list of several
 * numbers, a program that gives one number would overwrite only the first. So the macro gets "none"
 * for it, and gd_attrs_normalize fills in the default from the record. */
static void print_floats(FILE *out, const char *text, default_form form) {
    int count = 1;
    for (const char *c = text; *c; c++) count += *c == ',';
    if (count > 1 && form != FILLED) text = "none";
    fputs(form == IN_CPLUSPLUS ? "gd_floats_default_(" : "{{", out);
    print_number(out, text, "(double)NAN");
    if (form == IN_CPLUSPLUS) fputs(")", out);
    else if (form == FILLED && strcmp(text, "none") != 0) fprintf(out, "}, %d, 1}", count);
    else fputs("}, 0, -1}", out);
}

void print_default(FILE *out, const gd_op_attr *attr, default_form form) {
    const char *text = attr->default_text;
    if (!text) text = attr->type == GD_ATTR_BOOL ? "false" : attr->type == GD_ATTR_WORD ? "" : "0";
    switch (attr->type) {
    case GD_ATTR_INT: print_number(out, text, "GD_UNSET"); break;
    case GD_ATTR_FLOAT: print_number(out, text, "(double)NAN"); break;
    case GD_ATTR_BOOL: fputs(text, out); break;
    case GD_ATTR_INTS:
        if (form == IN_CPLUSPLUS) {
            print_number(out, text, "GD_UNSET");
            break;
        }
        fputs("{{", out);
        print_number(out, text, "GD_UNSET");
        for (int i = 1; i < attr->count; i++) {
            fputs(", ", out);
            print_number(out, form == FILLED ? text : "none", "GD_UNSET");
        }
        fputs("}}", out);
        break;
    case GD_ATTR_SHAPE:
        if (form == IN_CPLUSPLUS) {
            fputs("gd_shape_default_(", out);
            print_number(out, text, "GD_UNSET");
            fputs(")", out);
            break;
        }
        fputs("{{", out);
        print_number(out, text, "GD_UNSET");
        fputs(form == FILLED && strcmp(text, "none") != 0 ? "}, 1, 1}" : "}, 0, -1}", out);
        break;
    case GD_ATTR_FLOATS: print_floats(out, text, form); break;
    case GD_ATTR_WORD:
        if (!*text) fputc('0', out);
        else {
            fputs("GD_", out);
            print_upper(out, text);
        }
        break;
    case GD_ATTR_DTYPE:
        fputs(strcmp(text, "none") == 0 || strcmp(text, "0") == 0 ? "GD_DTYPE_NONE" : "GD_", out);
        if (strcmp(text, "none") != 0 && strcmp(text, "0") != 0) print_upper(out, text);
        break;
    case GD_ATTR_STRING:
        if (strcmp(text, "none") == 0 || strcmp(text, "0") == 0) fputs("NULL", out);
        else fprintf(out, "\"%s\"", text);
        break;
    case GD_ATTR_GRAPH: fputs("NULL", out); break;
    case GD_ATTR_NUMBER:
        if (form != IN_CPLUSPLUS) fputc('{', out);
        print_number(out, text, "(double)NAN");
        /* the exact integer; 0 if the number is no integer */
        if (form != IN_CPLUSPLUS)
            fprintf(out, ", %s}", strspn(text, "-0123456789") == strlen(text) ? text : "0");
        break;
    }
}

bool has_options(const op *o) {
    for (int i = 0; i < o->record.n_attrs; i++)
        if (!o->record.attrs[i].required) return true;
    for (int i = 0; i < o->record.n_inputs; i++)
        if (o->record.inputs[i].option) return true;
    return false;
}

int visible_outputs(const op *o) {
    int n = 0;
    for (int i = 0; i < o->record.n_outputs; i++) n += !o->record.outputs[i].hidden;
    return n;
}

bool variadic_output(const op *o) {
    return o->record.n_outputs > 0 && o->record.outputs[o->record.n_outputs - 1].variadic;
}

void print_return_type(FILE *out, const op *o) {
    if (variadic_output(o)) fputs("gd_tensors ", out);
    else if (visible_outputs(o) == 1) fputs("gd_tensor *", out);
    else fprintf(out, "gd_%s_outputs ", o->record.name);
}

void print_prototype(FILE *out, const op *o) {
    const gd_record *r = &o->record;
    print_return_type(out, o);
    fprintf(out, "gd_%s_at(const char *site", r->name);
    for (int i = 0; i < r->n_order; i++) {
        int k = r->order[i];
        if (k < 0) {
            const char *type = attr_c_type(&r->attrs[~k]);
            fprintf(out, ", %s%s%s", type, strchr(type, '*') ? "" : " ", r->attrs[~k].name);
        } else if (r->inputs[k].variadic) fprintf(out, ", gd_tensors %s", r->inputs[k].name);
        else fprintf(out, ", gd_tensor *%s", r->inputs[k].name);
    }
    if (has_options(o)) fprintf(out, ", const gd_%s_options *options", r->name);
    fputc(')', out);
}

/* --- calls with numbers ----------------------------------------------------------------------- */

static bool is_inplace(const op *o) { return o->record.name[strlen(o->record.name) - 1] == '_'; }

bool takes_numbers(const op *o) {
    const gd_record *r = &o->record;
    if (!(r->flags & GD_OP_ELEMENTWISE) || (r->flags & GD_OP_INTERNAL) || r->n_inputs < 2)
        return false;
    for (int i = 0; i < r->n_inputs; i++)
        if (r->inputs[i].mutated || r->inputs[i].variadic || r->inputs[i].option) return false;
    if (r->n_inputs > (is_inplace(o) ? 2 : 3) || visible_outputs(o) != 1)
        die(o->source->path, o->line, "operand.h has no macro for numbers in this call");
    for (int i = 0; i < r->n_inputs; i++)
        if (r->order[i] != i)
            die(o->source->path, o->line, "its inputs must be its first arguments");
    return true;
}

bool is_operand(const op *o, int input) { return takes_numbers(o) && !(is_inplace(o) && !input); }

/* Which inputs decide the dtype of a number: those with a gradient, if some have one. The condition
 * of `where` has none, and that of the mask of `masked_fill` is 0. */
unsigned deciding_inputs(const op *o) {
    const gd_record *r = &o->record;
    unsigned with = 0;
    for (int i = 0; i < r->n_inputs; i++)
        for (int k = 0; k < r->n_exprs; k++)
            if (r->exprs[k].name[0] == 'g' &&
                strcmp(r->exprs[k].name + 1, r->inputs[i].name) == 0 &&
                strcmp(r->exprs[k].text, "0") != 0)
                with |= 1u << i;
    return with ? with : (1u << r->n_inputs) - 1;
}

void print_numbers_prototype(FILE *out, const op *o) {
    const gd_record *r = &o->record;
    fprintf(out, "gd_tensor *gd_%s_numbers_at(const char *site", r->name);
    for (int i = 0; i < r->n_order; i++) {
        const int k = r->order[i];
        if (k >= 0)
            fprintf(out, ", %s%s", is_operand(o, k) ? "gd_operand " : "gd_tensor *",
                    r->inputs[k].name);
        else {
            const char *type = attr_c_type(&r->attrs[~k]);
            fprintf(out, ", %s%s%s", type, strchr(type, '*') ? "" : " ", r->attrs[~k].name);
        }
    }
    if (has_options(o)) fprintf(out, ", const gd_%s_options *options", r->name);
    fputc(')', out);
}

/* --- macros ----------------------------------------------------------------------------------- */

/* Prints the parameters of a call's macro. */
static void print_parameters(FILE *out, const gd_record *r) {
    for (int i = 0; i < r->n_order; i++) {
        int k = r->order[i];
        fprintf(out, "%s%s", i ? ", " : "", k < 0 ? r->attrs[~k].name : r->inputs[k].name);
    }
}

/* Prints the arguments that the macro passes on. A `number` keeps the type that the user gave it.
 * In place of a tensor that may be absent, the number 0 would be a null pointer. */
static void print_arguments(FILE *out, const op *o) {
    const gd_record *r = &o->record;
    for (int i = takes_numbers(o) ? r->n_inputs : 0; i < r->n_order; i++) {
        int k = r->order[i];
        bool number = k < 0 && r->attrs[~k].type == GD_ATTR_NUMBER;
        bool absent = k >= 0 && r->inputs[k].optional && !r->inputs[k].option;
        fprintf(out,
                number   ? ", gd_number_of(%s)"
                : absent ? ", GD_TENSOR_OR_NULL_(%s)"
                         : ", %s",
                k < 0 ? r->attrs[~k].name : r->inputs[k].name);
    }
}

/* Prints the comment of a call: its form, its documentation and its options. */
static void print_comment(FILE *out, const op *o) {
    const gd_record *r = &o->record;
    fprintf(out, "/* gd_%s(", r->name);
    for (int i = 0; i < r->n_order; i++) {
        int k = r->order[i];
        fprintf(out, "%s%s", i ? ", " : "", k < 0 ? r->attrs[~k].name : r->inputs[k].name);
        if (k >= 0 && r->inputs[k].optional) fputs(" or NULL", out);
        if (k >= 0 && r->inputs[k].variadic) fputs("...", out);
    }
    fputs(") -> ", out);
    for (int i = 0, n = 0; i < r->n_outputs; i++)
        if (!r->outputs[i].hidden) fprintf(out, "%s%s", n++ ? ", " : "", r->outputs[i].name);
    fputs("\n * ", out);
    for (const char *c = r->doc; *c; c++) {
        fputc(*c, out);
        if (*c == '\n') fputs(" * ", out);
    }
    for (int i = 0; i < r->n_attrs; i++)
        if (r->attrs[i].required && r->attrs[i].words) {
            fprintf(out, "\n * %s is one of ", r->attrs[i].name);
            print_constants(out, r->attrs[i].words, "");
            fputc('.', out);
        }
    if (has_options(o)) {
        fputs("\n * Options:", out);
        for (int i = 0; i < r->n_attrs; i++) {
            const gd_op_attr *a = &r->attrs[i];
            if (a->required) continue;
            fprintf(out, "\n *   .%s = ", a->name);
            if (a->words) {
                print_default(out, a, IN_MACRO);
                fputs(" (one of ", out);
                print_constants(out, a->words, "");
                fputc(')', out);
            } else fputs(a->default_text, out);
            if (*a->doc) fprintf(out, "   %s", a->doc);
        }
        for (int i = 0; i < r->n_inputs; i++)
            if (r->inputs[i].option)
                fprintf(out, "\n *   .%s = NULL%s%s", r->inputs[i].name,
                        *r->input_docs[i] ? "   " : "", r->input_docs[i]);
    }
    fputs(" */\n", out);
}

const char BY_NAME[] = "    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});\n";
const char SYSTEM_HEADER[] = "#if defined(__GNUC__) && !defined(__clang__)\n"
                             "#pragma GCC system_header /* as in options.h */\n#endif\n\n";

static void print_options(FILE *out, const op *o) {
    const gd_record *r = &o->record;
    bool tensors = false;
    for (int i = 0; i < r->n_inputs; i++) tensors |= r->inputs[i].option;
    if (r->n_attrs == 0 && !tensors) return;
    fprintf(out, "typedef struct gd_%s_options {\n", r->name);
    if (has_options(o)) fputs(BY_NAME, out);
    for (int i = 0; i < r->n_attrs; i++) {
        const char *type = attr_c_type(&r->attrs[i]);
        fprintf(out, "    %s%s%s GD_DEFAULT_(", type, strchr(type, '*') ? "" : " ",
                r->attrs[i].name);
        print_default(out, &r->attrs[i], IN_CPLUSPLUS);
        fprintf(out, ");%s\n", r->attrs[i].required ? " /* an argument of the call */" : "");
    }
    for (int i = 0; i < r->n_inputs; i++)
        if (r->inputs[i].option)
            fprintf(out, "    gd_tensor *%s GD_DEFAULT_(NULL);\n", r->inputs[i].name);
    fprintf(out, "} %sgd_%s_options;\n", has_options(o) ? "GD_GIVEN_BY_NAME_ " : "", r->name);
    if (has_options(o))
        fprintf(out, "GD_API gd_%s_options gd_%s_defaults(void);\n", r->name, r->name);
}

static void print_outputs(FILE *out, const op *o) {
    const gd_record *r = &o->record;
    if (variadic_output(o) || visible_outputs(o) == 1) return;
    fprintf(out, "typedef struct gd_%s_outputs {\n    gd_tensor ", r->name);
    for (int i = 0, n = 0; i < r->n_outputs; i++)
        if (!r->outputs[i].hidden) fprintf(out, "%s*%s", n++ ? ", " : "", r->outputs[i].name);
    fprintf(out, ";\n} gd_%s_outputs;\n", r->name);
}

/* Prints the beginning of the macro's call, with all arguments but options. */
static void print_macro_call(FILE *out, const op *o) {
    const gd_record *r = &o->record;
    if (takes_numbers(o)) {
        if (is_inplace(o)) fputs("GD_OPERANDS_INPLACE_(", out);
        else fprintf(out, "GD_OPERANDS_%d_(", r->n_inputs);
        fprintf(out, "gd_%s, __COUNTER__", r->name);
        for (int i = 0; i < r->n_inputs; i++) fprintf(out, ", %s", r->inputs[i].name);
        fputs(", (", out);
    } else fprintf(out, "gd_%s_at(GD_HERE", r->name);
    print_arguments(out, o);
}

static void print_macro(FILE *out, const op *o) {
    const gd_record *r = &o->record;
    const char *end = takes_numbers(o) ? "))" : ")";
    fprintf(out, "#define gd_%s(", r->name);
    print_parameters(out, r);
    if (!has_options(o)) {
        fputs(") ", out);
        print_macro_call(out, o);
        fprintf(out, "%s\n\n", end);
        return;
    }
    fprintf(out, "%s...) \\\n    GD_WITH_OPTIONS_(", r->n_order ? ", " : "");
    print_macro_call(out, o);
    fprintf(out, ", GD_OPTIONS_(gd_%s_options, (", r->name);
    int n = 0;
    for (int i = 0; i < r->n_attrs; i++) {
        if (r->attrs[i].required) continue;
        fprintf(out, "%s.%s = ", n++ ? ", " : "", r->attrs[i].name);
        print_default(out, &r->attrs[i], IN_MACRO);
    }
    for (int i = 0; i < r->n_inputs; i++)
        if (r->inputs[i].option) fprintf(out, "%s.%s = NULL", n++ ? ", " : "", r->inputs[i].name);
    fprintf(out, "), __VA_ARGS__)%s)\n\n", end);
}

static void print_declarations(FILE *out, const op *o) {
    fputs("GD_API ", out);
    print_prototype(out, o);
    fputs(";\n", out);
    if (takes_numbers(o)) {
        fputs("GD_API ", out);
        print_numbers_prototype(out, o);
        fputs(";\n", out);
    }
    print_macro(out, o);
}

/* --- words ------------------------------------------------------------------------------------ */

static uint32_t word_hash(const char *text, size_t length) { /* FNV-1a, as in gd_word_of */
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < length; i++) h = (h ^ (unsigned char)text[i]) * 16777619u;
    return h;
}

static FILE *words_out;

/* Prints the constants of an option's words that were not printed before. */
static void print_words_of(const gd_op_attr *attr, const char *path, int line) {
    static const char *seen[1000];
    static size_t lengths[1000];
    static int n;
    for (const char *w = attr->words; w && *w;) {
        size_t length = strcspn(w, " ");
        bool known = length == 0;
        for (int j = 0; j < n; j++) {
            if (lengths[j] == length && memcmp(seen[j], w, length) == 0) known = true;
            else if (word_hash(seen[j], lengths[j]) == word_hash(w, length))
                die(path, line, "two words have the same hash");
        }
        if (!known) {
            seen[n] = w;
            lengths[n++] = length;
            fputs("#define GD_", words_out);
            for (size_t c = 0; c < length; c++) fputc(gd_to_upper(w[c]), words_out);
            fprintf(words_out, " ((gd_word)0x%08xu)\n", word_hash(w, length));
        }
        w += length;
        while (*w == ' ') w++;
    }
}

static void print_words(FILE *out) {
    words_out = out;
    for (int k = 0; k < n_ops; k++)
        for (int i = 0; i < ops[k]->record.n_attrs; i++)
            print_words_of(&ops[k]->record.attrs[i], ops[k]->source->path, ops[k]->line);
    each_factory_attr(print_words_of);
    fputc('\n', out);
}

static const char preamble[] =
    "/* ops.h - every op as a typed call. The build writes this file from the op records; to "
    "change\n"
    " * it, change the records.\n"
    " *\n"
    " * Options are given by name after the arguments, in any order; the others have their "
    "defaults:\n"
    " *\n"
    " *     gd_tensor *y = gd_conv2d(x, w, b, .stride = 2, .padding = {1, 0});\n"
    " *\n"
    " * A list option that is given as one number has this number for all axes. A list of any "
    "length\n"
    " * is written gd_dims(0, 2), or as one number. Options that are one of a few words have a\n"
    " * constant for each, .reduction = GD_SUM; in text, as in gd_call, it is the word:\n"
    " * \"reduction=sum\". gd_NAME_defaults() returns the options struct for gd_NAME_at, the "
    "function\n"
    " * that the macro calls and that bindings should call.\n"
    " *\n"
    " * The operands of elementwise ops of two tensors and more may be numbers (operand.h):\n"
    " * gd_mul(x, 0.5). Then the function is gd_NAME_numbers_at.\n"
    " */\n"
    "#ifndef GRADUS_OPS_H\n#define GRADUS_OPS_H\n\n";

static const char includes[] =
    "#include <math.h>\n\n"
    "#include \"gradus/op.h\"\n#include \"gradus/operand.h\"\n#include "
    "\"gradus/options.h\"\n#include \"gradus/tensor.h\"\n\n"
    "#ifdef __cplusplus\n"
    "/* In C++ options structs have default values; they are still passed as in C. */\n"
    "#if defined(__clang__)\n"
    "#pragma clang diagnostic push\n"
    "#pragma clang diagnostic ignored \"-Wreturn-type-c-linkage\"\n"
    "#endif\n"
    "extern \"C\" {\n"
    "#endif\n\n";

void write_header(void) {
    FILE *out = begin_output("gradus/ops.h");
    fputs(preamble, out);
    fputs(SYSTEM_HEADER, out);
    fputs(includes, out);
    fputs("/* --- words that options take --- */\n\n", out);
    print_words(out);
    for (int s = 0; s < n_sources; s++) {
        if (!sources[s].has_ops) continue;
        fprintf(out, "/* ===== %s: %s ===== */\n\n", sources[s].family, sources[s].title);
        for (int i = 0; i < n_ops; i++) {
            if (ops[i]->source != &sources[s]) continue;
            print_comment(out, ops[i]);
            print_options(out, ops[i]);
            print_outputs(out, ops[i]);
            print_declarations(out, ops[i]);
            if (!ops[i]->record.inplace_too) continue;
            op inplace = *ops[i];
            char name[80];
            snprintf(name, sizeof name, "%s_", inplace.record.name);
            fprintf(out, "/* In place: writes its first argument and returns it. */\n");
            if (inplace.record.n_attrs)
                fprintf(out, "typedef gd_%s_options gd_%s_options;\n", inplace.record.name, name);
            inplace.record.name = name;
            print_declarations(out, &inplace);
        }
    }
    fputs("#ifdef __cplusplus\n}\n#if defined(__clang__)\n#pragma clang diagnostic "
          "pop\n#endif\n#endif\n#endif\n",
          out);
    finish_output();
}
