/* sampler_stratified.c - the stratified sampler: every part of an epoch has about the same shares
 * of classes as the dataset.
 *
 * Classes of equal size form a group. Each class of the group occurs once in a round, in a random
 * order of the round, so k classes of m samples are a sequence of k m samples. The sequences of the
 * groups are merged by time: sample i of a sequence of length n is due at (i + start) / n, where
 * start, in [0, 1), is random for the epoch. So each sequence is spread evenly over the epoch.
 *
 * n samples have at most sqrt(2 n) groups. The sampler holds the indices of all samples, sorted by
 * the size of their class, then by class: 4 bytes each (8 beyond 2^31 samples).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/copy.h"
#include "core/tensor.h"
#include "core/thread.h"
#include "data/indices.h"
#include "data/permute.h"
#include "data/sampler.h"

typedef struct group {
    int64_t size;    /* of each class */
    int64_t classes; /* how many */
    int64_t first;   /* in the list: class c of the group begins at first + c * size */
} group;

typedef struct stratified {
    int64_t samples;
    gd_indices list;
    group *groups; /* by size */
    int64_t n_groups;
} stratified;

static int64_t stratified_count(const gd_sampler *s, int64_t samples) {
    (void)s;
    return samples;
}

static void stratified_describe(const gd_sampler *s, char *text, size_t size) {
    (void)s;
    snprintf(text, size, "stratified");
}

static void stratified_close(gd_sampler *s) {
    stratified *t = s->self;
    gd_free(t->list.at);
    gd_free(t->groups);
}

/* --- the order -------------------------------------------------------------------------------- */

/* A group at some position of an epoch. */
typedef struct group_stream {
    int64_t group, next, length; /* next: the index of its next sample */
    double start, due;           /* due: the time of its next sample */
} group_stream;

/* Infinite after the last sample. */
static double due_time(const group_stream *s, int64_t i) {
    return i < s->length ? ((double)i + s->start) / (double)s->length : INFINITY;
}

static bool is_due_before(const group_stream *a, const group_stream *b) {
    return a->due != b->due ? a->due < b->due : a->group < b->group;
}

/* Restores heap order: a stream is due before those below it. */
static void sift_down(group_stream *heap, int64_t count, int64_t i) {
    const group_stream moved = heap[i];
    for (int64_t child; (child = 2 * i + 1) < count; i = child) {
        if (child + 1 < count && is_due_before(&heap[child + 1], &heap[child])) child++;
        if (!is_due_before(&heap[child], &moved)) break;
        heap[i] = heap[child];
    }
    heap[i] = moved;
}

/* Moves a stream to its first sample that is due at `time` or later. */
static void advance_to(group_stream *s, double time) {
    int64_t i = (int64_t)(time * (double)s->length - s->start);
    if (i < 0) i = 0;
    if (i > s->length) i = s->length;
    while (i > 0 && due_time(s, i - 1) >= time) i--;
    while (i < s->length && due_time(s, i) < time) i++;
    s->next = i;
    s->due = due_time(s, i);
}

/* Sets the streams to a position of the epoch. At any time t, t * length samples of a stream are
 * due, within one. So at the time (position - groups) / samples at most `position` samples are due,
 * and only a few less; the heap steps through these. */
static void begin_streams(const gd_order *o, group_stream *heap, int64_t position) {
    const stratified *t = o->sampler->self;
    const gd_rng key = gd_draw_key(GD_DRAW_START, o->seed, o->epoch);
    const double time = (double)(position - t->n_groups) / (double)t->samples;
    int64_t passed = 0;
    for (int64_t g = 0; g < t->n_groups; g++) {
        uint32_t words[4];
        gd_philox(key, (uint64_t)g, words);
        group_stream *s = &heap[g];
        *s = (group_stream){.group = g,
                            .length = t->groups[g].size * t->groups[g].classes,
                            .start = (double)words[0] * 0x1p-32};
        advance_to(s, time);
        passed += s->next;
    }
    for (int64_t i = t->n_groups / 2; i-- > 0;) sift_down(heap, t->n_groups, i);
    for (; passed < position; passed++) {
        heap[0].due = due_time(&heap[0], ++heap[0].next);
        sift_down(heap, t->n_groups, 0);
    }
}

/* Sample i of the sequence of a group. */
static int64_t group_member(const gd_order *o, const group *g, int64_t i) {
    const stratified *t = o->sampler->self;
    const int64_t round = i / g->classes;
    /* each round and each class has its own seed */
    const uint64_t of_round = o->seed ^ (uint64_t)(g->first + round + 1) * 0x9E3779B97F4A7C15u;
    const int64_t class =
        gd_shuffled(gd_draw_key(GD_DRAW_CLASS, of_round, o->epoch), i % g->classes, g->classes);
    const int64_t first = g->first + class * g->size;
    const uint64_t of_class = o->seed ^ (uint64_t)(first + 1) * 0x9E3779B97F4A7C15u;
    const int64_t position =
        gd_shuffled(gd_draw_key(GD_DRAW_MEMBER, of_class, o->epoch), round, g->size);
    return gd_indices_get(&t->list, first + position);
}

static gd_status stratified_at(const gd_order *o, int64_t first, int64_t count, int64_t *indices) {
    const stratified *t = o->sampler->self;
    group_stream *heap = gd_malloc((size_t)t->n_groups * sizeof *heap);
    if (!heap) return gd_no_memory(NULL, "for a stratified order");
    begin_streams(o, heap, first);
    for (int64_t i = 0; i < count; i++) {
        group_stream *s = &heap[0];
        indices[i] = group_member(o, &t->groups[s->group], s->next);
        s->due = due_time(s, ++s->next);
        sift_down(heap, t->n_groups, 0);
    }
    gd_free(heap);
    return GD_OK;
}

static const gd_sampler_rules stratified_rules = {.count = stratified_count,
                                                  .at = stratified_at,
                                                  .describe = stratified_describe,
                                                  .close = stratified_close};

/* --- construction ----------------------------------------------------------------------------- */

/* The classes of all samples. Class c is values[c], where `values` are the distinct labels, sorted;
 * with `values` NULL it is least + c. */
typedef struct labels {
    gd_view column;
    int64_t samples, least, classes;
    int64_t *values;
    int64_t *sizes; /* of each class; later the position of its next sample */
} labels;

static int64_t value_at(const labels *l, int64_t i) {
    const gd_view *c = &l->column;
    const int64_t step = c->strides[0] * (int64_t)gd_dtype_bytes(c->dtype);
    return gd_load_i64(c->dtype, (const char *)c->data + i * step);
}

static int by_value(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int64_t class_at(const labels *l, int64_t i) {
    const int64_t value = value_at(l, i);
    if (!l->values) return value - l->least;
    const int64_t *found = bsearch(&value, l->values, (size_t)l->classes, sizeof value, by_value);
    return found - l->values;
}

static gd_status find_classes(labels *l) {
    int64_t least = value_at(l, 0), most = least;
    for (int64_t i = 1; i < l->samples; i++) {
        const int64_t value = value_at(l, i);
        if (value < least) least = value;
        if (value > most) most = value;
    }
    l->least = least;
    if ((uint64_t)most - (uint64_t)least < (uint64_t)l->samples + 65536) {
        l->classes = most - least + 1;
        return GD_OK;
    }
    l->values = gd_malloc((size_t)l->samples * sizeof *l->values);
    if (!l->values) return gd_no_memory(NULL, "for a stratified sampler");
    for (int64_t i = 0; i < l->samples; i++) l->values[i] = value_at(l, i);
    qsort(l->values, (size_t)l->samples, sizeof *l->values, by_value);
    for (int64_t i = 0; i < l->samples; i++)
        if (i == 0 || l->values[i] != l->values[l->classes - 1])
            l->values[l->classes++] = l->values[i];
    return GD_OK;
}

static int by_size(const void *a, const void *b) {
    const group *x = a, *y = b;
    return (x->size > y->size) - (x->size < y->size);
}

static group *group_of(const stratified *t, int64_t size) {
    return bsearch(&(group){.size = size}, t->groups, (size_t)t->n_groups, sizeof(group), by_size);
}

/* Finds the distinct sizes of classes and counts the classes of each. */
static gd_status find_groups(stratified *t, const labels *l) {
    int64_t *sizes = gd_malloc((size_t)l->classes * sizeof *sizes), kinds = 0;
    if (!sizes) return gd_no_memory(NULL, "for a stratified sampler");
    memcpy(sizes, l->sizes, (size_t)l->classes * sizeof *sizes);
    qsort(sizes, (size_t)l->classes, sizeof *sizes, by_value);
    for (int64_t i = 0; i < l->classes; i++)
        kinds += sizes[i] > 0 && (i == 0 || sizes[i] != sizes[i - 1]);
    t->groups = gd_calloc((size_t)kinds, sizeof *t->groups);
    for (int64_t i = 0; i < l->classes && t->groups; i++) {
        if (sizes[i] == 0) continue;
        if (t->n_groups == 0 || t->groups[t->n_groups - 1].size != sizes[i])
            t->groups[t->n_groups++].size = sizes[i];
        t->groups[t->n_groups - 1].classes++;
    }
    gd_free(sizes);
    if (!t->groups) return gd_no_memory(NULL, "for a stratified sampler");
    for (int64_t g = 1; g < t->n_groups; g++) {
        const group *last = &t->groups[g - 1];
        t->groups[g].first = last->first + last->size * last->classes;
    }
    return GD_OK;
}

static gd_status sort_samples(stratified *t, labels *l) {
    GD_TRY(find_classes(l));
    l->sizes = gd_calloc((size_t)l->classes, sizeof *l->sizes);
    if (!l->sizes) return gd_no_memory(NULL, "for a stratified sampler");
    for (int64_t i = 0; i < l->samples; i++) l->sizes[class_at(l, i)]++;
    GD_TRY(find_groups(t, l));
    GD_TRY(gd_indices_make(&t->list, l->samples, l->samples));
    int64_t *next =
        gd_malloc((size_t)t->n_groups * sizeof *next); /* position of the next class of a group */
    if (!next) return gd_no_memory(NULL, "for a stratified sampler");
    for (int64_t g = 0; g < t->n_groups; g++) next[g] = t->groups[g].first;
    for (int64_t c = 0; c < l->classes; c++) {
        const int64_t size = l->sizes[c];
        if (size == 0) continue;
        int64_t *position = &next[group_of(t, size) - t->groups];
        l->sizes[c] = *position;
        *position += size;
    }
    gd_free(next);
    for (int64_t i = 0; i < l->samples; i++)
        gd_indices_set(&t->list, l->sizes[class_at(l, i)]++, i);
    return GD_OK;
}

static gd_status check_classes(gd_tensor **classes) {
    char text[160];
    GD_TRY(gd_sampler_column(classes, "classes"));
    if (gd_is_float((*classes)->dtype))
        return gd_fail(GD_E_DTYPE, "the classes are %s; they should be integers",
                       gd_describe(*classes, text, sizeof text));
    if ((*classes)->dims[0] < 1) return gd_fail(GD_E_SHAPE, "there are no classes");
    return GD_OK;
}

gd_sampler *gd_sampler_stratified_at(const char *site, gd_tensor *classes) {
    GD_CALLED_FROM(site);
    gd_sampler *s = NULL;
    gd_scope *scope = gd_scope_open();
    gd_status status = check_classes(&classes);
    if (status == GD_OK &&
        (s = gd_sampler_bare(&stratified_rules, classes->dims[0], sizeof(stratified)))) {
        stratified *t = s->self;
        t->samples = classes->dims[0];
        labels l = {.column = gd_view_of(classes), .samples = t->samples};
        status = sort_samples(t, &l);
        gd_free(l.values);
        gd_free(l.sizes);
    }
    gd_scope_close(&scope);
    return gd_sampler_finish(site, "gd_sampler_stratified", s, status);
}
