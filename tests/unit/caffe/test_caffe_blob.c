/* test_caffe_blob.c - blobs of files: their shapes, types and values, both ways. The bytes were written by
 * Caffe's messages in Python.
 */
#include <math.h>

#include "caffe/blob.h"
#include "core/alloc.h"
#include "core/error.h"
#include "format/file.h"
#include "gradus/gradus.h"
#include "temp.h"
#include "test.h"

/* (2, 3): 1, -2, 0.5, 3e38, inf, 0.1 */
static const char floats[] =
    "\x2a\x18\x00\x00\x80\x3f\x00\x00\x00\xc0\x00\x00\x00\x3f\xe6\xb1\x61\x7f"
    "\x00\x00\x80\x7f\xcd\xcc\xcc\x3d\x3a\x04\x0a\x02\x02\x03";
/* (2): 0.1, -2 */
static const char doubles[] = "\x3a\x03\x0a\x01\x02\x42\x10\x9a\x99\x99\x99\x99\x99\xb9\x3f"
                              "\x00\x00\x00\x00\x00\x00\x00\xc0";
/* 1, 1, 2, 1: the four sizes of older files */
static const char old[] =
    "\x08\x01\x10\x01\x18\x02\x20\x01\x2a\x08\x00\x00\x80\x3f\x00\x00\x00\xc0";
static const char one[] = "\x2a\x04\x00\x00\xe0\x40";
/* (2, 2): 1, -2, 65504, 2^-24 as f16 in raw_data */
static const char halves[] =
    "\x3a\x04\x0a\x02\x02\x02\x50\x02\x62\x08\x00\x3c\x00\xc0\xff\x7b\x01\x00";

static gd_status read_bytes(const char *bytes, size_t size, gd_tensor **out) {
    gd_pb_doc *doc;
    GD_TRY(gd_pb_read(&doc, &gd_caffe_blob_schema, "blob", bytes, size));
    const gd_status status = gd_caffe_blob_tensor(gd_pb_root(doc), out);
    gd_pb_free(doc);
    return status;
}

static void check_tensor(const char *bytes, size_t size, gd_dtype dtype, gd_shape shape,
                         const double *values) {
    GD_SCOPE;
    gd_tensor *t;
    CHECK_SAYING(read_bytes(bytes, size, &t) == GD_OK, "%s", gd_latest_failure());
    CHECK(gd_tensor_dtype(t) == dtype && gd_tensor_rank(t) == shape.rank);
    for (int i = 0; i < shape.rank; i++) CHECK(gd_tensor_dim(t, i) == shape.at[i]);
    gd_tensor *wide = gd_reshape(gd_cast(t, GD_F64), gd_dims(-1));
    for (int64_t i = 0; i < gd_tensor_numel(t); i++) CHECK(gd_item(gd_at(wide, i)) == values[i]);
}

TEST(a_blob_becomes_a_tensor_of_its_shape_and_type) {
    check_tensor(floats, sizeof floats - 1, GD_F32, gd_dims(2, 3),
                 (double[]){1, -2, 0.5, (double)3e38f, INFINITY, (double)0.1f});
    check_tensor(doubles, sizeof doubles - 1, GD_F64, gd_dims(2), (double[]){0.1, -2});
    check_tensor(old, sizeof old - 1, GD_F32, gd_dims(1, 1, 2, 1), (double[]){1, -2});
    check_tensor(one, sizeof one - 1, GD_F32, gd_dims(), (double[]){7});
    check_tensor(halves, sizeof halves - 1, GD_F16, gd_dims(2, 2),
                 (double[]){1, -2, 65504, 0x1p-24});
    check_tensor("\x3a\x03\x0a\x01\x00", 5, GD_F32, gd_dims(0), NULL);
    /* floats one by one, and in two parts */
    check_tensor("\x3a\x03\x0a\x01\x03\x2d\x00\x00\x80\x3f\x2a\x08\x00\x00\x00\xc0\x00\x00\x00\x3f",
                 20, GD_F32, gd_dims(3), (double[]){1, -2, 0.5});
}

static void check_refused(const char *text, const char *message) {
    gd_pb_doc *doc;
    gd_tensor *t;
    CHECK_SAYING(gd_pb_read_text(&doc, &gd_caffe_blob_schema, "blob", text, strlen(text)) == GD_OK,
                 "%s", gd_latest_failure());
    CHECK(gd_caffe_blob_tensor(gd_pb_root(doc), &t) == GD_E_FORMAT);
    CHECK_SAYING(strcmp(gd_latest_failure(), message) == 0, "%s: %s", text, gd_latest_failure());
    gd_pb_free(doc);
}

TEST(a_blob_that_lies_about_its_shape_is_refused_before_memory_is_taken) {
    check_refused("shape { dim: 2 dim: 3 } data: 1",
                  "blob:1:1: a blob of shape [2,3] has 4 bytes of f32");
    check_refused("num: 1 channels: 2 data: 1",
                  "blob:1:1: a blob of shape [1,2,0,0] has 4 bytes of f32");
    check_refused("shape { dim: 2 }", "blob:1:1: a blob of shape [2] has 0 bytes of f32");
    check_refused("shape { dim: -2 } data: 1", "blob:1:1: a blob has the negative size -2");
    check_refused(
        "shape { dim: 4294967296 dim: 4294967296 dim: 4294967296 } data: 1",
        "blob:1:1: a blob of shape [4294967296,4294967296,4294967296] has 4 bytes of f32");
    check_refused("shape { dim: 1000000000000 }",
                  "blob:1:1: a blob of shape [1000000000000] has 0 bytes of f32");
    check_refused("shape { dim: [1,1,1,1,1,1,1,1,1] } data: 1",
                  "blob:1:1: a blob has 9 dimensions; at most 8 are supported");
    check_refused("raw_data_type: FLOAT16 raw_data: 'abc'",
                  "blob:1:1: a blob of shape [] has 3 bytes of f16");
    check_refused("raw_data_type: INT raw_data: 'abcd'",
                  "blob:1:1: a blob has raw data of type INT; known are DOUBLE, FLOAT and FLOAT16");
    check_refused("raw_data_type: 9 raw_data: 'abcd'",
                  "blob:1:1: a blob has raw data of type 9; known are DOUBLE, FLOAT and FLOAT16");
}

static void check_bytes(gd_tensor *t, const char *bytes, size_t size) {
    gd_pb_doc *doc = gd_pb_new(&gd_caffe_blob_schema);
    char *written = NULL;
    size_t length;
    CHECK_SAYING(gd_caffe_put_blob(gd_pb_root(doc), t) == GD_OK, "%s", gd_latest_failure());
    CHECK(gd_pb_print(doc, &written, &length) == GD_OK && length == size);
    CHECK(written && memcmp(written, bytes, size) == 0);
    gd_free(written);
    gd_pb_free(doc);
}

TEST(a_tensor_is_written_as_caffe_writes_a_blob) {
    GD_SCOPE;
    gd_tensor *t, *u;
    CHECK(read_bytes(floats, sizeof floats - 1, &t) == GD_OK);
    check_bytes(t, floats, sizeof floats - 1);
    check_bytes(gd_transpose(gd_contiguous(gd_transpose(t, 0, 1)), 0, 1), floats,
                sizeof floats - 1);
    CHECK(read_bytes(doubles, sizeof doubles - 1, &u) == GD_OK);
    check_bytes(u, doubles, sizeof doubles - 1);
    /* other types become floats */
    check_bytes(gd_full(gd_dims(), 7, .dtype = GD_I32), one, sizeof one - 1);
    check_bytes(gd_full(gd_dims(), 7, .dtype = GD_BF16), one, sizeof one - 1);
    check_bytes(gd_requires_grad(gd_full(gd_dims(1), 7)),
                "\x2a\x04\x00\x00\xe0\x40\x3a\x03\x0a\x01\x01", 11);
}

TEST(a_blob_in_a_file_is_read_and_written) {
    GD_SCOPE;
    const char *path = temp_path("mean.binaryproto");
    gd_tensor *t = gd_reshape(gd_arange(0, 24), gd_dims(1, 2, 3, 4));
    CHECK(gd_caffe_write_blob(path, t) == GD_OK);
    gd_tensor *again = gd_caffe_read_blob(path);
    CHECK(gd_tensor_dtype(again) == GD_F32 && gd_tensor_rank(again) == 4);
    CHECK(gd_item(gd_all(gd_eq(again, gd_cast(t, GD_F32)))) == 1);
    CHECK(!gd_failed());
    CHECK(gd_caffe_read_blob(temp_path("none")) != NULL && gd_failed());
    gd_clear_error();
}

TEST_MAIN
