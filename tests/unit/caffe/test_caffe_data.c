/* test_caffe_data.c - data layers as one stream of batches (caffe/data.h), with databases that the
 * test writes. data_against_caffe.py compares batches with Caffe itself. */
#include <sys/stat.h>

#include "caffe/picture.h"
#include "data_layers.h"
#include "fault_walk.h"
#include "format/lmdb.h"
#include "fuzz/damage.h"

#define LLVMFuzzerTestOneInput fuzz_datum
#include "fuzz/fuzz_datum.c"
#undef LLVMFuzzerTestOneInput

#define DATA(name, source, batch, more)                                                 \
    "layer { name: '" name "' type: 'Data' top: '" name "' top: '" name "_label' " more \
    " data_param { source: '" source "' batch_size: " #batch " } }\n"

CLEAN_TEST(batches_run_on_across_the_end_of_the_data) {
    if (!gd_lmdb_is_built()) SKIP("built without liblmdb");
    GD_SCOPE;
    write_images("db", 10);
    for (int workers = 0; workers < 4; workers += 3) {
        const gd_caffe_data_options options = {.workers = workers, .batches = workers};
        gd_caffe_data *data = open_layers(DATA("d", "db", 4, ""), GD_CAFFE_TRAIN, &options);
        CHECK(gd_caffe_data_tops(data) == 2 && strcmp(gd_caffe_data_top(data, 1), "d_label") == 0);
        const gd_shape shape = gd_caffe_data_shape(data, 0);
        CHECK(shape.rank == 4 && shape.at[0] == 4 && shape.at[1] == 2 && shape.at[3] == 6);
        CHECK(gd_loader_targets(gd_caffe_data_loader(data)) == 0);
        for (int n = 0; n < 7; n++) {
            gd_tensors batch = next_batch(data);
            CHECK(batch.count == 2);
            for (int i = 0; i < 4; i++) {
                const int64_t sample = (4 * n + i) % 10;
                CHECK(value_at(batch.at[1], i) == 10.f * (float)sample);
                CHECK(value_at(batch.at[0], 60 * i + 44) == (float)pixel(sample, 1, 2, 2));
            }
        }
    }
}

/* The state of a loader after `from` batches, loaded into another one, gives the same batches. */
static void check_resumed(const char *text, const gd_caffe_data_options *options, int from) {
    GD_SCOPE;
    gd_caffe_data *first = open_layers(text, GD_CAFFE_TRAIN, options);
    gd_caffe_data_options other = *options;
    other.seed = 99; /* the state has the seed */
    for (int n = 0; n < from; n++) next_batch(first);
    const char *path = temp_path("state.gd");
    CHECK(gd_save_state(path, gd_part("loader", gd_caffe_data_loader(first))) == GD_OK);
    gd_caffe_data *second = open_layers(text, GD_CAFFE_TRAIN, &other);
    CHECK(gd_load_state(path, gd_part("loader", gd_caffe_data_loader(second))) == GD_OK);
    for (int n = 0; n < 8; n++) {
        gd_tensors a = next_batch(first), b = next_batch(second);
        for (int k = 0; k < a.count; k++) CHECK(same_bits(a.at[k], b.at[k]));
    }
}

CLEAN_TEST(a_loaded_state_continues_with_the_same_batches) {
    if (!gd_lmdb_is_built()) SKIP("built without liblmdb");
    GD_SCOPE;
    write_images("db", 10);
    static const char text[] = DATA(
        "d", "db", 4,
        "transform_param { crop_size: 3 mirror: true }") "layer { name: 'x' type: 'DummyData' top: "
                                                         "'x' dummy_data_param { shape { dim: 3 "
                                                         "dim: 2 } "
                                                         "data_filler { type: 'gaussian' } } }";
    for (int from = 0; from < 8; from += 7)
        for (int64_t batches = 0; batches < 4; batches += 3)
            check_resumed(text, &(gd_caffe_data_options){.seed = 5, .batches = batches}, from);
    check_resumed(text, &(gd_caffe_data_options){.seed = 5, .dummy = "d=4,4 d_label=7"}, 3);
}

/* --- transforms ------------------------------------------------------------------------------- */

/* Which crop of 3 x 3 of an image it is, as (mirrored, top, left) in one number; -1: none. */
static int find_crop(gd_tensor *batch, int row, int64_t sample) {
    for (int at = 0; at < 2 * 3 * 4; at++) {
        const int mirrored = at / 12, top = at / 4 % 3, left = at % 4;
        bool same = true;
        for (int k = 0; k < 18 && same; k++) {
            const int y = k / 3 % 3, x = mirrored ? 2 - k % 3 : k % 3;
            same = value_at(batch, 18 * row + k) ==
                   ((float)pixel(sample, k / 9, top + y, left + x) - 7.f) * 0.5f;
        }
        if (same) return at;
    }
    return -1;
}

#define CROP "transform_param { crop_size: 3 mirror: true scale: 0.5 mean_value: 7 }"

CLEAN_TEST(crops_are_random_in_training_and_in_the_middle_in_tests) {
    if (!gd_lmdb_is_built()) SKIP("built without liblmdb");
    GD_SCOPE;
    int seen[24] = {0}, mirrored = 0, same = 0, before[10] = {0};
    write_images("db", 10);
    gd_caffe_data *data = open_layers(DATA("d", "db", 10, CROP), GD_CAFFE_TRAIN, NULL);
    for (int n = 0; n < 60; n++) {
        GD_SCOPE;
        gd_tensors batch = next_batch(data);
        for (int i = 0; i < 10; i++) {
            const int at = find_crop(batch.at[0], i, i);
            CHECK(at >= 0);
            if (at < 0) return;
            seen[at]++;
            same += n && before[i] == at;
            before[i] = at;
        }
    }
    for (int at = 0; at < 24; at++) CHECK_SAYING(seen[at] > 5 && seen[at] < 60, "%d", seen[at]);
    CHECK_SAYING(same < 60, "%d of 590 crops are those of the batch before", same);
    data = open_layers(DATA("d", "db", 10, CROP), GD_CAFFE_TEST, NULL);
    for (int n = 0; n < 40; n++) {
        gd_tensors batch = next_batch(data);
        for (int i = 0; i < 10; i++) {
            const int at = find_crop(batch.at[0], i, i);
            CHECK(at % 12 == 4 + 1); /* top 1, left 1 */
            mirrored += at / 12;
        }
    }
    CHECK_SAYING(mirrored > 140 && mirrored < 260, "%d of 400 are mirrored", mirrored);
}

/* --- images ----------------------------------------------------------------------------------- */

static void write_list(const char *name, int count) {
    FILE *f = fopen(temp_path("%s.txt", name), "w");
    for (int i = 0; i < count; i++) {
        uint8_t file[40] = "P6 2 1 255 ";
        for (int k = 0; k < 6; k++) file[11 + k] = (uint8_t)(10 * i + k);
        char image[40];
        snprintf(image, sizeof image, "my image %d.ppm", i);
        temp_write(image, file, 17);
        fprintf(f, "%s %d\n", image, i - 2);
    }
    fclose(f);
}

#define IMAGES(more)                                                                    \
    "layer { name: 'i' type: 'ImageData' top: 'i' top: 'l' image_data_param { source: " \
    "'list.txt' " more " } }"

CLEAN_TEST(listed_images_are_bgr_and_shuffled_anew_in_each_pass) {
    GD_SCOPE;
    write_list("list", 7);
    gd_caffe_data *data = open_layers(IMAGES("batch_size: 7"), GD_CAFFE_TRAIN, NULL);
    gd_tensors batch = next_batch(data);
    static const float first[] = {2, 5, 1, 4, 0, 3}; /* blue, green, red */
    for (int k = 0; k < 6; k++) CHECK(value_at(batch.at[0], k) == first[k]);
    for (int i = 0; i < 7; i++) CHECK(value_at(batch.at[1], i) == (float)(i - 2));
    data = open_layers(IMAGES("batch_size: 7 shuffle: true"), GD_CAFFE_TRAIN, NULL);
    float orders[4][7];
    int equal = 0;
    for (int pass = 0; pass < 4; pass++) {
        unsigned seen = 0;
        batch = next_batch(data);
        for (int i = 0; i < 7; i++) {
            orders[pass][i] = value_at(batch.at[1], i);
            seen |= 1u << (int)(orders[pass][i] + 2);
            CHECK(value_at(batch.at[0], 6 * i) == 10 * (orders[pass][i] + 2) + 2);
        }
        CHECK(seen == 127);
        equal += pass && memcmp(orders[pass], orders[0], sizeof orders[0]) == 0;
    }
    CHECK(equal == 0);
    /* rand_skip begins with one of the first three, and goes on from there */
    unsigned begins = 0;
    for (uint64_t seed = 0; seed < 30; seed++) {
        GD_SCOPE;
        data = open_layers(IMAGES("batch_size: 5 rand_skip: 3"), GD_CAFFE_TRAIN,
                           &(gd_caffe_data_options){.seed = seed});
        batch = next_batch(data);
        const int begin = (int)value_at(batch.at[1], 0) + 2;
        begins |= 1u << begin;
        for (int i = 0; i < 5; i++) CHECK(value_at(batch.at[1], i) == (float)((begin + i) % 7 - 2));
    }
    CHECK(begins == 7);
}

/* --- data of the program ---------------------------------------------------------------------- */

CLEAN_TEST(a_program_gives_the_arrays_of_memory_data_and_input_layers) {
    GD_SCOPE;
    static const char text[] =
        "layer { name: 'm' type: 'MemoryData' top: 'a' top: 'b' memory_data_param { batch_size: 2 "
        "channels: 1 height: 1 width: 3 } }\n"
        "layer { name: 'in' type: 'Input' top: 'x' input_param { shape { dim: 1 dim: 2 } } }";
    const char *lacking;
    gd_tensors batch;
    gd_caffe_data *data = open_layers(text, GD_CAFFE_TEST, NULL);
    CHECK(gd_caffe_data_tops(data) == 3 && gd_caffe_data_shape(data, 2).at[1] == 2);
    CHECK(gd_caffe_data_lacks(data, &lacking) && strcmp(lacking, "m") == 0);
    CHECK(!gd_loader_next(gd_caffe_data_loader(data), &batch));
    CHECK(says("layer 'm' (MemoryData): its data are not given"));
    gd_clear_error();
    gd_tensor *a = gd_arange(0, 18), *b = gd_arange(0, 6, .dtype = GD_I64);
    a = gd_reshape(a, gd_dims(6, 1, 1, 3));
    gd_status status = gd_caffe_data_give(data, "m", gd_list(a, gd_zeros(gd_dims(4))));
    CHECK(status == GD_E_SHAPE && strstr(gd_latest_failure(), "'a' has 3 batches, and 'b' 2"));
    status = gd_caffe_data_give(data, "m", gd_list(gd_zeros(gd_dims(5, 1, 1, 3)), b));
    CHECK(status == GD_E_SHAPE && strstr(gd_latest_failure(), "a batch is [2,1,1,3]"));
    CHECK(gd_caffe_data_give(data, "m", gd_list(a)) == GD_E_ARGUMENT);
    CHECK(gd_caffe_data_give(data, "q", gd_list(a)) == GD_E_ARGUMENT);
    CHECK(gd_caffe_data_give(data, "m", gd_list(a, b)) == GD_OK);
    CHECK(gd_caffe_data_lacks(data, &lacking) && strcmp(lacking, "in") == 0);
    const gd_caffe_arrays arrays[] = {
        {"other", gd_list(b)}, {"m", gd_list(a, b)}, {NULL, {NULL, 0}}};
    gd_caffe_data *second =
        open_layers(text, GD_CAFFE_TEST, &(gd_caffe_data_options){.arrays = arrays});
    CHECK(gd_caffe_data_lacks(second, &lacking) && strcmp(lacking, "in") == 0);
    const gd_caffe_arrays few[] = {{"m", gd_list(a)}, {NULL, {NULL, 0}}};
    CHECK(fails_saying(text, &(gd_caffe_data_options){.arrays = few},
                       "layer 'm' (MemoryData): it has 2 tops, and 1 arrays are given"));
    CHECK(gd_caffe_data_give(data, "in", gd_list(gd_ones(gd_dims(2, 2)))) == GD_OK);
    CHECK(!gd_caffe_data_lacks(data, &lacking));
    gd_loader_seek(gd_caffe_data_loader(data), ((gd_loader_position){0, 0}));
    for (int n = 0; n < 5; n++) {
        batch = next_batch(data);
        CHECK(value_at(batch.at[0], 5) == (float)(n % 3 * 6 + 5));
        CHECK(value_at(batch.at[1], 1) == (float)(n % 3 * 2 + 1));
        CHECK(value_at(batch.at[2], 1) == 1);
    }
}

CLEAN_TEST(a_solver_trains_with_arrays_of_the_program) {
    GD_SCOPE;
    file_write_text(net_path(),
                    "layer { name: 'm' type: 'MemoryData' top: 'x' top: 'y' memory_data_param { "
                    "batch_size: 4 channels: 2 height: 1 width: 1 } }\n"
                    "layer { name: 'ip' type: 'InnerProduct' bottom: 'x' top: 'ip' "
                    "inner_product_param { num_output: 2 } }\n"
                    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'y' top: "
                    "'loss' }\n");
    const char *solver =
        temp_write_text("solver.prototxt", "net: 'net.prototxt' base_lr: 0.5 lr_policy: 'fixed' "
                                           "max_iter: 60 snapshot_after_train: false display: 20");
    const float x[] = {1, 0, 0, 1, 1, 0, 0, 1}, y[] = {0, 1, 0, 1};
    const gd_caffe_arrays arrays[] = {{"m", gd_list(gd_from_array(gd_dims(4, 2, 1, 1), GD_F32, x),
                                                    gd_from_array(gd_dims(4), GD_F32, y))},
                                      {NULL, {NULL, 0}}};
    gd_history *h = gd_caffe_train(solver, .arrays = arrays);
    CHECK_SAYING(h, "%s", gd_error_message());
    const double loss = h ? gd_history_last(h, "loss") : 1;
    CHECK_SAYING(loss < 0.4, "%g", loss);
    CHECK(!gd_caffe_train(solver) && says("layer 'm' (MemoryData): its data are not given"));
    gd_clear_error();
}

CLEAN_TEST(random_data_take_the_place_of_layers_that_are_named) {
    GD_SCOPE;
    static const char text[] = DATA("d", "nowhere", 50, "") DATA("e", "nowhere", 2, "");
    const gd_caffe_data_options options = {.dummy = "d=3,4 d_label=9 e=5"};
    gd_caffe_data *data = open_layers(text, GD_CAFFE_TRAIN, &options);
    CHECK(gd_caffe_data_shape(data, 0).rank == 3 && gd_caffe_data_shape(data, 0).at[0] == 50);
    CHECK(gd_caffe_data_shape(data, 1).rank == 1 && gd_caffe_data_shape(data, 2).at[1] == 5);
    gd_tensors batch = next_batch(data);
    double sum = 0, squares = 0;
    unsigned classes = 0;
    for (int i = 0; i < 600; i++) {
        const double v = (double)value_at(batch.at[0], i);
        sum += v;
        squares += v * v;
    }
    for (int i = 0; i < 50; i++) classes |= 1u << (int)value_at(batch.at[1], i);
    CHECK(sum / 600 > -0.2 && sum / 600 < 0.2 && squares / 600 > 0.8 && squares / 600 < 1.2);
    CHECK(classes == 511);
    CHECK(value_at(batch.at[3], 0) == 0 || value_at(batch.at[3], 0) == 1);
    gd_tensor *first = gd_clone(batch.at[0]);
    batch = next_batch(data);
    CHECK(!same_bits(first, batch.at[0]));
    CHECK(fails_saying(
        text, &(gd_caffe_data_options){.dummy = "f=3"},
        "no data layer has a top that 'f=3' names; their tops are d, d_label, e, e_label"));
    CHECK(fails_saying(text, &(gd_caffe_data_options){.dummy = "d=3,x"},
                       "'d=3,x' is no random data"));
    CHECK(fails_saying(text, &(gd_caffe_data_options){.dummy = "d_label=9 e=1"},
                       "its first top 'd' needs sizes, too: 'd=3,227,227'"));
}

/* --- mistakes --------------------------------------------------------------------------------- */

CLEAN_TEST(mistakes_name_the_place_and_the_layer) {
    GD_SCOPE;
    CHECK(fails_saying("\n" DATA("d", "nowhere", 4, ""), NULL,
                       "net.prototxt:2:1: layer 'd' (Data): there is no 'nowhere' in"));
    CHECK(fails_saying("layer { name: 'v' type: 'VideoData' top: 'v' }", NULL,
                       "layer 'v' (VideoData): data of this type are not read; --dummy \"v=...\""));
    CHECK(fails_saying("layer { name: 'd' type: 'Data' data_param { batch_size: 1 } }", NULL,
                       "it has 0 tops; layers of this type have 1 to 2"));
    CHECK(fails_saying("layer { name: 'x' type: 'DummyData' top: 'x' dummy_data_param { shape { "
                       "dim: 0 } } }",
                       NULL, "size 0 of a shape is 0"));
    CHECK(fails_saying("layer { name: 'x' type: 'DummyData' top: 'x' dummy_data_param { shape { "
                       "dim: 2 } data_filler { type: 'gausian' } } }",
                       NULL, "there is no filler of type 'gausian'"));
    mkdir(temp_path("level"), 0755);
    temp_write_text("level/MANIFEST-000002", "");
    CHECK(fails_saying(DATA("d", "level", 4, ""), NULL,
                       "is a LevelDB, which is not read; make an LMDB"));
    write_list("list", 3);
    CHECK(fails_saying(IMAGES("new_height: 3"), NULL, "new_height is 3 and new_width 0"));
    temp_write_text("list.txt", "a.ppm cat\n");
    CHECK(fails_saying(IMAGES(""), NULL, "list.txt: line 1: the label 'cat' is no integer"));
    if (!gd_lmdb_is_built()) return;
    write_images("db", 3);
    CHECK(fails_saying(DATA("d", "db", 0, ""), NULL, "batch_size is 0; it must be at least 1"));
    CHECK(fails_saying(DATA("d", "db", 2, "transform_param { crop_size: 6 }"), NULL,
                       "db: crop_size is 6, and the image has 5 x 6 pixels"));
    CHECK(
        fails_saying(DATA("d", "db", 2, "transform_param { mean_file: 'm' mean_value: 3 }"), NULL,
                     "net.prototxt:1:56: layer 'd' (Data): mean_file and mean_value are both set"));
    CHECK(fails_saying(
        DATA("d", "db", 2, "transform_param { mean_value: 1 mean_value: 2 mean_value: 3 }"), NULL,
        "there are 3 values mean_value, and the image has 2 channels"));
}

CLEAN_TEST(a_broken_record_fails_with_its_key) {
    if (!gd_lmdb_is_built()) SKIP("built without liblmdb");
    GD_SCOPE;
    gd_lmdb_writer *w;
    const uint8_t bytes[6] = {1, 2, 3, 4, 5, 6};
    const gd_caffe_item right = {1, 2, 3, bytes, 6, 1, false, false};
    const gd_caffe_item wrong[] = {{1, 2, 4, bytes, 6, 1, false, false},
                                   {1, 3, 2, bytes, 6, 1, false, false},
                                   {1, 2, 3, bytes, 6, 1, true, true}};
    static const char *const messages[] = {
        "is a Datum of 1 x 2 x 4 with 6 values",
        "is 1 x 3 x 2, and the first image of the batch 1 x 2 x 3", "is not a JPEG, PNG"};
    for (int i = 0; i < 3; i++) {
        gd_tensors batch;
        CHECK(gd_lmdb_create(&w, temp_new_folder("broken")) == GD_OK);
        CHECK(gd_caffe_put_item(w, "first", &right) == GD_OK);
        CHECK(gd_caffe_put_item(w, "second", &wrong[i]) == GD_OK);
        CHECK(gd_lmdb_finish(w) == GD_OK);
        gd_caffe_data *data = open_layers(DATA("d", "broken", 2, ""), GD_CAFFE_TRAIN, NULL);
        CHECK(!gd_loader_next(gd_caffe_data_loader(data), &batch));
        CHECK_SAYING(says("batch 0: layer 'd' (Data): ") && says("record 'second': ") &&
                         says(messages[i]),
                     "%s", gd_error_message());
        gd_clear_error();
    }
}

CLEAN_TEST(damaged_records_fail_or_are_read_completely) {
    static const uint8_t raw[] = {8, 1, 16, 2, 24, 3, 34, 6, 1, 2, 3, 4, 5, 6, 40, 9};
    static const uint8_t floats[] = {8, 1, 16, 1,  24, 2, 40,  3,  0x35, 0,
                                     0, 0, 64, 53, 0,  0, 128, 63, 56,   0};
    static const uint8_t encoded[] = {34,  23,  'P', '6', ' ', '2', ' ', '2', ' ', '2',
                                      '5', '5', ' ', 1,   2,   3,   4,   5,   6,   7,
                                      8,   9,   10,  11,  12,  40,  1,   56,  1};
    const struct {
        const uint8_t *data;
        size_t bytes;
    } files[] = {{raw, sizeof raw}, {floats, sizeof floats}, {encoded, sizeof encoded}};
    for (int i = 0; i < 3; i++) {
        gd_caffe_picture picture;
        CHECK(gd_caffe_datum_read(&picture, "whole", files[i].data, files[i].bytes,
                                  GD_CAFFE_AS_STORED) == GD_OK);
        gd_caffe_picture_free(&picture);
        run_cut(fuzz_datum, files[i].data, files[i].bytes);
        run_damaged(fuzz_datum, files[i].data, files[i].bytes, 5000);
    }
}

TEST(without_memory_opening_and_reading_fail) {
    if (!gd_lmdb_is_built()) SKIP("built without liblmdb");
    write_images("db", 3);
    write_list("list", 3);
    static const char text[] = DATA("d", "db", 2, "transform_param { crop_size: 3 }")
        IMAGES("batch_size: 2") "layer { name: 'x' type: 'DummyData' top: 'x' dummy_data_param { "
                                "shape { dim: 3 } "
                                "data_filler { type: 'gaussian' } } }";
    for (fault_walk w = {.what = "reading data layers", .stride = 3}; fault_next(&w);) {
        GD_SCOPE;
        gd_caffe_data *data;
        gd_tensors batch;
        fault_begin(&w);
        gd_status status = open_text(&data, text, GD_CAFFE_TRAIN, NULL);
        if (status == GD_OK && !gd_loader_next(gd_caffe_data_loader(data), &batch))
            status = gd_error_status();
        fault_end(&w);
        gd_clear_error();
        CHECK_FAULT(&w, status);
    }
}

TEST_MAIN
