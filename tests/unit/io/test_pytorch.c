/* test_pytorch.c - weights in files of PyTorch and NumPy (io/state_format.h): values, names, refusals,
 * damaged and hostile files. tests/golden/pytorch_make.py has written the files; the comparison with
 * PyTorch itself is tests/pytorch/against_pytorch.py. */
#include "fuzz/damage.h"
#include "fuzz/fuzz_pytorch.c"

#include <math.h>
#include <unistd.h>

#include "compare.h"
#include "core/error.h"
#include "fault_walk.h"
#include "files.h"
#include "state_things.h"
#include "temp.h"

#define GOLDEN(name) GRADUS_GOLDEN "/pytorch/" name

/* Whether a tensor of the state has this shape and these values. */
static bool has(const gd_state *s, const char *name, gd_shape shape, const double *values) {
    gd_tensor *t = gd_state_find(s, name);
    if (!t || gd_tensor_rank(t) != shape.rank) return false;
    for (int i = 0; i < shape.rank; i++)
        if (gd_tensor_dim(t, i) != shape.at[i]) return false;
    const int64_t n = gd_tensor_numel(t);
    gd_tensor *flat = n ? gd_reshape(gd_cast(t, GD_F64), gd_dims(n)) : NULL;
    for (int64_t i = 0; i < n; i++)
        if (gd_item(gd_at(flat, i)) != values[i]) return false;
    return true;
}
#define VALUES(...) ((const double[]){__VA_ARGS__})
#define HAS(s, name, shape, ...) \
    CHECK_SAYING(has(s, name, shape, VALUES(__VA_ARGS__)), "%s of %s", name, path)

static bool is_value(const gd_state *s, const char *name, const char *text) {
    const char *value = gd_state_value(s, name);
    return value && strcmp(value, text) == 0;
}

static double counted[24];
static const double *count_up(void) {
    for (int i = 0; i < 24; i++) counted[i] = i;
    return counted;
}

static gd_dtype dtype_of(const gd_state *s, const char *name) {
    gd_tensor *t = gd_state_find(s, name);
    return t ? gd_tensor_dtype(t) : GD_DTYPE_NONE;
}

/* --- values ----------------------------------------------------------------------------------- */

static void check_checkpoint(const char *path) {
    GD_SCOPE;
    gd_state *s = gd_read_state(path);
    CHECK_SAYING(s != NULL, "%s", gd_error_message());
    if (!s) return;
    CHECK(has(s, "model_state.lstm.weight", gd_dims(4, 6), count_up()));
    CHECK(has(s, "model_state.same", gd_dims(4, 6), count_up()));
    HAS(s, "model_state.lstm.bias", gd_dims(3), 0.25, -1, 3);
    HAS(s, "model_state.transposed", gd_dims(6, 4), 0, 6, 12, 18, 1, 7, 13, 19, 2, 8, 14, 20, 3, 9,
        15, 21, 4, 10, 16, 22, 5, 11, 17, 23);
    HAS(s, "model_state.column", gd_dims(4), 1, 7, 13, 19);
    HAS(s, "model_state.corner", gd_dims(2, 3), 8, 9, 10, 14, 15, 16);
    HAS(s, "model_state.strided", gd_dims(2, 2), 0, 3, 12, 15);
    HAS(s, "model_state.expanded", gd_dims(2, 3), 7, 7, 7, 7, 7, 7);
    HAS(s, "model_state.empty", gd_dims(2, 0, 3), 0);
    HAS(s, "model_state.number", gd_shape_of(0, NULL), 42.5);
    static const struct {
        const char *name;
        gd_dtype dtype;
        double values[4];
        int count;
    } dtypes[] = {{"f64", GD_F64, {0, 1, -2, 0.5}, 4},
                  {"f16", GD_F16, {0, 1, -2, 0.5}, 4},
                  {"bf16", GD_BF16, {0, 1, -2, 0.5}, 4},
                  {"i64", GD_I64, {-1, 0x1p40}, 2},
                  {"i32", GD_I32, {-1, 0x1p30}, 2},
                  {"i8", GD_I8, {-128, 127}, 2},
                  {"u8", GD_U8, {0, 255}, 2},
                  {"bool", GD_BOOL, {1, 0, 1}, 3}};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        char name[32];
        snprintf(name, sizeof name, "dtypes.%s", dtypes[i].name);
        CHECK_SAYING(has(s, name, gd_dims(dtypes[i].count), dtypes[i].values) &&
                         dtype_of(s, name) == dtypes[i].dtype,
                     "%s of %s", name, path);
    }
    HAS(s, "optimizer.state.0.step", gd_shape_of(0, NULL), 3);
    CHECK(is_value(s, "optimizer.param_groups.0.lr", "0.1") &&
          is_value(s, "optimizer.param_groups.0.betas.1", "0.999") && is_value(s, "epoch", "7") &&
          is_value(s, "name",
                   "Gr\xc3\xb6\xc3\x9f"
                   "e") &&
          is_value(s, "best", "inf") && is_value(s, "done", "false") &&
          is_value(s, "shape.1", "3"));
    CHECK(!gd_state_value(s, "none") && !gd_state_value(s, "large") && gd_state_count(s) == 19);
}

CLEAN_TEST(checkpoints_of_both_forms_and_all_protocols_have_their_values) {
    static const char *const forms[] = {"archive", "older"};
    for (int form = 0; form < 2; form++)
        for (int protocol = 2; protocol <= 5; protocol++) {
            char path[500];
            snprintf(path, sizeof path, GRADUS_GOLDEN "/pytorch/%s_%d.pt", forms[form], protocol);
            check_checkpoint(path);
        }
}

/* The names of the state dict, not of other attributes; tied modules under both names. */
CLEAN_TEST(a_whole_module_of_any_class_is_its_state_dict) {
    static const char *const paths[] = {GOLDEN("module.pt"), GOLDEN("module_older.pt")};
    for (int i = 0; i < 2; i++) {
        GD_SCOPE;
        const char *path = paths[i];
        gd_state *s = gd_read_state(path);
        CHECK_SAYING(s && gd_state_count(s) == 10, "%s: %s", path, gd_error_message());
        if (!s) continue;
        CHECK(has(s, "conv.weight", gd_dims(2, 1, 3, 3), count_up()) &&
              has(s, "tied.weight", gd_dims(2, 1, 3, 3), count_up()));
        HAS(s, "conv.bias", gd_dims(2), 0, 1);
        HAS(s, "scale", gd_dims(2), 0, 1);
        HAS(s, "norm.running_var", gd_dims(2), 0, 1);
        HAS(s, "norm.num_batches_tracked", gd_shape_of(0, NULL), 0);
        CHECK(!gd_state_find(s, "scratch") && gd_state_value_count(s) == 0);
    }
}

CLEAN_TEST(a_torchscript_archive_has_the_names_of_its_modules) {
    GD_SCOPE;
    const char *path = GOLDEN("script.pt");
    gd_state *s = gd_read_state(path);
    CHECK_SAYING(s != NULL, "%s", gd_error_message());
    if (!s) return;
    CHECK(has(s, "conv.weight", gd_dims(2, 1, 3, 3), count_up()));
    HAS(s, "norm.running_var", gd_dims(2), 0, 1);
    HAS(s, "scale", gd_dims(2), 0, 1);
}

CLEAN_TEST(numpy_arrays_and_scalars_in_pickles_are_read) {
    static const char *const paths[] = {GOLDEN("numpy_2.pt"), GOLDEN("numpy_5.pt")};
    for (int i = 0; i < 2; i++) {
        GD_SCOPE;
        gd_tensor *row = gd_zeros(gd_dims(2, 3)), *column = gd_zeros(gd_dims(2, 3)),
                  *big = gd_zeros(gd_dims(2, 3)), *ints = gd_zeros(gd_dims(4), .dtype = GD_I64),
                  *tensor = gd_zeros(gd_dims(2));
        CHECK_SAYING(gd_load_state(paths[i], gd_part("row", row), gd_part("column", column),
                                   gd_part("big", big), gd_part("ints", ints),
                                   gd_part("tensor", tensor)) == GD_OK,
                     "%s", gd_error_message());
        for (int k = 0; k < 6; k++)
            CHECK(gd_item(gd_at(row, k / 3, k % 3)) == k &&
                  gd_item(gd_at(column, k / 3, k % 3)) == k &&
                  gd_item(gd_at(big, k / 3, k % 3)) == k);
        CHECK(gd_item(gd_at(ints, 3)) == 3 && gd_item(gd_at(tensor, 1)) == 1);
        gd_state_list list;
        CHECK(gd_state_list_open(&list, paths[i]) == GD_OK);
        int found = 0;
        for (size_t k = 0; k < list.source.n_values; k++) {
            const gd_source_value *v = &list.source.values[k];
            found += strcmp(v->name, "scalar") == 0 && strcmp(v->text, "0.1") == 0;
            found += strcmp(v->name, "count") == 0 && strcmp(v->text, "-5") == 0;
        }
        CHECK(found == 2);
        gd_state_list_close(&list);
        gd_tensor *text = gd_zeros(gd_dims(2));
        CHECK(gd_load_state(paths[i], gd_part("text", text)) != GD_OK &&
              says("text (a NumPy array of a dtype that no tensor has"));
        gd_clear_error();
    }
}

CLEAN_TEST(an_archive_of_the_other_byte_order_has_the_same_values) {
    GD_SCOPE;
    const char *path = GOLDEN("big.pt");
    gd_state *s = gd_read_state(path);
    CHECK_SAYING(s != NULL, "%s", gd_error_message());
    if (!s) return;
    HAS(s, "a", gd_dims(2), 1, -2.5);
    HAS(s, "b", gd_dims(3, 2), 0, 3, 1, 4, 2, 5);
    HAS(s, "c", gd_dims(1), 1);
}

CLEAN_TEST(a_file_of_one_tensor_has_the_name_tensor) {
    GD_SCOPE;
    gd_tensor *t = gd_zeros(gd_dims(5), .dtype = GD_I64);
    CHECK(gd_load_state(GOLDEN("one.pt"), gd_part("tensor", t)) == GD_OK &&
          gd_item(gd_at(t, 4)) == 4);
}

CLEAN_TEST(tensors_that_cannot_be_read_are_refused_by_name_when_they_are_asked_for) {
    static const struct {
        const char *name, *says;
    } cases[] = {{"sparse", "a sparse tensor"},
                 {"csr", "a sparse tensor"},
                 {"complex", "complex64"},
                 {"quantized", "a quantized tensor"},
                 {"short", "int16"},
                 {"meta", "a meta tensor"},
                 {"f8", "float8_e4m3fn"},
                 {"u16", "uint16"},
                 {"negative", "the negative bit"},
                 {"nested", "a nested tensor"}};
    static const char *const paths[] = {GOLDEN("odd.pt"), GOLDEN("odd_older.pt")};
    for (int i = 0; i < 2; i++) {
        GD_SCOPE;
        gd_tensor *good = gd_zeros(gd_dims(3)), *other = gd_zeros(gd_dims(2));
        CHECK_SAYING(gd_load_state(paths[i], gd_part("good", good)) == GD_OK &&
                         gd_item(gd_at(good, 2)) == 3,
                     "%s", gd_error_message());
        for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
            if (i && (k == 6 || k == 7)) continue;
            CHECK_SAYING(gd_load_state(paths[i], gd_part("good", good),
                                       gd_part(cases[k].name, other)) != GD_OK &&
                             says(cases[k].name) && says(cases[k].says),
                         "%s: %s", cases[k].name, gd_error_message());
            gd_clear_error();
        }
        CHECK(gd_read_state(paths[i]) == NULL && says("'sparse' is a sparse tensor"));
        gd_clear_error();
    }
}

CLEAN_TEST(arrays_of_npz_files_are_loaded_by_name) {
    GD_SCOPE;
    const char *path = temp_path("w.npz"), *const names[] = {"net.weight", "net.bias"};
    CHECK(gd_save_npz(path, names, gd_list(gd_full(gd_dims(2, 3), 0.5), gd_ones(gd_dims(3)))) ==
          GD_OK);
    gd_tensor *w = gd_zeros(gd_dims(2, 3), .dtype = GD_F64), *b = gd_zeros(gd_dims(3));
    CHECK_SAYING(gd_load_state_with(path, gd_parts(gd_part("weight", w), gd_part("bias", b)),
                                    .prefix = "net.") == GD_OK,
                 "%s", gd_error_message());
    CHECK(gd_item(gd_at(w, 1, 2)) == 0.5 && gd_item(gd_at(b, 1)) == 1);
    size_t bytes;
    uint8_t *data = file_read(path, &bytes);
    data[200] ^= 1; /* an element: its checksum fails before anything is written */
    file_write(path, data, bytes);
    gd_mul_(w, 0);
    CHECK(gd_load_state_with(path, gd_parts(gd_part("weight", w), gd_part("bias", b)),
                             .prefix = "net.") == GD_E_FORMAT &&
          says("is damaged") && gd_item(gd_at(w, 0, 0)) == 0);
    free(data);
}

/* --- names ------------------------------------------------------------------------------------ */

CLEAN_TEST(the_one_prefix_that_fits_is_named) {
    GD_SCOPE;
    const char *path = GOLDEN("module_dict.pt");
    gd_module *conv = gd_nn_conv2d(1, 2, 3);
    CHECK(gd_load_state(path, gd_part("", conv)) != GD_OK && says("missing weight, bias") &&
          !says("all fit")); /* conv and tied both fit */
    gd_clear_error();
    gd_module *norm = gd_nn_batch_norm2d(2);
    CHECK_SAYING(gd_load_state(path, gd_part("", norm)) != GD_OK &&
                     says("all fit with .prefix = \"state_dict.module.norm.\""),
                 "%s", gd_error_message());
    gd_clear_error();
    CHECK(gd_load_state(path, gd_part("norm", norm)) != GD_OK &&
          says("all fit as gd_part(\"state_dict.module.norm\", ...)"));
    gd_clear_error();
    CHECK_SAYING(gd_load_state(path, gd_part("state_dict.module.norm", norm)) == GD_OK, "%s",
                 gd_error_message());
    CHECK_SAYING(gd_load_state_with(path, gd_parts(gd_part("", norm)),
                                    .prefix = "state_dict.module.norm.") == GD_OK,
                 "%s", gd_error_message());
}

CLEAN_TEST(names_are_replaced_by_rules) {
    GD_SCOPE;
    const char *path = GOLDEN("module_dict.pt");
    gd_tensor *w = gd_zeros(gd_dims(2, 1, 3, 3)), *s = gd_zeros(gd_dims(2));
    CHECK_SAYING(gd_load_state_with(path, gd_parts(gd_part("a.weight", w), gd_part("factor", s)),
                                    .prefix = "state_dict.",
                                    .names = "module.conv.*=a.*, module.scale=factor, *=") == GD_OK,
                 "%s", gd_error_message());
    CHECK(gd_item(gd_at(w, 1, 0, 2, 2)) == 17 && gd_item(gd_at(s, 1)) == 1);
    gd_mul_(w, 0);
    CHECK(gd_load_state_with(path, gd_parts(gd_part("state_dict.module.conv.kernel", w)),
                             .names = "*.weight=*.kernel,") == GD_OK &&
          gd_item(gd_at(w, 1, 0, 2, 2)) == 17);
    static const struct {
        const char *names, *says;
    } wrong[] = {{"conv", "'conv' has no '='"},
                 {"=a", "nothing before its '='"},
                 {"a.*.*=b", "more than one *"},
                 {"a=*", "a * only after"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_SAYING(gd_load_state_with(path, gd_parts(gd_part("x", w)), .names = wrong[i].names) ==
                             GD_E_ARGUMENT &&
                         says(wrong[i].says),
                     "%s", gd_error_message());
        gd_clear_error();
    }
}

/* --- other files ------------------------------------------------------------------------------ */

static char message[600]; /* that was not expected */

static bool refuses(const char *bytes, size_t n, const char *part) {
    const char *path = temp_path("net.pth");
    file_write(path, bytes, n);
    const bool failed = gd_read_state(path) == NULL && says("net.pth: ") && says(part);
    if (!failed) snprintf(message, sizeof message, "%s", gd_error_message());
    gd_clear_error();
    unlink(path);
    return failed;
}

CLEAN_TEST(files_that_are_no_weights_say_what_they_are) {
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "is an empty file (0 bytes)"},
        {"\n <!DOCTYPE html><html>", "is a web page"},
        {"<HTML><head>", "is a web page"},
        {"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 5\n", "git lfs pull"},
        {"\x1f\x8b\x08", "is compressed with gzip"},
        {"\x89HDF\r\n\x1a\n", "is an HDF5 file"},
        {"PK\3\4 and so on, without an end", "was the download or the copy cut"},
        {"hello, this is a text", "is not a safetensors file"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_SAYING(refuses(cases[i].text, strlen(cases[i].text), cases[i].says), "case %zu: %s",
                     i, message);
    char tar[512] = "net.pt";
    memcpy(tar + 257, "ustar", 5);
    CHECK(refuses(tar, sizeof tar, "is a tar archive"));
    const char *folder = temp_new_folder("saved");
    char file[600];
    CHECK(gd_read_state(folder) == NULL && says("is a folder"));
    gd_clear_error();
    snprintf(file, sizeof file, "%s/saved_model.pb", folder);
    file_write_text(file, "x");
    CHECK(gd_read_state(folder) == NULL && says("SavedModel") && says("tf2onnx"));
    gd_clear_error();
}

CLEAN_TEST(files_that_were_cut_say_so) {
    static const char *const paths[] = {GOLDEN("archive_2.pt"), GOLDEN("older_2.pt"),
                                        GOLDEN("older_5.pt")};
    for (int i = 0; i < 3; i++) {
        size_t bytes;
        char *data = file_read(paths[i], &bytes);
        for (size_t n = 64; n < bytes; n += 97)
            CHECK_SAYING(refuses(data, n, "cut?") || refuses(data, n, "truncated"), "%s at %zu",
                         paths[i], n);
        free(data);
    }
}

/* --- hostile files ---------------------------------------------------------------------------- */

/* Replaces all occurrences of some bytes by as many others. */
static int replace(char *data, size_t bytes, const char *old, const char *new, size_t n) {
    int count = 0;
    for (size_t i = 0; i + n <= bytes; i++)
        if (memcmp(data + i, old, n) == 0) {
            memcpy(data + i, new, n);
            count++;
        }
    return count;
}

static gd_state *read_changed(const char *golden, const char *old, const char *new, size_t n) {
    const char *path = temp_path("changed.pt");
    size_t bytes;
    char *data = file_read(golden, &bytes);
    CHECK(replace(data, bytes, old, new, n) > 0);
    file_write(path, data, bytes);
    free(data);
    gd_state *s = gd_read_state(path);
    unlink(path);
    return s;
}
#define CHANGED(golden, old, new) read_changed(golden, old, new, sizeof old - 1)

CLEAN_TEST(storages_and_strides_outside_of_their_memory_fail) {
    GD_SCOPE;
    /* the sizes (5,) of one.pt: K 5, TUPLE1 */
    CHECK(CHANGED(GOLDEN("one.pt"), "K\x05\x85", "K\x06\x85") == NULL &&
          says("the tensor 'tensor' is wrong: its offset, sizes and strides leave its storage"));
    gd_clear_error();
    CHECK(CHANGED(GOLDEN("one.pt"), "K\x01\x85", "K\x02\x85") == NULL && says("leave its storage"));
    gd_clear_error();
    CHECK(CHANGED(GOLDEN("one.pt"), "K\x00K\x05", "K\x01K\x05") == NULL &&
          says("leave its storage"));
    gd_clear_error();
}

CLEAN_TEST(missing_storages_and_two_entries_of_one_name_fail) {
    GD_SCOPE;
    CHECK(CHANGED(GOLDEN("one.pt"), "one/data/0", "one/data/1") == NULL &&
          says("the storage '0' of a tensor is missing"));
    gd_clear_error();
    CHECK(CHANGED(GOLDEN("archive_2.pt"), "/data/9", "/data/8") == NULL &&
          says("two entries are named 'archive_2/data/8'"));
}

/* A file in the older form with this object, and a storage "0" of one float. */
static const char *older_with(const char *object, size_t bytes, bool has_storage) {
    static const char head[] = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."
                               "\x80\x02M\xe9\x03.\x80\x02}.";
    static const char none[] = "\x80\x02].", one[] = "\x80\x02]U\x01"
                                                     "0a.\1\0\0\0\0\0\0\0\0\0\x80?";
    const char *path = temp_path("hostile.pt"), *tail = has_storage ? one : none;
    const size_t begin = sizeof head - 1, after = (has_storage ? sizeof one : sizeof none) - 1;
    char *all = malloc(begin + bytes + after);
    memcpy(all, head, begin);
    memcpy(all + begin, object, bytes);
    memcpy(all + begin + bytes, tail, after);
    file_write(path, all, begin + bytes + after);
    free(all);
    return path;
}
#define OLDER(object) older_with(object, sizeof object - 1, false)

CLEAN_TEST(nothing_in_a_pickle_is_executed) {
    GD_SCOPE;
    const char *proof = temp_path("executed");
    char object[1200];
    const int n = snprintf(object, sizeof object,
                           "}(U\x01"
                           "acos\nsystem\n(X%c%c%c%ctouch %stRU\x01"
                           "bc__builtin__\n__import__\n(U\x02ostRU\x01wK\x05u.",
                           (int)strlen(proof) + 6, 1, 1, 1, proof);
    for (char *p = object; p < object + n; p++)
        if (*p == 'X') {
            p[2] = p[3] = p[4] = 0;
            break;
        }
    gd_state *s = gd_read_state(older_with(object, (size_t)n, false));
    CHECK_SAYING(s && is_value(s, "w", "5") && gd_state_count(s) == 0, "%s", gd_error_message());
    CHECK(!file_exists(proof));
}

CLEAN_TEST(objects_that_contain_themselves_are_listed_once) {
    GD_SCOPE;
    /* d = {"n": 5, "d": d, "l": [l, d]} */
    gd_state *s = gd_read_state(OLDER("}q\x00(U\x01nK\x05U\x01"
                                      "dh\x00U\x01l]q\x01(h\x01h\x00"
                                      "eu."));
    CHECK_SAYING(s && gd_state_value_count(s) == 1 && is_value(s, "n", "5"), "%s",
                 gd_error_message());
    /* a parameter of itself */
    CHECK(gd_read_state(OLDER("ctorch._utils\n_rebuild_parameter\n)Rq\x00.")) != NULL);
}

/* Lists of the lists before them: 2^40 names. */
CLEAN_TEST(a_memo_bomb_fails_soon) {
    char object[400] = "]q";
    size_t n = 3;
    object[n++] = 'K', object[n++] = 1, object[n++] = 'a';
    for (int i = 0; i < 40; i++) {
        memcpy(object + n, "](h\0h\0eq\0", 9);
        object[n + 3] = object[n + 5] = (char)i;
        object[n + 8] = (char)(i + 1);
        n += 9;
    }
    object[n++] = '.';
    CHECK(gd_read_state(older_with(object, n, false)) == NULL &&
          says("far more often than it has them"));
}

/* A float with a stride of 0, 2^30 times. */
CLEAN_TEST(a_view_that_is_far_larger_than_its_file_becomes_no_new_tensor) {
    GD_SCOPE;
    static const char object[] = "ctorch._utils\n_rebuild_tensor_v2\n((U\x07storagectorch\n"
                                 "FloatStorage\nU\x01"
                                 "0U\x03"
                                 "cpuK\x01NtQK\0J\0\0\0@\x85K\0\x85\x89NtR.";
    const char *path = older_with(object, sizeof object - 1, true);
    CHECK(gd_read_state(path) == NULL &&
          says("its tensors up to 'tensor' are views that would take far more memory"));
    gd_clear_error();
    gd_tensor *t = gd_zeros(gd_dims(4));
    CHECK(gd_load_state(path, gd_part("tensor", t)) == GD_E_SHAPE && says("f32[1073741824]"));
}

CLEAN_TEST(a_compressed_archive_is_refused) {
    GD_SCOPE;
    const char *golden = GOLDEN("one.pt"), *path = temp_path("packed.pt");
    size_t bytes;
    char *data = file_read(golden, &bytes);
    for (size_t i = 0; i + 12 < bytes; i++) { /* the method: stored becomes deflated */
        if (memcmp(data + i, "PK\1\2", 4) == 0) data[i + 10] = 8;
        if (memcmp(data + i, "PK\3\4", 4) == 0) data[i + 8] = 8;
    }
    file_write(path, data, bytes);
    free(data);
    CHECK(gd_read_state(path) == NULL && says("is compressed, which PyTorch does not do"));
}

CLEAN_TEST(loads_work_with_any_allocation_failing) {
    static const char *const paths[] = {GOLDEN("archive_4.pt"), GOLDEN("older_2.pt"),
                                        GOLDEN("numpy_5.pt")};
    for (int i = 0; i < 3; i++)
        for (fault_walk w = {.what = paths[i], .stride = 1, .dense = 20}; fault_next(&w);) {
            GD_SCOPE;
            gd_tensor *t = gd_full(i == 2 ? gd_dims(2, 3) : gd_dims(6, 4), 9);
            fault_begin(&w);
            const gd_status status =
                gd_load_state(paths[i], gd_part(i == 2 ? "column" : "model_state.transposed", t));
            fault_end(&w);
            CHECK_FAULT(&w, status);
            CHECK(gd_item(gd_at(t, 1, 1)) == (status != GD_OK ? 9 : i == 2 ? 4 : 7));
            gd_clear_error();
        }
}

/* --- short form of fuzz/fuzz_pytorch.c ---------------------------------------------------------- */

CLEAN_TEST(damaged_files_fail_or_are_read_completely) {
    static const char *const paths[] = {GOLDEN("archive_4.pt"), GOLDEN("older_2.pt"),
                                        GOLDEN("older_5.pt"),   GOLDEN("numpy_2.pt"),
                                        GOLDEN("odd.pt"),       GOLDEN("module_older.pt"),
                                        GOLDEN("script.pt")};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        size_t bytes;
        char *data = file_read(paths[i], &bytes);
        CHECK(data != NULL);
        run_damaged(LLVMFuzzerTestOneInput, data, bytes, 3000);
        if (bytes < 3000) run_cut(LLVMFuzzerTestOneInput, data, bytes);
        free(data);
    }
}

TEST_MAIN
