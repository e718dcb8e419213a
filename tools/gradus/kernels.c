/* kernels.c - gradus ops --device and --kernels: lists how each op runs on each kind of device, and
 * the kernels of one. */
#include <string.h>

#include "tool.h"

/* The results of gd_op_runs_as, for the summary. */
static const char *const ways[] = {"kernel", "expression", "body", "view", "host", "none"};
enum { N_WAYS = sizeof ways / sizeof *ways };

/* In-place variants run as the ops that they belong to. */
static bool is_listed(const gd_op *op) { return !(gd_op_flags(op) & GD_OP_INPLACE); }

/* The kernels, "direct winograd gemm reference", or how the op runs without a kernel. */
static const char *how_it_runs(const gd_op *op, const char *kind, char *text, size_t size) {
    const char *way = gd_op_runs_as(op, kind);
    return strcmp(way, "kernel") == 0 ? gd_op_kernels(op, kind, text, size) : way;
}

static void print_summary(const char *kind) {
    int counts[N_WAYS] = {0}, total = 0;
    for (int i = 0; i < gd_op_count(); i++) {
        if (!is_listed(gd_op_at(i))) continue;
        const char *way = gd_op_runs_as(gd_op_at(i), kind);
        for (int w = 0; w < N_WAYS; w++) counts[w] += strcmp(way, ways[w]) == 0;
        total++;
    }
    printf(
        "%s: %d ops, %d by kernels, %d by expressions, %d as bodies, %d as views, %d on the host, "
        "%d not at all\n",
        kind, total, counts[0], counts[1], counts[2], counts[3], counts[4], counts[5]);
}

static void print_needed(void) {
    int needed = 0;
    for (int i = 0; i < gd_op_count(); i++)
        needed += is_listed(gd_op_at(i)) && gd_op_needs_kernel(gd_op_at(i));
    printf(
        "A device needs kernels for %d ops (+), and one for expressions; all others run without.\n",
        needed);
}

static void json_kind(const gd_op *op, const char *kind) {
    char text[400];
    const char *way = gd_op_runs_as(op, kind);
    json_begin(kind);
    json_text("runs", way);
    json_text("kernels",
              strcmp(way, "kernel") == 0 ? gd_op_kernels(op, kind, text, sizeof text) : "");
    json_end();
}

static void print_json(const char *const *kinds, int n) {
    json_begin_list(NULL);
    for (int i = 0; i < gd_op_count(); i++) {
        const gd_op *op = gd_op_at(i);
        if (!is_listed(op)) continue;
        json_begin(NULL);
        json_text("name", gd_op_name(op));
        json_bool("needs_kernel", gd_op_needs_kernel(op));
        for (int k = 0; k < n; k++) json_kind(op, kinds[k]);
        json_end();
    }
    json_end_list();
    json_line();
}

static int column_width(const char *kind) {
    int width = (int)strlen(kind);
    for (int i = 0; i < gd_op_count(); i++) {
        char text[400];
        const int n = (int)strlen(how_it_runs(gd_op_at(i), kind, text, sizeof text));
        if (is_listed(gd_op_at(i)) && n > width) width = n;
    }
    return width;
}

enum { MAX_KINDS = 16, NAME_WIDTH = 34 };

/* The kinds of devices that have kernels, or the one that is asked for. 0: it has none, and a message
 * says so. */
static int find_kinds(const char *only, const char **kinds) {
    int n = 0;
    if (!only) gd_backends_load();
    for (const char *kind; n < MAX_KINDS && (kind = gd_kernel_kind_at(n)); n++) {
        kinds[n] = kind;
        if (only && strcmp(kind, only) == 0) {
            kinds[0] = kind;
            return 1;
        }
    }
    if (!only) return n;
    fprintf(stderr, "gradus: there are no kernels for '%s'; kinds with kernels are", only);
    for (int k = 0; k < n; k++) fprintf(stderr, " %s", kinds[k]);
    fputc('\n', stderr);
    return 0;
}

int list_kernels(const char *only) {
    const char *kinds[MAX_KINDS];
    int widths[MAX_KINDS], n = find_kinds(only, kinds);
    if (n == 0) return FAILED;
    if (common.json) {
        print_json(kinds, n);
        return DONE;
    }
    printf("%-*s", NAME_WIDTH, "op");
    for (int k = 0; k < n; k++) {
        widths[k] = k < n - 1 ? column_width(kinds[k]) : 0; /* the last one is not padded */
        printf("  %-*s", widths[k], kinds[k]);
    }
    putchar('\n');
    for (int i = 0; i < gd_op_count(); i++) {
        const gd_op *op = gd_op_at(i);
        char text[400];
        if (!is_listed(op)) continue;
        printf("%-*s%s", NAME_WIDTH - 1, gd_op_name(op), gd_op_needs_kernel(op) ? "+" : " ");
        for (int k = 0; k < n; k++)
            printf("  %-*s", widths[k], how_it_runs(op, kinds[k], text, sizeof text));
        putchar('\n');
    }
    putchar('\n');
    for (int k = 0; k < n; k++) print_summary(kinds[k]);
    print_needed();
    return DONE;
}

/* --- one op ----------------------------------------------------------------------------------- */

/* The dtypes of the first result that a kernel supports. */
static const char *dtypes_text(const gd_kernel *k, char *text, size_t size) {
    size_t used = 0;
    snprintf(text, size, "any");
    for (int d = 1; k->dtypes && d < GD_DTYPE_COUNT && used < size; d++)
        if (k->dtypes >> d & 1)
            used += (size_t)snprintf(text + used, size - used, "%s%s", used ? " " : "",
                                     gd_dtype_name((gd_dtype)d));
    return text;
}

static void json_kernels(const gd_op *op, const char *kind) {
    const gd_kernel *k;
    char text[200];
    json_begin(NULL);
    json_text("kind", kind);
    json_text("runs", gd_op_runs_as(op, kind));
    json_begin_list("kernels");
    for (int i = 0; (k = gd_op_kernel_at(op, kind, i)); i++) {
        json_begin(NULL);
        json_text("name", k->variant);
        json_integer("rank", k->rank);
        json_text("dtypes", dtypes_text(k, text, sizeof text));
        json_text("words", gd_kernel_words(k, text, sizeof text));
        json_bool("conditional", k->match != NULL);
        json_text("doc", k->doc);
        json_end();
    }
    json_end_list();
    json_end();
}

static void print_kernels(const gd_op *op, const char *kind) {
    enum { WIDTH = 100 };
    const gd_kernel *k;
    char dtypes[200], words[200];
    int width = 0;
    printf("\non %s: %s\n", kind, gd_op_runs_as(op, kind));
    for (int i = 0; (k = gd_op_kernel_at(op, kind, i)); i++)
        if ((int)strlen(k->variant) > width) width = (int)strlen(k->variant);
    for (int i = 0; (k = gd_op_kernel_at(op, kind, i)); i++) {
        gd_kernel_words(k, words, sizeof words);
        printf("  %-*s  rank %d, %s%s%s%s\n", width, k->variant, k->rank,
               dtypes_text(k, dtypes, sizeof dtypes), k->dtypes ? "" : " dtype", *words ? ", " : "",
               words);
        if (!k->doc || !*k->doc) continue;
        printf("%*s", width + 4, "");
        print_wrapped(k->doc, width + 4, WIDTH);
    }
}

int list_kernels_of(const gd_op *op, const char *only) {
    const char *kinds[MAX_KINDS];
    const int n = find_kinds(only, kinds);
    if (n == 0) return FAILED;
    if (common.json) {
        json_begin(NULL);
        json_text("name", gd_op_name(op));
        json_bool("needs_kernel", gd_op_needs_kernel(op));
        json_begin_list("kinds");
        for (int k = 0; k < n; k++) json_kernels(op, kinds[k]);
        json_end_list();
        json_end();
        json_line();
        return DONE;
    }
    printf("%s: the first kernel that supports a call runs it\n", gd_op_name(op));
    for (int k = 0; k < n; k++) print_kernels(op, kinds[k]);
    return DONE;
}
