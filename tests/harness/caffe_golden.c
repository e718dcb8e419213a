#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "caffe_golden.h"
#include "core/error.h"
#include "temp.h"

/* "2,3" or "-". */
static gd_shape read_shape(const char *text) {
    gd_shape shape = {.form = 1};
    if (text[0] == '-') return shape;
    for (char *end; *text && shape.rank < GD_MAX_RANK; text = *end == ',' ? end + 1 : end) {
        shape.at[shape.rank++] = strtoll(text, &end, 10);
        if (end == text) break;
    }
    return shape;
}

static int64_t count_of(const gd_shape *shape) {
    int64_t n = 1;
    for (int i = 0; i < shape->rank; i++) n *= shape->at[i];
    return n;
}

/* The formula of case.py. */
static float drawn(uint32_t i, uint32_t seed, double scale) {
    uint32_t h = i * 0x9E3779B9u + seed * 0x85EBCA6Bu;
    h ^= h >> 16;
    h *= 0x85EBCA6Bu;
    h ^= h >> 13;
    h *= 0xC2B2AE35u;
    h ^= h >> 16;
    return (float)(((double)(h >> 8) / 8388608 - 1) * scale);
}

/* A vector of the numbers after the colon. */
static gd_tensor *read_numbers(const char *text, int64_t n) {
    gd_tensor *t = gd_empty(gd_dims(n), GD_F32);
    float *to = gd_data(t);
    char *end;
    for (int64_t i = 0; to && i < n; i++, text = end) to[i] = strtof(text, &end);
    return t;
}

static bool read_given(caffe_case *c, const char *line) {
    char name[NAMED_LENGTH], sizes[100], how[16];
    unsigned seed;
    double scale;
    int at;
    if (sscanf(line, "given %199s %99s %15s%n", name, sizes, how, &at) != 3) return false;
    const gd_shape shape = read_shape(sizes);
    const int64_t n = count_of(&shape);
    gd_tensor *t;
    if (how[0] == ':') t = gd_reshape(read_numbers(line + at, n), shape);
    else {
        if (sscanf(line + at, "%u %lf", &seed, &scale) != 2) return false;
        t = gd_empty(shape, GD_F32);
        float *to = gd_data(t);
        for (int64_t i = 0; to && i < n; i++) to[i] = drawn((uint32_t)i, seed, scale);
    }
    named_add(&c->given, t, "%s", name);
    return true;
}

static bool read_wanted(caffe_case *c, const char *line) {
    char name[NAMED_LENGTH], sizes[100];
    int at = 0, k = c->wanted.count;
    if (k == NAMED_MAX ||
        sscanf(line, "want %199s %99s %d :%n", name, sizes, &c->steps[k], &at) != 3 || !at ||
        c->steps[k] < 1)
        return false;
    c->shapes[k] = read_shape(sizes);
    const int64_t stored = (count_of(&c->shapes[k]) + c->steps[k] - 1) / c->steps[k];
    named_add(&c->wanted, read_numbers(line + at, stored), "%s", name);
    return true;
}

bool caffe_case_read(FILE *file, caffe_case *c) {
    char *line = NULL, phase[16];
    size_t room = 0, length = 0;
    bool ended = false, good = true, begun = false;
    c->net[0] = '\0';
    c->given.count = c->wanted.count = 0;
    while (good && !ended && getline(&line, &room, file) > 0) {
        if (line[0] == '#') continue;
        if (line[0] == '|') {
            const size_t bytes = strlen(line + 1);
            good = length + bytes < sizeof c->net;
            if (good) memcpy(c->net + length, line + 1, bytes + 1);
            length += bytes;
        } else if (strncmp(line, "case ", 5) == 0) {
            good =
                sscanf(line, "case %63s %d %15s %lf", c->type, &c->seed, phase, &c->tolerance) == 4;
            c->train = strcmp(phase, "TRAIN") == 0;
            begun = true;
        } else if (strncmp(line, "given ", 6) == 0) good = read_given(c, line);
        else if (strncmp(line, "want ", 5) == 0) good = read_wanted(c, line);
        else ended = true;
    }
    if (!good) fprintf(stderr, "a wrong line: %.100s\n", line);
    free(line);
    return good && begun && ended;
}

/* Compares the stored values of one result. Caffe gives zeros where there is no gradient. */
static bool result_agrees(const caffe_case *c, int k, const named_tensors *results) {
    const char *name = c->wanted.names[k];
    const gd_tensor *t = named_find(results, "%s", name);
    const int64_t n = gd_tensor_numel(c->wanted.at[k]), step = c->steps[k];
    const float *want = gd_data(c->wanted.at[k]), *have = t ? gd_data(t) : NULL;
    double largest = 0;
    if (!t && name[0] != 'g') {
        fprintf(stderr, "%s %d: no %s\n", c->type, c->seed, name);
        return false;
    }
    gd_shape is = t ? gd_tensor_shape(t) : c->shapes[k];
    if (strstr(c->net, "PERMISSIVE") && count_of(&is) == count_of(&c->shapes[k]))
        is = c->shapes[k]; /* a shared blob has the shape of its first layer */
    if (is.rank != c->shapes[k].rank ||
        memcmp(is.at, c->shapes[k].at, (size_t)is.rank * sizeof *is.at) != 0) {
        fprintf(stderr, "%s %d: %s has another shape\n", c->type, c->seed, name);
        return false;
    }
    for (int64_t i = 0; i < n; i++)
        if (fabs((double)want[i]) < 1e30) largest = fmax(largest, fabs((double)want[i]));
    for (int64_t i = 0; i < n; i++) {
        const double a = have ? (double)have[i * step] : 0, b = (double)want[i];
        const double limit = fabs(b) < 1e30 ? 2 * c->tolerance * (1 + largest) : 1e-5 * fabs(b);
        if (isnan(a) ? isnan(b) : a == b || fabs(a - b) <= limit) continue;
        fprintf(stderr, "%s %d: element %d of %s is %.7g, not %.7g\n", c->type, c->seed,
                (int)(i * step), name, a, b);
        return false;
    }
    return true;
}

int caffe_case_run(const caffe_case *c, const char *mode) {
    static named_tensors results;
    int wrong = 0;
    const char *path = temp_write_text("case.prototxt", c->net);
    if (caffe_run(path, c->train, mode, &c->given, &results) != GD_OK) {
        fprintf(stderr, "%s %d: %s\n", c->type, c->seed, gd_latest_failure());
        gd_clear_error();
        return 1;
    }
    for (int k = 0; k < c->wanted.count; k++)
        if (strcmp(mode, "onnx") != 0 || strncmp(c->wanted.names[k], "top:", 4) == 0)
            wrong += !result_agrees(c, k, &results);
    if (wrong) fprintf(stderr, "(%s, phase %s)\n%s", mode, c->train ? "TRAIN" : "TEST", c->net);
    return wrong;
}
