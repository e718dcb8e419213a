/* test_caffe_data_files.c - data layers that read HDF5 files and lists of windows, and the datasets lmdb
 * and hdf5. */
#include "caffe/hdf5_rows.h"
#include "data_layers.h"
#include "format/hdf5.h"
#include "format/lmdb.h"
#include "fuzz/damage.h"

#define LLVMFuzzerTestOneInput fuzz_window_list
#include "fuzz/fuzz_window_list.c"
#undef LLVMFuzzerTestOneInput

/* --- HDF5 ------------------------------------------------------------------------------------- */

/* A file with rows from number `first` on: data (2, 3) full of the number, and the label 10 of it. */
static void write_rows(const char *name, int64_t first, int64_t count) {
    gd_hdf5_writer *w;
    float data[6], label;
    const int64_t dims[3] = {count, 2, 3};
    CHECK(gd_hdf5_writer_begin(&w, temp_path("%s", name)) == GD_OK);
    gd_hdf5_writer_dataset(w, "/data", GD_F32, 3, dims);
    for (int64_t i = first; i < first + count; i++) {
        for (int k = 0; k < 6; k++) data[k] = (float)i;
        gd_hdf5_writer_write(w, data, sizeof data);
    }
    gd_hdf5_writer_dataset(w, "/label", GD_F32, 1, dims);
    for (int64_t i = first; i < first + count; i++) {
        label = 10 * (float)i;
        gd_hdf5_writer_write(w, &label, sizeof label);
    }
    CHECK(gd_hdf5_writer_commit(w) == GD_OK);
}

static void write_row_files(void) {
    write_rows("a.h5", 0, 3);
    write_rows("b.h5", 3, 1);
    write_rows("c.h5", 4, 5);
    temp_write_text("files.txt", "a.h5 b.h5\n  c.h5\n");
}

#define HDF5(more)                                                                           \
    "layer { name: 'h' type: 'HDF5Data' top: 'data' top: 'label' hdf5_data_param { source: " \
    "'files.txt' " more " } }"

CLEAN_TEST(rows_of_hdf5_files_run_on_through_all_files) {
    GD_SCOPE;
    write_row_files();
    gd_caffe_data *data = open_layers(HDF5("batch_size: 4"), GD_CAFFE_TRAIN, NULL);
    CHECK(gd_caffe_data_shape(data, 0).rank == 3 && gd_caffe_data_shape(data, 0).at[2] == 3);
    for (int n = 0; n < 5; n++) {
        gd_tensors batch = next_batch(data);
        for (int i = 0; i < 4; i++) {
            CHECK(value_at(batch.at[0], 6 * i + 5) == (float)((4 * n + i) % 9));
            CHECK(value_at(batch.at[1], i) == (float)((4 * n + i) % 9 * 10));
        }
    }
    /* shuffled: all rows in each pass, those of a file together */
    data = open_layers(HDF5("batch_size: 9 shuffle: true"), GD_CAFFE_TRAIN, NULL);
    float orders[12][9];
    int same = 0, first_files = 0;
    for (int pass = 0; pass < 12; pass++) {
        static const char file_of[] = "aaabccccc";
        unsigned seen = 0;
        int changes = 0;
        gd_tensors batch = next_batch(data);
        for (int i = 0; i < 9; i++) {
            const int row = (int)(orders[pass][i] = value_at(batch.at[0], 6 * i));
            seen |= 1u << row;
            CHECK(value_at(batch.at[1], i) == (float)(10 * row));
            changes += i && file_of[row] != file_of[(int)orders[pass][i - 1]];
        }
        CHECK(seen == 511 && changes == 2);
        same += pass && memcmp(orders[pass], orders[pass - 1], sizeof orders[0]) == 0;
        first_files |= 1 << (file_of[(int)orders[pass][0]] - 'a');
    }
    CHECK(same == 0 && first_files == 7);
}

CLEAN_TEST(mistakes_with_hdf5_files_name_them) {
    GD_SCOPE;
    write_row_files();
    CHECK(fails_saying(HDF5("batch_size: 1 } transform_param { scale: 2"), NULL,
                       "HDF5 data are not transformed; remove transform_param"));
    temp_write_text("files.txt", "a.h5 gone.h5");
    CHECK(fails_saying(HDF5("batch_size: 1"), NULL, "files.txt: there is no 'gone.h5' in"));
    temp_write_text("files.txt", "a.h5\nnet.prototxt");
    CHECK(fails_saying(HDF5("batch_size: 1"), NULL, "layer 'h' (HDF5Data): "));
}

CLEAN_TEST(rows_are_read_from_their_files_if_they_are_not_held) {
    write_row_files();
    static const char *const names[] = {"data", "label"};
    gd_caffe_rows rows;
    float a[12], b[12];
    CHECK(gd_caffe_rows_open(&rows, temp_path("files.txt"), names, 2) == GD_OK);
    CHECK(gd_caffe_rows_count(&rows) == 9 && rows.n_files == 3 && rows.held);
    float **held = rows.held;
    CHECK(gd_caffe_rows_read(&rows, 0, 2, 6, 2, a) == GD_OK);
    rows.held = NULL;
    CHECK(gd_caffe_rows_read(&rows, 0, 2, 6, 2, b) == GD_OK && memcmp(a, b, sizeof a) == 0);
    CHECK(gd_caffe_rows_read(&rows, 1, 1, 3, 1, b) == GD_OK && b[0] == 30 && a[0] == 6);
    rows.held = held;
    gd_caffe_rows_close(&rows);
}

CLEAN_TEST(the_datasets_lmdb_and_hdf5_have_samples_for_any_net) {
    GD_SCOPE;
    write_row_files();
    gd_dataset *d = gd_dataset_hdf5(temp_path("files.txt"));
    CHECK_SAYING(gd_dataset_count(d) == 9 && gd_dataset_class_count(d) == 81, "%s",
                 gd_error_message());
    gd_tensors sample = gd_dataset_get(d, 5);
    CHECK(sample.count == 2 && value_at(sample.at[0], 3) == 5);
    CHECK(gd_item_int(sample.at[1]) == 50);
    d = gd_dataset_hdf5(temp_path("c.h5"), .names = "label");
    CHECK(gd_dataset_count(d) == 5 && gd_dataset_class_count(d) == 0);
    CHECK(value_at(gd_dataset_get(d, 1).at[0], 0) == 50);
    CHECK(!gd_dataset_hdf5(temp_path("c.h5"), .names = "data lable") && says("lable"));
    gd_clear_error();
    if (!gd_lmdb_is_built()) return;
    write_images("db", 10);
    d = gd_dataset_lmdb(temp_path("db"));
    CHECK(gd_dataset_count(d) == 10 && gd_dataset_class_count(d) == 91);
    sample = gd_dataset_get(d, 3);
    CHECK(value_at(sample.at[0], 44) == (float)(pixel(3, 1, 2, 2) / 255.0));
    CHECK(gd_item_int(sample.at[1]) == 30);
    d = gd_dataset_lmdb(temp_path("db"), .bytes = true, .classes = 7);
    CHECK(gd_dataset_class_count(d) == 7);
    CHECK(((const uint8_t *)gd_data(gd_dataset_get(d, 3).at[0]))[44] == pixel(3, 1, 2, 2));
    char name[80];
    CHECK(strcmp(gd_dataset_sample_name(d, 3, name, sizeof name), "record '00000003'") == 0);
}

/* --- windows ---------------------------------------------------------------------------------- */

/* An image of 6 x 8 pixels, grey: 10 times the row plus the column. */
static void write_window_image(const char *name) {
    uint8_t file[11 + 48] = "P5 8 6 255 ";
    for (int i = 0; i < 48; i++) file[11 + i] = (uint8_t)(i / 8 * 10 + i % 8);
    temp_write(name, file, sizeof file);
}

static const char window_text[] =
    "# 0\nw.pgm\n3\n6\n8\n3\n5 0.8 2 1 5 4\n7 1 0 0 3 3\n4 0.2 4 2 7 5\n"
    "# 1\nw.pgm\n3 6 8 1\n6 0.5 0 1 3 4\n";

#define WINDOWS(more)                                                                      \
    "layer { name: 'w' type: 'WindowData' top: 'data' top: 'label' transform_param { "     \
    "crop_size: 4 mirror: true } window_data_param { source: 'windows.txt' batch_size: 5 " \
    "fg_fraction: 0.4 bg_threshold: 0.3 " more " } }"

CLEAN_TEST(windows_are_drawn_from_objects_and_from_the_background) {
    GD_SCOPE;
    int seen[2][2] = {{0}}; /* which object, whether mirrored */
    write_window_image("w.pgm");
    temp_write_text("windows.txt", window_text);
    gd_caffe_data *data = open_layers(WINDOWS("fg_threshold: 0.8"), GD_CAFFE_TRAIN, NULL);
    CHECK(gd_caffe_data_shape(data, 0).at[1] == 3 && gd_caffe_data_shape(data, 0).at[3] == 4);
    for (int n = 0; n < 40; n++) {
        gd_tensors batch = next_batch(data);
        for (int i = 0; i < 5; i++) {
            const int label = (int)value_at(batch.at[1], i);
            CHECK(i < 3 ? label == 0 : label == 5 || label == 7);
            const int corner = label == 5 ? 12 : label == 7 ? 0 : 24;
            const float first = value_at(batch.at[0], 48 * i),
                        last = value_at(batch.at[0], 48 * i + 3);
            CHECK((first == (float)corner && last == (float)(corner + 3)) ||
                  (first == (float)(corner + 3) && last == (float)corner));
            CHECK(value_at(batch.at[0], 48 * i + 47) == last + 30);
            if (i >= 3) seen[label == 7][first > last]++;
        }
    }
    for (int k = 0; k < 4; k++) CHECK_SAYING(seen[k / 2][k % 2] > 5, "%d", seen[k / 2][k % 2]);
    CHECK(fails_saying(WINDOWS("fg_threshold: 2"), NULL, "the list has no windows of objects"));
    CHECK(fails_saying(WINDOWS("context_pad: 2"), NULL, "twice of it must be below crop_size 4"));
    CHECK(fails_saying(WINDOWS("crop_mode: 'wrap'"), NULL,
                       "crop_mode is 'wrap'; it must be warp or"));
    temp_write_text("windows.txt", "# 0\nw.pgm\n3 6 8 1\n0 1 0 0 1 1");
    CHECK(fails_saying(WINDOWS(""), NULL, "windows.txt: line 4: the class of an object is 0"));
    temp_write_text("windows.txt", "# 0\nw.pgm\n3 6 8 2\n5 1 0 0 8 1\n1 0 0 0 1 1");
    data = open_layers(WINDOWS(""), GD_CAFFE_TRAIN, NULL);
    gd_tensors batch;
    CHECK(!gd_loader_next(gd_caffe_data_loader(data), &batch));
    CHECK(says("the window from (0, 0) to (8, 1) does not fit into 8 x 6 pixels"));
}

CLEAN_TEST(damaged_lists_of_windows_fail_or_are_read_completely) {
    run_cut(fuzz_window_list, window_text, sizeof window_text - 1);
    run_damaged(fuzz_window_list, window_text, sizeof window_text - 1, 10000);
}

TEST_MAIN
