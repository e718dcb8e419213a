/* resume.c - settings that checkpoints keep, so that a run is not resumed with others. */
#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tool.h"

enum { MAX_SETTINGS = 20, SHOWN = 96 };

typedef struct setting {
    uint64_t hash;
    char value[SHOWN]; /* its beginning, for messages; "": not given */
} setting;

/* The first part is saved with each checkpoint. */
static struct {
    setting saved[MAX_SETTINGS];
    setting now[MAX_SETTINGS];
    const char *option[MAX_SETTINGS];
    const char
        *said[MAX_SETTINGS]; /* with what a run continues in spite of a new value; NULL: not */
    bool kept[MAX_SETTINGS]; /* the checkpoint's value */
    int count;
    int source, validation, samples; /* the settings of both data, and of the samples themselves */
    int64_t compared, total;         /* samples */
    bool has_trained;
} s;

static uint64_t hash_bytes(uint64_t hash, const void *from, size_t bytes) { /* FNV-1a */
    const unsigned char *p = from;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ p[i]) * 0x100000001B3u;
    return hash;
}
static const uint64_t hash_start = 0xCBF29CE484222325u;

static void put_setting(const char *name, const char *value, uint64_t hash) {
    if (s.count == MAX_SETTINGS) return;
    setting *to = &s.now[s.count];
    to->hash = hash;
    snprintf(to->value, sizeof to->value, "%s", value);
    s.option[s.count++] = name;
}

void add_setting(const char *name, const char *value) {
    if (!value) value = "";
    put_setting(name, value, hash_bytes(hash_start, value, strlen(value)));
    if (strcmp(name, "--data") == 0) s.source = s.count - 1;
    if (strcmp(name, "--validation") == 0) s.validation = s.count - 1;
}

void add_open_setting(const char *name, const char *value, const char *said) {
    add_setting(name, value);
    s.said[s.count - 1] = said;
}

void add_kept_setting(const char *name, const char *value, const char *kept) {
    add_open_setting(name, value, kept);
    s.kept[s.count - 1] = true;
}

void add_setting_number(const char *name, double value) {
    char text[40];
    snprintf(text, sizeof text, "%.15g", value); /* 0.1, not 0.10000000000000001 */
    if (strtod(text, NULL) != value) snprintf(text, sizeof text, "%.17g", value);
    add_setting(name, text);
}

/* The bits of a sample; adds its size to *total. */
static uint64_t hash_sample(uint64_t hash, gd_dataset *dataset, int64_t i, double *total) {
    GD_SCOPE;
    const gd_tensors sample = gd_dataset_get(dataset, i);
    for (int64_t k = 0; k < sample.count && !gd_failed(); k++) {
        gd_tensor *t = gd_contiguous(sample.at[k]);
        const size_t bytes = (size_t)gd_tensor_numel(t) * gd_dtype_size(gd_tensor_dtype(t));
        void *bits = malloc(bytes + 1);
        hash = hash_bytes(hash, &bytes, sizeof bytes);
        if (bits && gd_copy_to(t, bits, bytes) == GD_OK) hash = hash_bytes(hash, bits, bytes);
        free(bits);
        *total += (double)bytes;
    }
    return hash;
}

/* The bits of all samples, or of every second, third, ... one if all are too many. */
static uint64_t hash_samples(uint64_t hash, gd_dataset *dataset) {
    const double most = 64e6; /* bytes */
    const int64_t count = gd_dataset_count(dataset);
    double bytes = 0, limit = 2 * most;
    int64_t step = 1;
    hash = hash_bytes(hash, &count, sizeof count);
    for (int64_t i = 0; i < count && !gd_failed(); i += step) {
        hash = hash_sample(hash, dataset, i, &bytes);
        s.compared++;
        if (i == 0 && bytes * (double)count > most)
            step = (int64_t)ceil(bytes * (double)count / most);
        for (; bytes > limit; limit *= 2) step *= 2; /* later samples are larger than the first */
    }
    s.total += count;
    return hash;
}

void add_data_setting(const data *d) {
    char text[SHOWN];
    uint64_t hash = hash_samples(hash_start, d->train);
    if (d->test) hash = hash_samples(hash, d->test);
    snprintf(text, sizeof text, "%lld samples, validated on %lld",
             (long long)gd_dataset_count(d->train),
             (long long)(d->test ? gd_dataset_count(d->test) : 0));
    s.samples = s.count;
    put_setting("the data", text, hash);
}

/* --- the checkpoints of a run ----------------------------------------------------------------- */

static gd_status begin_run(gd_event *event, void *self) {
    (void)event;
    (void)self;
    for (int i = 0; i < s.count; i++) /* data may have moved */
        if (!s.kept[i]) s.saved[i] = s.now[i];
    return GD_OK;
}

static gd_status count_batch(gd_event *event, void *self) {
    (void)event;
    (void)self;
    s.has_trained = true;
    return GD_OK;
}

bool has_trained(void) { return s.has_trained; }

gd_callback *settings_callback(void) {
    memcpy(s.saved, s.now, sizeof s.saved);
    return gd_callback_from(&s, .fit_begin = begin_run, .batch_end = count_batch,
                            .state_bytes = sizeof s.saved, .name = "settings");
}

/* The number of steps in the name of a checkpoint, "step-00000044.safetensors"; or -1. */
static int64_t step_of(const char *name) {
    char *end;
    if (strncmp(name, "step-", 5) != 0) return -1;
    const int64_t step = strtoll(name + 5, &end, 10);
    return strcmp(end, ".safetensors") == 0 ? step : -1;
}

/* The newest checkpoint with fewer steps than *step, which becomes its own. False: there is none. */
static bool find_checkpoint(const char *folder, int64_t *step, char path[4400]) {
    int64_t best = -1;
    DIR *dir = opendir(folder);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        const int64_t at = step_of(e->d_name);
        if (at <= best || at >= *step) continue;
        snprintf(path, 4400, "%.4096s/%s", folder, e->d_name);
        best = at;
    }
    if (dir) closedir(dir);
    *step = best;
    return best >= 0;
}

/* Reads the settings of the checkpoint from which gd_fit continues, the newest that is not damaged.
 * False: there are none. */
static bool read_settings(const char *folder) {
    char path[4400];
    bool found = false, damaged = true;
    for (int64_t step = INT64_MAX; damaged && find_checkpoint(folder, &step, path);) {
        GD_SCOPE;
        gd_load_report report = {.loaded = 0};
        gd_tensor *bytes =
            gd_to_device(gd_zeros(gd_dims(sizeof s.saved), .dtype = GD_U8), gd_device_get("cpu"));
        gd_load_state_with(path, gd_parts(gd_part("callback.settings.bytes", bytes)),
                           .partial = &report);
        damaged = gd_failed();
        found =
            !damaged && report.loaded == 1 && gd_copy_to(bytes, s.saved, sizeof s.saved) == GD_OK;
        gd_clear_error(); /* gd_fit says what is damaged */
    }
    return found;
}

/* --- comparing -------------------------------------------------------------------------------- */

/* A checkpoint of a program that did not have the setting has zeros. */
static bool is_same(int i) { return s.saved[i].hash == s.now[i].hash || !s.saved[i].hash; }

static const char *shown(const setting *of, char text[SHOWN + 2]) {
    if (!*of->value) return "not given";
    snprintf(text, SHOWN + 2, "'%.*s'", SHOWN - 1, of->value);
    return text;
}

/* "--batch was '64', and now it is '32'" */
static const char *describe_change(int i, char text[400]) {
    char before[SHOWN + 2], now[SHOWN + 2];
    if (strcmp(s.saved[i].value, s.now[i].value) == 0)
        snprintf(text, 400, "%s begins as before, with %s, but has changed", s.option[i],
                 shown(&s.now[i], now));
    else
        snprintf(text, 400, "%s was %s, and now it is %s", s.option[i], shown(&s.saved[i], before),
                 shown(&s.now[i], now));
    return text;
}

/* There are as many samples as before. */
static int fail_for_samples(const char *folder) {
    const char *validation = s.now[s.validation].value;
    return fail(
        "--resume: in %s, the samples of %s%s%s have changed. There are as many as before, "
        "%s, but some values differ; the result would not be that of one run. Give the same "
        "data, or another folder to --checkpoints",
        folder, s.now[s.source].value, *validation ? " or of --validation " : "", validation,
        s.now[s.samples].value);
}

int check_settings(const char *folder) {
    char change[400];
    if (!read_settings(folder)) return DONE;
    const bool all = s.compared == s.total;
    for (int i = 0; i < s.count; i++) {
        if (is_same(i)) continue;
        const bool moved = (i == s.source || i == s.validation) && is_same(s.samples);
        const char *with = !moved ? s.said[i]
                           : all  ? "the same samples"
                                  : "samples that are the same where they were compared";
        if (!with && i == s.samples && strcmp(s.saved[i].value, s.now[i].value) == 0)
            return fail_for_samples(folder);
        if (!with)
            return fail(
                "--resume: in %s, %s; the result would not be that of one run. Give the same "
                "options, or another folder to --checkpoints",
                folder, describe_change(i, change));
        fprintf(stderr, "gradus: --resume: %s; the run continues with %s\n",
                describe_change(i, change), with);
    }
    if (!all)
        note("--resume: in %s, %lld of %lld samples were compared; a change of others goes "
             "unnoticed",
             folder, (long long)s.compared, (long long)s.total);
    return DONE;
}
