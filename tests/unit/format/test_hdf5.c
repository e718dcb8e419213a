/* test_hdf5.c - HDF5 files (format/hdf5.h): those of h5py, of the oldest and the newest kind
 * (tests/golden/hdf5_make.py), those that the library writes, and damaged ones. tests/format/hdf5.py
 * compares random files with h5py. */
#include "fuzz/damage.h"
#include "clean_test.h"
#include "core/alloc.h"
#include "core/error.h"
#include "core/half.h"
#include "fault_walk.h"
#include "files.h"
#include "format/bytes.h"
#include "format/hdf5.h"
#include "format/stream.h"
#include "temp.h"

#define LLVMFuzzerTestOneInput fuzz_hdf5
#include "fuzz/fuzz_hdf5.c"
#undef LLVMFuzzerTestOneInput

static const char *const kinds[] = {"earliest", "latest"};
enum { KINDS = 2, MAX_GOLDEN = 1 << 20 };

/* The bytes of a file of h5py; gd_free() them. */
static char *read_golden(const char *kind, size_t *bytes) {
    char path[500], *data;
    gd_stream *stream;
    snprintf(path, sizeof path, "%s/hdf5/%s.h5.gz", GRADUS_GOLDEN, kind);
    if (gd_stream_open(&stream, path) != GD_OK ||
        gd_stream_read_all(stream, MAX_GOLDEN, &data, bytes) != GD_OK)
        abort();
    gd_stream_close(stream);
    return data;
}

/* A file that is open for reading. */
typedef struct opened {
    gd_file_reader *file;
    gd_hdf5 *h;
    const gd_hdf5_object *root;
    char *data;
} opened;

static gd_status open_bytes(opened *o, const void *data, size_t bytes) {
    o->h = NULL;
    const gd_status status = gd_file_reader_open_memory(&o->file, "t.h5", data, bytes);
    if (status != GD_OK) return status;
    GD_TRY(gd_hdf5_open(&o->h, o->file));
    o->root = gd_hdf5_root(o->h);
    return GD_OK;
}

static opened open_golden(const char *kind) {
    opened o = {0};
    size_t bytes;
    o.data = read_golden(kind, &bytes);
    if (open_bytes(&o, o.data, bytes) != GD_OK) {
        fprintf(stderr, "%s\n", gd_latest_failure());
        abort();
    }
    return o;
}

static void close_all(opened *o) {
    gd_hdf5_close(o->h);
    gd_file_reader_close(o->file);
    gd_free(o->data);
}

static gd_hdf5_object *get(const opened *o, const char *path) {
    gd_hdf5_object *object = NULL;
    const gd_status status = gd_hdf5_object_open(&object, o->root, path);
    CHECK_SAYING(status == GD_OK, "%s: %s", path, gd_latest_failure());
    return object;
}

/* The formula of hdf5_make.py. */
static double value(int i, bool is_unsigned) { return i * 7 % 23 - (is_unsigned ? 0 : 4); }

static bool has_shape(const gd_hdf5_shape *s, int rank, const int64_t *dims) {
    return s->rank == rank &&
           (rank == 0 || memcmp(s->dims, dims, (size_t)rank * sizeof *dims) == 0);
}

/* Reads all as f64 and as the dataset's own dtype, and in rows. */
static void check_values(const opened *o, const char *path, gd_dtype dtype, int rank,
                         const int64_t *dims, const double *expected) {
    gd_hdf5_object *d = get(o, path);
    if (!d) return;
    CHECK_SAYING(d->type.dtype == dtype, "%s: dtype %s", path, gd_dtype_name(d->type.dtype));
    CHECK_SAYING(has_shape(&d->shape, rank, dims), "%s: shape", path);
    CHECK(gd_hdf5_check_size(d) == GD_OK);
    const int64_t rows = rank ? dims[0] : 1, n = d->shape.count;
    double *all = malloc((size_t)n * sizeof *all + 1);
    for (int64_t step = 1; step <= rows; step += step < rows ? rows - 1 : 1) {
        memset(all, 0xff, (size_t)n * sizeof *all);
        for (int64_t i = 0; i < rows; i += step) {
            const int64_t count = rows - i < step ? rows - i : step;
            const gd_status status = gd_hdf5_read(d, i, count, GD_F64, all + n / rows * i);
            CHECK_SAYING(status == GD_OK, "%s: %s", path, gd_latest_failure());
        }
        CHECK_SAYING(memcmp(all, expected, (size_t)n * sizeof *all) == 0, "%s: values", path);
    }
    CHECK(gd_hdf5_read(d, 0, rows + 1, GD_F64, all) == GD_E_INDEX);
    free(all);
    gd_hdf5_object_close(d);
}

static void check_formula(const opened *o, const char *path, gd_dtype dtype, bool is_unsigned,
                          int rank, const int64_t *dims) {
    double x[100];
    int n = 1;
    for (int i = 0; i < rank; i++) n *= (int)dims[i];
    for (int i = 0; i < n; i++) x[i] = value(i, is_unsigned);
    check_values(o, path, dtype, rank, dims, x);
}

#define DIMS(...) \
    (sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]) { __VA_ARGS__ }

CLEAN_TEST(numbers_of_every_type_are_read) {
    static const struct {
        const char *name;
        gd_dtype dtype;
        bool is_unsigned;
    } types[] = {{"i1", GD_I8, 0},    {"u1", GD_U8, 1},    {"i2", GD_I32, 0},   {"u2be", GD_I32, 1},
                 {"i4be", GD_I32, 0}, {"u4", GD_I64, 1},   {"i8", GD_I64, 0},   {"u8be", GD_I64, 1},
                 {"f2", GD_F16, 0},   {"f2be", GD_F16, 0}, {"f4be", GD_F32, 0}, {"f8", GD_F64, 0}};
    for (int k = 0; k < KINDS; k++) {
        opened o = open_golden(kinds[k]);
        for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
            char path[40];
            snprintf(path, sizeof path, "types/%s", types[i].name);
            check_formula(&o, path, types[i].dtype, types[i].is_unsigned, DIMS(5));
        }
        check_values(&o, "types/bool", GD_BOOL, DIMS(3), (double[]){1, 0, 1});
        check_values(&o, "types/enum", GD_I32, DIMS(2), (double[]){1, 2});
        check_values(&o, "types/scalar", GD_F32, 0, NULL, (double[]){2.5});
        check_values(&o, "types/bf16", GD_BF16, DIMS(4),
                     (double[]){1.5, -2, 0, gd_bf16_to_f32(gd_f32_to_bf16(3e38f))});
        check_formula(&o, "types/compact", GD_I32, false, DIMS(6));
        check_formula(&o, "data/conv1/0", GD_F32, false, DIMS(2, 3));
        check_formula(&o, "/data/conv1/1", GD_F64, false, DIMS(2));
        gd_hdf5_object *none = get(&o, "types/none"), *rows0 = get(&o, "types/rows0");
        CHECK(none->shape.empty && none->shape.count == 0);
        CHECK(!rows0->shape.empty && has_shape(&rows0->shape, DIMS(0, 3)));
        CHECK(gd_hdf5_read(rows0, 0, 0, GD_F32, NULL) == GD_OK);
        gd_hdf5_object_close(none);
        gd_hdf5_object_close(rows0);
        close_all(&o);
    }
}

CLEAN_TEST(chunks_of_every_index_are_read) {
    for (int k = 0; k < KINDS; k++) {
        opened o = open_golden(kinds[k]);
        check_formula(&o, "chunks/all", GD_I32, false, DIMS(7, 5));
        check_formula(&o, "chunks/single", GD_F32, false, DIMS(4, 5));
        check_formula(&o, "chunks/grow", GD_I32, false, DIMS(7, 5));
        check_formula(&o, "chunks/grow2", GD_F32, false, DIMS(7, 5));
        check_formula(&o, "chunks/first", GD_U8, true, DIMS(40));
        check_formula(&o, "chunks/early", GD_I32, false, DIMS(3, 5));
        double part[36];
        for (int i = 0; i < 36; i++) {
            const int row = i / 6, column = i % 6;
            const bool written = (row == 3 || row == 4) && (column == 1 || column == 2);
            part[i] = written ? value(2 * (row - 3) + column - 1, false) : 9;
        }
        check_values(&o, "chunks/part", GD_I32, DIMS(6, 6), part);
        close_all(&o);
    }
}

static void check_strings(gd_hdf5_strings *s, size_t count, const char *const *expected) {
    CHECK(s->count == count);
    for (size_t i = 0; i < count && i < s->count; i++)
        CHECK_SAYING(strcmp(s->at[i], expected[i]) == 0, "'%s'", s->at[i]);
    gd_hdf5_strings_free(s);
}

CLEAN_TEST(strings_and_attributes_are_read) {
    for (int k = 0; k < KINDS; k++) {
        opened o = open_golden(kinds[k]);
        gd_hdf5_strings s;
        gd_hdf5_object *d = get(&o, "types/fixed");
        CHECK(gd_hdf5_read_strings(&s, d) == GD_OK);
        check_strings(&s, 3, (const char *[]){"one", "three", ""});
        gd_hdf5_object_close(d);
        d = get(&o, "types/spaces");
        CHECK(gd_hdf5_read_strings(&s, d) == GD_OK);
        check_strings(&s, 2, (const char *[]){" one", "seven b"});
        gd_hdf5_object_close(d);
        d = get(&o, "types/variable");
        CHECK(gd_hdf5_read_strings(&s, d) == GD_OK);
        check_strings(&s, 3, (const char *[]){"eins", "", "drei ü"});
        gd_hdf5_object_close(d);

        CHECK(gd_hdf5_read_attribute_strings(&s, o.root, "names") == GD_OK);
        check_strings(&s, 3, (const char *[]){"conv1", "", "fc7"});
        CHECK(gd_hdf5_read_attribute_strings(&s, o.root, "utf8") == GD_OK);
        check_strings(&s, 3, (const char *[]){"grün", "", "水"});
        CHECK(gd_hdf5_read_attribute_strings(&s, o.root, "part") == GD_OK);
        check_strings(&s, 3, (const char *[]){"a", "bb", "ccc"});
        CHECK(gd_hdf5_read_attribute_strings(&s, o.root, "config") == GD_OK);
        CHECK(s.count == 1 && strlen(s.at[0]) == 40 * 28 &&
              strncmp(s.at[0] + 39 * 28, "{\"class_name\": \"Sequential\"}", 29) == 0);
        gd_hdf5_strings_free(&s);

        float numbers[6];
        CHECK(gd_hdf5_read_attribute(o.root, "numbers", GD_F32, 6, numbers) == GD_OK);
        for (int i = 0; i < 6; i++) CHECK(numbers[i] == (float)value(i, false));
        const gd_hdf5_attribute *a = gd_hdf5_find_attribute(o.root, "numbers");
        CHECK(has_shape(&a->shape, DIMS(2, 3)) && strcmp(a->type.name, "i16") == 0);
        CHECK(gd_hdf5_read_attribute(o.root, "numbers", GD_F32, 5, numbers) == GD_E_SHAPE);
        CHECK(gd_hdf5_read_attribute(o.root, "names", GD_F32, 3, numbers) == GD_E_DTYPE);
        CHECK(gd_hdf5_read_attribute_strings(&s, o.root, "numbers") == GD_E_DTYPE);
        CHECK(gd_hdf5_read_attribute(o.root, "missing", GD_F32, 1, numbers) == GD_E_ARGUMENT);
        CHECK(gd_hdf5_find_attribute(o.root, "flag")->type.dtype == GD_BOOL);
        CHECK(gd_hdf5_find_attribute(o.root, "empty")->shape.empty);
        d = get(&o, "many"); /* in the newest kind they are in a heap */
        CHECK(d->n_attributes == 60 + 2 * (size_t)k && d->n_names == 60);
        for (int i = 0; i < 60; i++) {
            char name[40];
            int64_t number = -1;
            snprintf(name, sizeof name, "attribute %d", i);
            CHECK(gd_hdf5_read_attribute(d, name, GD_I64, 1, &number) == GD_OK && number == i);
            snprintf(name, sizeof name, "group number %d", i);
            CHECK(gd_hdf5_has(d, name));
        }
        for (int i = 0; k == 1 && i < 2; i++) {
            const int64_t count = 17000 + i;
            float *large = malloc((size_t)count * sizeof *large);
            CHECK(gd_hdf5_read_attribute(d, i ? "large2" : "large", GD_F32, count, large) == GD_OK);
            for (int64_t j = 0; j < count; j += 100) CHECK(large[j] == (float)value((int)j, false));
            free(large);
        }
        gd_hdf5_object_close(d);
        close_all(&o);
    }
}

static void check_fails(const opened *o, const char *path, gd_status expected, const char *says) {
    gd_hdf5_object *d;
    float x[100];
    gd_status status = gd_hdf5_object_open(&d, o->root, path);
    if (status == GD_OK) status = gd_hdf5_read(d, 0, 2, GD_F32, x);
    CHECK_SAYING(status == expected, "%s: %s", path, gd_status_name(status));
    CHECK_SAYING(strstr(gd_latest_failure(), says) &&
                     strncmp(gd_latest_failure(), "t.h5: ", 6) == 0,
                 "%s: %s", path, gd_latest_failure());
    gd_hdf5_object_close(d);
}

CLEAN_TEST(what_is_missing_or_not_supported_is_named) {
    for (int k = 0; k < KINDS; k++) {
        opened o = open_golden(kinds[k]);
        gd_hdf5_object *d = get(&o, "data/conv1/soft");
        CHECK(strcmp(d->path, "/data/conv1/0") == 0);
        gd_hdf5_object *same = get(&o, "same");
        CHECK(same->address == d->address);
        gd_hdf5_object_close(same);
        gd_hdf5_object_close(d);
        check_fails(&o, "types/compound", GD_E_UNSUPPORTED,
                    "'/types/compound' has elements of the "
                    "type compound");
        check_fails(&o, "chunks/lzf", GD_E_UNSUPPORTED, "the filter 32000 (lzf)");
        check_fails(&o, "far/x", GD_E_UNSUPPORTED, "a link to another file");
        check_fails(&o, "data/conv1/circle", GD_E_FORMAT, "run in a circle");
        check_fails(&o, "data/conv1/near", GD_E_ARGUMENT, "has no '..'");
        check_fails(&o, "data/conv2/0", GD_E_ARGUMENT, "'/data' has no 'conv2'; it has 'conv1'");
        check_fails(&o, "same/x", GD_E_ARGUMENT, "'/same' is a dataset");
        check_fails(&o, "types", GD_E_ARGUMENT, "'/types' is a group");
        check_fails(&o, "types/fixed", GD_E_DTYPE, "of the type string; expected numbers");
        gd_hdf5_strings s;
        CHECK(gd_hdf5_read_attribute_strings(&s, o.root, "pair") == GD_E_UNSUPPORTED);
        close_all(&o);
    }
    opened o = {0};
    CHECK(open_bytes(&o, "no such file", 12) == GD_E_FORMAT && !gd_hdf5_is(o.file));
    CHECK(strcmp(gd_latest_failure(), "t.h5: is not an HDF5 file") == 0);
    close_all(&o);
}

/* --- writing ---------------------------------------------------------------------------------- */

static gd_status write_example(const char *path, const char *text) {
    gd_hdf5_writer *w;
    const float weight[6] = {1, 2, 3, 4, 5, -6.5f};
    const int64_t bias[2] = {INT64_MIN, 7};
    const bool flags[3] = {true, false, true};
    const uint16_t half[2] = {gd_f32_to_f16(0.5f), gd_f32_to_f16(-2)};
    const char *names[3] = {"conv1", "", "水"};
    GD_TRY(gd_hdf5_writer_begin(&w, path));
    gd_hdf5_writer_group(w, "/empty");
    gd_hdf5_writer_dataset(w, "/data/conv1/0", GD_F32, DIMS(2, 3));
    gd_hdf5_writer_write(w, weight, 8);
    gd_hdf5_writer_write(w, weight + 2, 16);
    gd_hdf5_writer_dataset(w, "/data/conv1/1", GD_I64, DIMS(2));
    gd_hdf5_writer_write(w, bias, sizeof bias);
    gd_hdf5_writer_dataset(w, "/flags", GD_BOOL, DIMS(3));
    gd_hdf5_writer_write(w, flags, sizeof flags);
    gd_hdf5_writer_dataset(w, "/half", GD_F16, DIMS(1, 2));
    gd_hdf5_writer_write(w, half, sizeof half);
    gd_hdf5_writer_dataset(w, "/rows0", GD_U8, DIMS(0, 4));
    gd_hdf5_writer_attribute(w, "/", "version", GD_I32, 0, NULL, &(int32_t){3});
    gd_hdf5_writer_attribute(w, "/flags", "x", GD_F64, DIMS(2), (double[]){0.25, -1});
    gd_hdf5_writer_text(w, "/", "config", text);
    gd_hdf5_writer_text(w, "/", "none", "");
    gd_hdf5_writer_texts(w, "/data", "names", names, 3);
    return gd_hdf5_writer_commit(w);
}

static opened open_file(const char *path) {
    opened o = {0};
    size_t bytes;
    if (gd_file_read_all(path, &o.data, &bytes) != GD_OK ||
        open_bytes(&o, o.data, bytes) != GD_OK) {
        fprintf(stderr, "%s\n", gd_latest_failure());
        abort();
    }
    return o;
}

CLEAN_TEST(written_files_are_read) {
    char *text = malloc(200001); /* longer than a message can be */
    memset(text, 'x', 200000);
    text[200000] = '\0';
    const char *path = temp_path("written.h5");
    CHECK(write_example(path, text) == GD_OK);
    opened o = open_file(path);
    check_values(&o, "data/conv1/0", GD_F32, DIMS(2, 3), (double[]){1, 2, 3, 4, 5, -6.5});
    check_values(&o, "data/conv1/1", GD_I64, DIMS(2), (double[]){-0x1p63, 7});
    check_values(&o, "flags", GD_BOOL, DIMS(3), (double[]){1, 0, 1});
    check_values(&o, "half", GD_F16, DIMS(1, 2), (double[]){0.5, -2});
    gd_hdf5_object *d = get(&o, "rows0");
    CHECK(has_shape(&d->shape, DIMS(0, 4)) && d->type.dtype == GD_U8);
    gd_hdf5_object_close(d);
    d = get(&o, "empty");
    CHECK(d->is_group && d->n_names == 0);
    gd_hdf5_object_close(d);
    gd_hdf5_strings s;
    int64_t version = 0;
    double x[2];
    CHECK(gd_hdf5_read_attribute(o.root, "version", GD_I64, 1, &version) == GD_OK && version == 3);
    d = get(&o, "flags");
    CHECK(gd_hdf5_read_attribute(d, "x", GD_F64, 2, x) == GD_OK && x[0] == 0.25 && x[1] == -1);
    gd_hdf5_object_close(d);
    CHECK(gd_hdf5_read_attribute_strings(&s, o.root, "config") == GD_OK);
    check_strings(&s, 1, (const char *[]){text});
    CHECK(gd_hdf5_read_attribute_strings(&s, o.root, "none") == GD_OK);
    check_strings(&s, 1, (const char *[]){""});
    d = get(&o, "data");
    CHECK(gd_hdf5_read_attribute_strings(&s, d, "names") == GD_OK);
    check_strings(&s, 3, (const char *[]){"conv1", "", "水"});
    gd_hdf5_object_close(d);
    close_all(&o);
    free(text);
}

/* The names in the nodes of the B-tree, by which other readers search: a name follows the one before
 * a child and is not after the one behind it. Returns the number of nodes. */
static int check_keys(const uint8_t *file, size_t bytes) {
    int nodes = 0;
    for (size_t at = 0; at + 544 <= bytes; at += 8) {
        if (memcmp(file + at, "TREE", 4) != 0) continue;
        const int count = gd_get_u16(file + at + 6);
        for (int k = 0; k < count; k++) {
            const uint8_t *key = file + at + 24 + 16 * k, *child = file + gd_get_u64(key + 8);
            const int below = gd_get_u16(child + 6);
            if (memcmp(child, "TREE", 4) == 0) {
                CHECK(file[at + 5] == child[5] + 1);
                CHECK(gd_get_u64(child + 24) == gd_get_u64(key));
                CHECK(gd_get_u64(child + 24 + 16 * below) == gd_get_u64(key + 16));
            } else {
                CHECK(file[at + 5] == 0 && memcmp(child, "SNOD", 4) == 0);
                CHECK(gd_get_u64(child + 8) > gd_get_u64(key)); /* names are in order */
                CHECK(gd_get_u64(child + 8 + 40 * (below - 1)) == gd_get_u64(key + 16));
            }
        }
        const uint64_t right = gd_get_u64(file + at + 16);
        if (right != UINT64_MAX) {
            CHECK(gd_get_u64(file + right + 8) == at);
            CHECK(gd_get_u64(file + right + 24) == gd_get_u64(file + at + 24 + 16 * count));
        }
        nodes += count > 0;
    }
    return nodes;
}

/* Three levels of a B-tree: more than 8 * 32 * 32 names. */
CLEAN_TEST(groups_of_many_names_are_written_and_read) {
    enum { MANY = 9000 };
    const char *path = temp_path("many.h5");
    char name[40];
    gd_hdf5_writer *w;
    CHECK(gd_hdf5_writer_begin(&w, path) == GD_OK);
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "/layer %d", i * 7919 % MANY);
        gd_hdf5_writer_group(w, name);
    }
    CHECK(gd_hdf5_writer_commit(w) == GD_OK);
    opened o = open_file(path);
    CHECK(o.root->n_names == MANY);
    CHECK(check_keys((const uint8_t *)o.data, (size_t)gd_file_reader_size(o.file)) == 36 + 2 + 1);
    for (int i = 0; i < MANY; i += 97) {
        snprintf(name, sizeof name, "layer %d", i);
        gd_hdf5_object *group = get(&o, name);
        CHECK(group->is_group);
        gd_hdf5_object_close(group);
    }
    close_all(&o);
}

CLEAN_TEST(long_lists_of_texts_are_written_until_an_attribute_is_full) {
    enum { LONG = 3000 };
    const char *path = temp_path("texts.h5"), *texts[5000];
    char *long_text = malloc(LONG + 1);
    memset(long_text, 'y', LONG);
    long_text[LONG] = '\0';
    for (int i = 0; i < 5000; i++) texts[i] = i == 17 ? long_text : i % 2 ? "ab" : "";
    gd_hdf5_writer *w;
    CHECK(gd_hdf5_writer_begin(&w, path) == GD_OK);
    CHECK(gd_hdf5_writer_texts(w, "/", "list", texts, 4000) == GD_OK);
    CHECK(gd_hdf5_writer_commit(w) == GD_OK);
    opened o = open_file(path);
    gd_hdf5_strings s;
    CHECK(gd_hdf5_read_attribute_strings(&s, o.root, "list") == GD_OK);
    check_strings(&s, 4000, texts);
    close_all(&o);
    CHECK(gd_hdf5_writer_begin(&w, path) == GD_OK);
    CHECK(gd_hdf5_writer_texts(w, "/", "list", texts, 5000) == GD_E_UNSUPPORTED);
    CHECK(gd_hdf5_writer_commit(w) == GD_E_UNSUPPORTED);
    free(long_text);
}

CLEAN_TEST(mistakes_of_a_writer_are_named_and_keep_the_old_file) {
    static const struct {
        const char *path, *says;
        gd_dtype dtype;
        int64_t dim;
        size_t bytes;
        gd_status status;
    } cases[] = {
        {"no slash", "is not a path", GD_F32, 1, 4, GD_E_ARGUMENT},
        {"/a//b", "is not a path", GD_F32, 1, 4, GD_E_ARGUMENT},
        {"/a/./b", "is not a path", GD_F32, 1, 4, GD_E_ARGUMENT},
        {"/a/", "is not a path", GD_F32, 1, 4, GD_E_ARGUMENT},
        {"/\xff", "is not a path", GD_F32, 1, 4, GD_E_ARGUMENT},
        {"/", "two objects named '/'", GD_F32, 1, 4, GD_E_ARGUMENT},
        {"/x", "two objects named '/x'", GD_F32, 1, 4, GD_E_ARGUMENT},
        {"/x/y", "'/x' is a dataset", GD_F32, 1, 4, GD_E_ARGUMENT},
        {"/y", "f32 would fit", GD_BF16, 1, 2, GD_E_DTYPE},
        {"/y", "dimension 0", GD_F32, -1, 4, GD_E_SHAPE},
        {"/y", "more than 2^63 bytes", GD_F32, INT64_MAX, 4, GD_E_OVERFLOW},
        {"/y", "more bytes than the dataset '/y' has", GD_F32, 1, 5, GD_E_ARGUMENT},
        {"/y", "has 8 bytes, and 4 were written", GD_F32, 2, 4, GD_E_ARGUMENT},
    };
    const char *path = temp_path("mistakes.h5");
    file_write_text(path, "old");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gd_hdf5_writer *w;
        CHECK(gd_hdf5_writer_begin(&w, path) == GD_OK);
        gd_hdf5_writer_dataset(w, "/x", GD_F32, 0, NULL);
        gd_hdf5_writer_write(w, &(float){1}, 4);
        gd_hdf5_writer_dataset(w, cases[i].path, cases[i].dtype, 1, &cases[i].dim);
        gd_hdf5_writer_write(w, "12345678", cases[i].bytes);
        CHECK_SAYING(gd_hdf5_writer_commit(w) == cases[i].status, "case %zu: %s", i,
                     gd_latest_failure());
        CHECK_SAYING(strstr(gd_latest_failure(), cases[i].says), "%s", gd_latest_failure());
        CHECK(file_has_text(path, "old"));
    }
}

CLEAN_TEST(a_full_disk_keeps_the_old_file) {
    const char *folder = temp_new_folder("full");
    char path[500], text[9000] = "";
    snprintf(path, sizeof path, "%s/a.h5", folder);
    memset(text, 'z', sizeof text - 1);
    file_write_text(path, "old");
    for (long limit = 0; limit < 12000; limit += 1500) {
        file_size_limit(limit);
        const gd_status status = write_example(path, text);
        file_size_limit(-1);
        CHECK_SAYING(status == GD_E_IO, "limit %ld: %s", limit, gd_status_name(status));
        CHECK(file_has_text(path, "old") && folder_count(folder) == 1);
    }
    CHECK(write_example(path, text) == GD_OK);
}

/* --- damage ----------------------------------------------------------------------------------- */

CLEAN_TEST(damaged_files_fail_or_are_read_completely) {
    for (int k = 0; k < KINDS; k++) {
        size_t bytes;
        char *data = read_golden(kinds[k], &bytes);
        for (size_t n = 0; n < bytes; n += 1 + n / 16) {
            uint8_t *part = malloc(n ? n : 1);
            memcpy(part, data, n);
            fuzz_hdf5(part, n);
            free(part);
        }
        run_damaged(fuzz_hdf5, data, bytes, 1500);
        gd_free(data);
    }
    char *data;
    size_t bytes;
    const char *path = temp_path("damaged.h5");
    CHECK(write_example(path, "text") == GD_OK && gd_file_read_all(path, &data, &bytes) == GD_OK);
    run_damaged(fuzz_hdf5, data, bytes, 1500);
    gd_free(data);
}

/* A header that continues with itself: without a limit its list of messages would never end. */
CLEAN_TEST(blocks_that_refer_to_each_other_in_a_circle_are_found) {
    const char *path = temp_path("circle.h5");
    char *data;
    size_t bytes;
    opened o = {0};
    CHECK(write_example(path, "text") == GD_OK && gd_file_read_all(path, &data, &bytes) == GD_OK);
    const uint64_t root = gd_get_u64((uint8_t *)data + 64);
    uint8_t *second = (uint8_t *)data + root + 16 + 24; /* after the message of the group */
    CHECK(gd_get_u16(second) == 0x0c);
    gd_put_u16(second, 0x10);
    gd_put_u64(gd_put_u64(second + 8, root + 16), gd_get_u32((uint8_t *)data + root + 8));
    CHECK(open_bytes(&o, data, bytes) == GD_E_FORMAT);
    CHECK_SAYING(strstr(gd_latest_failure(), "in a circle"), "%s", gd_latest_failure());
    close_all(&o);
    gd_free(data);
}

/* In the newest kind each block of metadata has a checksum. */
CLEAN_TEST(a_changed_byte_of_metadata_is_found) {
    size_t bytes;
    char *data = read_golden("latest", &bytes);
    int found = 0;
    for (size_t at = 0; at < 400; at += 3) {
        opened o = {0};
        data[at] ^= 4;
        found += open_bytes(&o, data, bytes) != GD_OK;
        data[at] ^= 4;
        close_all(&o);
    }
    CHECK_SAYING(found >= 120, "%d of 134", found);
    gd_free(data);
}

CLEAN_TEST(every_allocation_may_fail) {
    size_t bytes;
    char *data = read_golden("latest", &bytes);
    for (fault_walk w = {.what = "reading", .dense = 40}; fault_next(&w);) {
        opened o = {0};
        gd_hdf5_object *d = NULL;
        gd_hdf5_strings s = {0};
        double x[35];
        fault_begin(&w);
        gd_status status = open_bytes(&o, data, bytes);
        if (status == GD_OK) status = gd_hdf5_object_open(&d, o.root, "chunks/all");
        if (status == GD_OK) status = gd_hdf5_read(d, 0, 7, GD_F64, x);
        if (status == GD_OK) status = gd_hdf5_read_attribute_strings(&s, o.root, "utf8");
        fault_end(&w);
        CHECK_FAULT(&w, status);
        gd_hdf5_strings_free(&s);
        gd_hdf5_object_close(d);
        close_all(&o);
    }
    gd_free(data);
    const char *path = temp_path("faults.h5");
    for (fault_walk w = {.what = "writing"}; fault_next(&w);) {
        fault_begin(&w);
        const gd_status status = write_example(path, "text");
        fault_end(&w);
        CHECK_FAULT(&w, status);
    }
}

TEST_MAIN
