/* golden.c - reads the golden files and compares results with them. tests/golden/make.py documents
 * the format. */
#include "golden.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"
#include "core/copy.h"

enum { SAMPLES = 48 }; /* elements that are stored of a large tensor */

uint64_t golden_key(const test_case *c, gd_dtype dtype) {
    enum { VERSION = 2 }; /* of the input data and the file format */
    uint64_t h = text_hash(VERSION, gd_op_name(c->block->op));
    h = text_hash(h, c->block->torch ? c->block->torch : "");
    if (c->block->call) h = text_hash(h, c->block->call);
    h = text_hash(h, c->text);
    return text_hash(h, dtype ? gd_dtype_name(dtype) : "-");
}

int golden_dtypes(const test_case *c, gd_dtype dtypes[GD_DTYPE_COUNT]) {
    static const gd_dtype order[] = {GD_F32, GD_F64, GD_I64, GD_I32, GD_I8, GD_U8, GD_BOOL};
    int n = 0;
    if (!c->flexible) {
        dtypes[n++] = GD_DTYPE_NONE;
        return n;
    }
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        if (c->block->dtypes >> order[i] & 1) dtypes[n++] = order[i];
    return n;
}

/* --- the file --------------------------------------------------------------------------------- */

typedef struct golden_entry {
    uint64_t key;
    const unsigned char *data;
} golden_entry;

struct golden {
    unsigned char *bytes;
    size_t size;
    golden_entry *entries;
    int count;
};

typedef struct stored_tensor {
    gd_dtype dtype; /* GD_DTYPE_NONE: no tensor */
    int rank;
    bool sampled;
    int64_t dims[GD_MAX_RANK], n;
    const unsigned char *data; /* all elements, or SAMPLES of them */
    double sum, sum_of_sizes;  /* weighted sum, and sum of absolute values, of all elements */
    uint32_t not_finite;
} stored_tensor;

static uint32_t u32_at(const unsigned char *p) {
    return p[0] | p[1] << 8 | p[2] << 16 | (uint32_t)p[3] << 24;
}

static const unsigned char *read_tensor(const unsigned char *p, stored_tensor *t) {
    *t = (stored_tensor){.dtype = (gd_dtype)p[0], .rank = p[1], .sampled = p[2], .n = 1};
    p += 4;
    for (int k = 0; k < t->rank; k++, p += 4) t->dims[k] = u32_at(p), t->n *= t->dims[k];
    if (!t->dtype) t->n = 0;
    t->data = p;
    p += (size_t)(t->sampled ? SAMPLES : t->n) * gd_dtype_size(t->dtype);
    if (t->sampled) {
        memcpy(&t->sum, p, 8);
        memcpy(&t->sum_of_sizes, p + 8, 8);
        t->not_finite = u32_at(p + 16);
        p += 20;
    }
    return p;
}

golden *golden_open(const char *folder, const char *family) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s.bin", folder, family);
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    golden *g = calloc(1, sizeof *g);
    fseek(f, 0, SEEK_END);
    g->size = (size_t)ftell(f);
    rewind(f);
    g->bytes = malloc(g->size + 1);
    bool complete = fread(g->bytes, 1, g->size, f) == g->size;
    fclose(f);
    if (!complete || g->size < 16 || memcmp(g->bytes, "GDGOLD01", 8) != 0) {
        golden_close(g);
        return NULL;
    }
    g->count = (int)u32_at(g->bytes + 8);
    g->entries = malloc((size_t)g->count * sizeof *g->entries + 1);
    const unsigned char *p = g->bytes + 16;
    for (int i = 0; i < g->count; i++) {
        memcpy(&g->entries[i].key, p, 8);
        g->entries[i].data = p + 8;
        int n = p[9] + p[10];
        p += 12;
        stored_tensor t;
        for (int k = 0; k < n; k++) p = read_tensor(p, &t);
    }
    return g;
}

void golden_close(golden *g) {
    if (!g) return;
    free(g->bytes);
    free(g->entries);
    free(g);
}

static const golden_entry *find_entry(const golden *g, uint64_t key) {
    for (int i = 0; g && i < g->count; i++)
        if (g->entries[i].key == key) return &g->entries[i];
    return NULL;
}

golden_answer golden_look(const golden *g, uint64_t key) {
    const golden_entry *e = find_entry(g, key);
    return !e ? GOLDEN_MISSING : e->data[0] ? GOLDEN_TORCH_ERROR : GOLDEN_SAME;
}

char *golden_text(const golden *g, uint64_t key) {
    const golden_entry *e = find_entry(g, key);
    if (!e || e->data[0]) return NULL;
    stored_tensor t;
    read_tensor(e->data + 4, &t);
    char *text = malloc((size_t)t.n + 1);
    memcpy(text, t.data, (size_t)t.n);
    text[t.n] = 0;
    return text;
}

/* --- comparing -------------------------------------------------------------------------------- */

/* Element i. It is copied first: the file does not align elements. */
static double stored_number(const stored_tensor *s, int64_t i) {
    double aligned;
    memcpy(&aligned, s->data + (size_t)i * gd_dtype_size(s->dtype), gd_dtype_size(s->dtype));
    return gd_load_f64(s->dtype, &aligned);
}

static int64_t stored_integer(const stored_tensor *s, int64_t i) {
    int64_t aligned;
    memcpy(&aligned, s->data + (size_t)i * gd_dtype_size(s->dtype), gd_dtype_size(s->dtype));
    return gd_load_i64(s->dtype, &aligned);
}

static bool check_dtype_and_dims(const gd_tensor *t, const stored_tensor *s, char *why) {
    bool same = gd_tensor_dtype(t) == s->dtype && gd_tensor_rank(t) == s->rank;
    for (int k = 0; same && k < s->rank; k++) same = gd_tensor_dim(t, k) == s->dims[k];
    if (same) return true;
    int used = snprintf(why, 256, "is %s(", gd_dtype_name(gd_tensor_dtype(t)));
    for (int k = 0; k < gd_tensor_rank(t); k++)
        used += snprintf(why + used, 256 - (size_t)used, "%s%lld", k ? "," : "",
                         (long long)gd_tensor_dim(t, k));
    used +=
        snprintf(why + used, 256 - (size_t)used, "), PyTorch's is %s(", gd_dtype_name(s->dtype));
    for (int k = 0; k < s->rank; k++)
        used +=
            snprintf(why + used, 256 - (size_t)used, "%s%lld", k ? "," : "", (long long)s->dims[k]);
    snprintf(why + used, 256 - (size_t)used, ")");
    return false;
}

static bool check_samples(const stored_tensor *s, const double *x, double tolerance, char *why) {
    double sum = 0, sizes = 0, samples[SAMPLES];
    uint32_t not_finite = 0;
    for (int j = 0; j < SAMPLES; j++) samples[j] = stored_number(s, j);
    double scale = scale_of(samples, SAMPLES);
    for (int j = 0; j < SAMPLES; j++) {
        int64_t i = j * (s->n - 1) / (SAMPLES - 1);
        if (numbers_agree(x[i], samples[j], tolerance, scale)) continue;
        snprintf(why, 256, "element %lld is %.17g, PyTorch's is %.17g", (long long)i, x[i],
                 samples[j]);
        return false;
    }
    for (int64_t i = 0; i < s->n; i++) {
        if (!isfinite(x[i])) not_finite++;
        else sum += x[i] * loss_weight(7, i), sizes += fabs(x[i]);
    }
    if (not_finite != s->not_finite) {
        snprintf(why, 256, "%u elements are not finite, PyTorch has %u", not_finite, s->not_finite);
        return false;
    }
    if (fabs(sum - s->sum) <= tolerance * (s->sum_of_sizes + scale) &&
        fabs(sizes - s->sum_of_sizes) <= tolerance * (s->sum_of_sizes + scale))
        return true;
    snprintf(why, 256, "sums over all elements are %.12g and %.12g, PyTorch's %.12g and %.12g", sum,
             sizes, s->sum, s->sum_of_sizes);
    return false;
}

/* Integers and bools must be equal. For a sampled tensor a checksum covers the other elements. */
static bool check_integers(const gd_tensor *t, const stored_tensor *s, char *why) {
    size_t size = gd_dtype_size(s->dtype);
    char *data = malloc((size_t)s->n * size + 1);
    bool same = gd_copy_to(t, data, (size_t)s->n * size) == GD_OK;
    if (!same) snprintf(why, 256, "cannot be read: %.200s", gd_error_message());
    uint64_t sum = 0, expected;
    for (int64_t i = 0; i < s->n; i++)
        sum += (uint64_t)gd_load_i64(s->dtype, data + (size_t)i * size) * (uint64_t)(2 * i + 1);
    for (int64_t j = 0; j < (s->sampled ? SAMPLES : s->n) && same; j++) {
        int64_t i = s->sampled ? j * (s->n - 1) / (SAMPLES - 1) : j;
        long long x = gd_load_i64(s->dtype, data + (size_t)i * size), y = stored_integer(s, j);
        same = x == y;
        if (!same)
            snprintf(why, 256, "element %lld is %lld, PyTorch's is %lld", (long long)i, x, y);
    }
    memcpy(&expected, &s->sum, 8);
    if (same && s->sampled && sum != expected) {
        same = false;
        snprintf(why, 256, "some elements differ from PyTorch's, though the samples do not");
    }
    free(data);
    return same;
}

static bool check_tensor(const gd_tensor *t, const stored_tensor *s, double tolerance, char *why) {
    if (!t && !s->dtype) return true;
    if (t && s->dtype && !check_dtype_and_dims(t, s, why)) return false;
    if (t && s->dtype && !gd_dtype_is_float(s->dtype)) return check_integers(t, s, why);
    double *x = t ? tensor_numbers(t) : calloc((size_t)s->n + 1, sizeof *x);
    bool same = x != NULL;
    if (!same) snprintf(why, 256, "cannot be read: %.200s", gd_error_message());
    else if (s->sampled) same = check_samples(s, x, tolerance, why);
    else {
        int64_t n = s->dtype ? s->n : gd_tensor_numel(t);
        double *y = calloc((size_t)n + 1, sizeof *y);
        for (int64_t i = 0; s->dtype && i < n; i++) y[i] = stored_number(s, i);
        double scale = scale_of(y, n);
        for (int64_t i = 0; i < n && same; i++) {
            same = numbers_agree(x[i], y[i], tolerance, scale);
            if (!same)
                snprintf(why, 256, "element %lld is %.17g, PyTorch's is %.17g", (long long)i, x[i],
                         y[i]);
        }
        free(y);
    }
    free(x);
    return same;
}

golden_answer golden_compare(const golden *g, uint64_t key, const run_result *r,
                             const test_block *b, char *why) {
    const golden_entry *e = find_entry(g, key);
    char what[256];
    if (!e) return GOLDEN_MISSING;
    if (e->data[0]) return GOLDEN_TORCH_ERROR;
    int n_out = e->data[1], n_grad = e->data[2];
    const unsigned char *p = e->data + 4;
    if (n_out != r->n_out) {
        snprintf(why, 512, "%d outputs, PyTorch has %d", r->n_out, n_out);
        return GOLDEN_DIFFERS;
    }
    for (int k = 0; k < n_out + n_grad; k++) {
        stored_tensor s;
        p = read_tensor(p, &s);
        int i = k - n_out;
        const gd_tensor *t = k < n_out ? r->out[k] : i < r->n_in ? r->grad[i] : NULL;
        if (k >= n_out && !r->has_grad) break;
        gd_dtype dtype = s.dtype ? s.dtype : gd_tensor_dtype(t);
        if (check_tensor(t, &s, block_tolerance(b, dtype), what)) continue;
        if (k < n_out) snprintf(why, 512, "output %d: %s", k, what);
        else snprintf(why, 512, "gradient of input %d: %s", i, what);
        return GOLDEN_DIFFERS;
    }
    return GOLDEN_SAME;
}
