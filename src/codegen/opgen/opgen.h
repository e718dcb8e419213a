/* opgen.h - the generator: reads records of ops, kernels, layers and so on from the sources, and
 * writes code, tables and pages.
 *
 *     opgen OUT-DIR ROOT SOURCE...
 *     opgen --words             prints every word that has a meaning in a block
 *
 * A record is a comment block that begins with "op", "kernel", or a kind of factories.c ("layer"),
 * right after the slash and star. A block can define several ops (variants.h). The rules of an op
 * are functions of the same file named after it: tanh_infer, tanh_vjp, tanh_expand, tanh_macs,
 * tanh_reference (a kernel that sees row-major f64 and i64), tanh_raw (a kernel that sees any
 * strides and dtypes) and tanh_workspace (the workspace of that kernel in bytes). The generator
 * writes:
 *
 *     gradus/ops.h      the typed calls, with their options and documentation
 *     gradus/layout.h   a hash of all option structs
 *     op_calls.c        the functions behind the calls of ops.h
 *     PATH.gen.h        the records of the source ROOT/PATH.c as data, which it includes at its end
 *     op_table.c        the table of all records
 *     kernels_KIND.c    the table of all kernels for a kind of device
 *     ew_N.isa.c        kernels of elementwise ops and their gradients; ew_table.isa.c: a table
 *     expression_N.cu   the same kernels for the CUDA backend; expression_table.c: a table
 *     ops.md            the reference page
 *     gradus/KINDs.h    the constructors of layers, optimizers ...; KINDs.md: their reference pages
 *     factory_calls.c     the functions behind the constructors, and the table of their records
 *     python_calls.c    the functions and methods of the Python module
 *     python_constructors.c   the constructors of layers, optimizers ... in Python
 *     counts.txt        the numbers of ops, layers and so on, for README.md
 *
 * A file is written only if its content changes, so that an edit rebuilds little.
 */
#ifndef GRADUS_CODEGEN_OPGEN_OPGEN_H
#define GRADUS_CODEGEN_OPGEN_OPGEN_H

#include <stdio.h>

#include "codegen/record.h"
#include "gradus/extend.h"

typedef struct source {
    const char *path;
    char name[128];   /* its path below ROOT without the suffix: "ops/elementwise" */
    char symbol[128]; /* the same as an identifier: "ops_elementwise" */
    const char *stem; /* the last part of its name: "elementwise" */
    char family[64];  /* "conv" of ops/conv/conv_body.c; elsewhere its first folder: "dispatch" */
    char *text;
    char title[160]; /* its first comment line after " - ", for headings */
    bool has_ops, has_kernels, has_factories;
} source;

typedef struct op {
    gd_record record;
    char rules[64]; /* its rules begin with this: its name, or the name shared by all variants */
    source *source;
    int line;
} op;

/* A kernel of a block (kernel_blocks.c); the names are those of functions. */
typedef struct kernel {
    char op[64], variant[64], device[16];
    char run[64], match[64], workspace[64], scratch[64], prepare[64], release[64], describe[64],
        prefers_channels_last[64];
    char dtypes[160]; /* as an expression in C; "": any */
    const char *doc;  /* in one line */
    int rank, line;
    unsigned flags;
    source *source;
} kernel;

enum { MAX_OPS = 2000, MAX_KERNELS = 2000, MAX_SOURCES = 1000 };
extern op *ops[MAX_OPS];
extern int n_ops;
extern kernel kernels[MAX_KERNELS];
extern int n_kernels;
extern source sources[MAX_SOURCES];
extern int n_sources;

extern const char *root; /* the folder of all sources */

/* Whether the source defines the function op_name_suffix. */
bool defines_rule(const source *s, const char *op_name, const char *suffix);

/* The text of a block without the stars of the comment, in new memory. */
char *block_text(const char *start, const char *end);

int line_of(const source *s, const char *at);

/* Begins an output file. Output is collected in memory; finish_output writes it if it differs from
 * the file. */
FILE *begin_output(const char *name);
void finish_output(void);

/* Prints an error message for a line of a source, and exits. */
void die(const char *file, int line, const char *format, ...) GD_PRINTF(3, 4);

void write_header(void);
void write_layout(void);
void write_calls(void);
void write_records(void);

/* Blocks of kernels (kernel_blocks.c). */
void add_kernels(source *s, const char *start, const char *end);
void check_kernels(void);
void print_kernel_table(FILE *out, const source *s);
void write_kernel_tables(void);
void print_kernel_words(void);
void write_elementwise(void);
void write_page(void);
void resolve_python(void); /* before pages, which show the form of a call in Python, too */
void write_python(void);
void print_python_signature(FILE *out, const op *o);
void write_python_objects(void); /* constructors of layers, optimizers ... (python_objects.c) */
/* Shared by both: the inside of a string in Python's words; the default of an option in Python; its
 * kind in gdpy_kind and its type in a stub; other names of an argument, each followed by a space. */
void print_python_text(FILE *out, const char *text);
const char *python_default(const gd_op_attr *attr);
const char *python_kind(const gd_op_attr *attr);
void print_python_type(FILE *out, const char *kind, const char *words);
const char *python_equal_names(const gd_record *r, const char *name, bool first);
void write_counts(void);

/* An expression that gets kernels (elementwise.c): that of an op, of a gradient or of a primitive.
 * Sorted by hash. */
typedef struct kernel_entry {
    uint64_t hash;
    gd_ir ir;
    gd_ir_node *nodes;
    const op *op;    /* the first op with this expression; NULL: a primitive */
    bool for_lists;  /* the op can write its inputs, so it is called for lists of tensors */
    char label[120]; /* for a comment */
} kernel_entry;
enum { MAX_ENTRIES = 4000 };
extern kernel_entry *entries[MAX_ENTRIES];
extern int n_entries;

/* The compute types, and the primitives' types (GD_PRIM_FLOAT or GD_PRIM_INT) that they need. */
typedef struct kernel_type {
    const char *type;
    unsigned need;
} kernel_type;
extern const kernel_type kernel_types[4];

void write_cuda_kernels(void);

/* The functions NAME_RULE of an op; ends with NULL. */
extern const char *const op_rules[];

/* Records of layers, optimizers and so on (factories.c). */
bool is_factory_block(const char *at);
/* `word` begins with the word of its kind; the names of its functions begin with `rules`; `variant`
 * is N of a record such as conv{1,2,3}d, or 0. */
void add_factory(source *s, const char *word, char *text, const char *rules, int variant, int line);
void resolve_factories(void);
void each_factory_attr(void (*look)(const gd_op_attr *attr, const char *path, int line));
void print_factories(FILE *out, const source *s);
void write_factories(void);
/* What other files of the generator read of a record of factories.c. */
typedef struct factory_view {
    const char *kind, *plural; /* "layer", "layers" */
    const char *full;          /* "nn_linear" */
    const gd_record *record;
    const char *path;
    int line;
} factory_view;
void each_factory(void (*visit)(const factory_view *f));
void print_factory_words(void);
void print_factory_counts(FILE *out);

/* Calls with numbers as operands (gradus/operand.h): whether an op has them, whether an input may
 * be a number, and bit i: input i decides the dtype of numbers. */
bool takes_numbers(const op *o);
bool is_operand(const op *o, int input);
unsigned deciding_inputs(const op *o);
void print_numbers_prototype(FILE *out, const op *o);

/* Helpers that several files share. */
extern const char BY_NAME[];       /* the first field of an options struct */
extern const char SYSTEM_HEADER[]; /* the pragma of headers with variadic macros */
void print_string(FILE *out, const char *text);
/* The fields .onnx and .caffe of a record that has them, each after a comma. */
void print_operators(FILE *out, const gd_record *record);
void print_params(FILE *out, const char *name, const char *which, const gd_op_param *p, int n);
void print_attrs(FILE *out, const gd_record *r);
const char *type_text(const gd_op_attr *a);
void print_doc(FILE *out, const char *doc);
const char *attr_c_type(const gd_op_attr *attr);
/* The default of an option as an initializer: in the call's macro, in C++, or with all entries of a
 * list filled in. In the macro only the first entry of a list is set, so that a single number of
 * the user can be told from a list. */
typedef enum { IN_MACRO, IN_CPLUSPLUS, FILLED } default_form;
void print_default(FILE *out, const gd_op_attr *attr, default_form form);
/* The constants of a word option, GD_MEAN, GD_SUM, each with `around` before and after it. */
void print_constants(FILE *out, const char *words, const char *around);
bool has_options(const op *o); /* options or tensors that are given by name */
int visible_outputs(const op *o);
bool variadic_output(const op *o);
void print_return_type(FILE *out, const op *o);
void print_prototype(FILE *out, const op *o);

#endif
