/* test_dlpack.c - tensors that share memory with other libraries. */
#include <pthread.h>
#include <stdint.h>
#include <unistd.h>

/* What a program with DLPack's own header has declared; the names must not collide with ours. */
typedef struct {
    uint32_t major, minor;
} DLPackVersion;
typedef struct {
    int device_type;
    int32_t device_id;
} DLDevice;
typedef struct {
    uint8_t code, bits;
    uint16_t lanes;
} DLDataType;
typedef struct {
    void *data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} DLTensor;
typedef struct DLManagedTensor {
    DLTensor dl_tensor;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensor *self);
} DLManagedTensor;
typedef struct DLManagedTensorVersioned {
    DLPackVersion version;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensorVersioned *self);
    uint64_t flags;
    DLTensor dl_tensor;
} DLManagedTensorVersioned;

#include "backend/test/device.h"
#include "clean_test.h"
#include "core/device.h"
#include "fault_walk.h"
#include "gradus/gradus.h"

/* --- a foreign library ------------------------------------------------------------------------ */

/* A tensor of another library, with the struct of either version. */
typedef struct foreign {
    DLManagedTensorVersioned m;
    DLManagedTensor old;
    int64_t shape[9], strides[9];
    _Atomic int deleted;
} foreign;

static void delete_foreign(DLManagedTensorVersioned *m) { ((foreign *)m->manager_ctx)->deleted++; }
static void delete_old(DLManagedTensor *m) { ((foreign *)m->manager_ctx)->deleted++; }

static void fill(foreign *f, void *data, int code, int bits, int rank, const int64_t *shape,
                 const int64_t *strides) {
    *f = (foreign){.deleted = 0};
    for (int i = 0; i < rank; i++) f->shape[i] = shape[i];
    for (int i = 0; strides && i < rank; i++) f->strides[i] = strides[i];
    const DLTensor t = {data,     {1, 0},
                        rank,     {(uint8_t)code, (uint8_t)bits, 1},
                        f->shape, strides ? f->strides : NULL,
                        0};
    f->m = (DLManagedTensorVersioned){{1, 3}, f, delete_foreign, 0, t};
    f->old = (DLManagedTensor){t, f, delete_old};
}

static float six[6] = {1, 2, 3, 4, 5, 6};
static void fill_six(foreign *f) { fill(f, six, 2, 32, 2, (int64_t[]){2, 3}, NULL); }

#define CHECK_FAILS(call, status, part)                                           \
    do {                                                                          \
        CHECK(call);                                                              \
        CHECK(gd_error_status() == (status));                                     \
        CHECK_SAYING(strstr(gd_error_message(), part), "%s", gd_error_message()); \
        gd_clear_error();                                                         \
    } while (0)

/* --- to other libraries ----------------------------------------------------------------------- */

TEST(an_exported_tensor_has_the_same_memory_shape_and_strides) {
    GD_SCOPE;
    gd_tensor *x = gd_transpose(gd_ones(gd_dims(2, 3), .dtype = GD_F64), 0, 1);
    DLManagedTensorVersioned *m = gd_to_dlpack(x);
    CHECK(m->version.major == 1 && m->version.minor == 3 && m->flags == 0);
    const DLTensor *t = &m->dl_tensor;
    CHECK(t->data == gd_data(x) && t->byte_offset == 0);
    CHECK(t->device.device_type == 1 && t->device.device_id == 0);
    CHECK(t->dtype.code == 2 && t->dtype.bits == 64 && t->dtype.lanes == 1);
    CHECK(t->ndim == 2 && t->shape[0] == 3 && t->shape[1] == 2);
    CHECK(t->strides[0] == 1 && t->strides[1] == 3);
    m->deleter(m);
}

TEST(memory_lives_until_both_sides_have_freed_it) {
    const int64_t bytes = gd_memory_stats(NULL).live_bytes;
    DLManagedTensorVersioned *m;
    {
        GD_SCOPE;
        m = gd_to_dlpack(gd_full(gd_dims(1000), 7));
    }
    CHECK(gd_memory_stats(NULL).live_bytes == bytes + 4000);
    CHECK(((float *)m->dl_tensor.data)[999] == 7);
    m->deleter(m);
    CHECK(gd_memory_stats(NULL).live_bytes == bytes);
    GD_SCOPE;
    gd_tensor *x = gd_full(gd_dims(1000), 7); /* now the foreign side is first */
    m = gd_to_dlpack(x);
    m->deleter(m);
    CHECK(gd_item(gd_sum(x)) == 7000);
}

TEST(dtypes_have_the_codes_of_dlpack_and_come_back) {
    static const struct {
        gd_dtype dtype;
        int code, bits;
    } rows[] = {{GD_BOOL, 6, 8},  {GD_U8, 1, 8},   {GD_I8, 0, 8},
                {GD_I32, 0, 32},  {GD_I64, 0, 64}, {GD_F16, 2, 16},
                {GD_BF16, 4, 16}, {GD_F32, 2, 32}, {GD_F64, 2, 64}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        GD_SCOPE;
        gd_tensor *x = gd_ones(gd_dims(2, 3), .dtype = rows[i].dtype);
        DLManagedTensorVersioned *m = gd_to_dlpack(x);
        CHECK(m->dl_tensor.dtype.code == rows[i].code && m->dl_tensor.dtype.bits == rows[i].bits);
        gd_tensor *y = gd_from_dlpack(m);
        CHECK(gd_tensor_dtype(y) == rows[i].dtype && gd_data(y) == gd_data(x));
    }
    CHECK(!gd_failed());
}

TEST(ranks_from_0_to_8_and_empty_tensors_are_shared) {
    for (int rank = 0; rank <= 8; rank++) {
        GD_SCOPE;
        const int64_t dims[8] = {2, 1, 2, 1, 2, 1, 2, 1};
        gd_tensor *x = gd_ones(gd_shape_of(rank, dims)), *y = gd_from_dlpack(gd_to_dlpack(x));
        CHECK(gd_tensor_rank(y) == rank && gd_data(y) == gd_data(x));
        CHECK(gd_item(gd_sum(y)) == gd_tensor_numel(x));
    }
    GD_SCOPE;
    gd_tensor *y = gd_from_dlpack(gd_to_dlpack(gd_ones(gd_dims(2, 0, 3))));
    CHECK(gd_tensor_numel(y) == 0 && gd_tensor_dim(y, 2) == 3 && !gd_failed());
    foreign f; /* libraries give empty tensors any address and strides */
    fill(&f, NULL, 2, 32, 2, (int64_t[]){0, 3}, (int64_t[]){-5, 1});
    CHECK(gd_tensor_numel(gd_from_dlpack(&f.m)) == 0 && !gd_failed());
}

TEST(a_copy_says_that_it_is_one) {
    GD_SCOPE;
    gd_tensor *x = gd_ones(gd_dims(3));
    DLManagedTensorVersioned *m = gd_to_dlpack(x, .copy = true);
    CHECK(m->flags == 2 && m->dl_tensor.data != gd_data(x));
    CHECK(((float *)m->dl_tensor.data)[2] == 1);
    m->deleter(m);
}

TEST(the_struct_of_old_receivers_shares_memory) {
    GD_SCOPE;
    gd_tensor *x = gd_ones(gd_dims(3));
    DLManagedTensor *m = gd_to_dlpack_unversioned(x);
    CHECK(m->dl_tensor.data == gd_data(x));
    gd_tensor *y = gd_from_dlpack_unversioned(m);
    CHECK(gd_data(y) == gd_data(x));
}

TEST(tensors_without_shareable_data_are_refused) {
    GD_SCOPE;
    CHECK_FAILS(gd_to_dlpack(NULL) == NULL, GD_E_ARGUMENT, "NULL");
    gd_tensor *leaf = gd_requires_grad(gd_ones(gd_dims(3)));
    CHECK_FAILS(gd_to_dlpack(leaf) == NULL, GD_E_STATE, "gd_detach");
    CHECK_FAILS(gd_to_dlpack(gd_mul(leaf, 2)) == NULL, GD_E_STATE, "requires a gradient");
    gd_tensor *failed = gd_reshape(gd_ones(gd_dims(3)), gd_dims(7));
    gd_clear_error();
    CHECK_FAILS(gd_to_dlpack(failed) == NULL, GD_E_STATE, "failed");
    gd_graph *graph = gd_graph_new();
    GD_GRAPH(graph);
    CHECK_FAILS(gd_to_dlpack(gd_placeholder(gd_dims(3), .name = "x")) == NULL, GD_E_STATE, "x");
}

TEST(a_description_borrows_the_tensor) {
    GD_SCOPE;
    const int64_t objects = gd_live_objects();
    gd_tensor *x = gd_ones(gd_dims(2, 3));
    gd_dl_tensor t;
    CHECK(gd_dl_describe(x, &t) == GD_OK);
    CHECK(t.data == gd_data(x) && t.rank == 2 && t.dims[1] == 3 && t.strides[0] == 3);
    CHECK(gd_live_objects() == objects + 1);
}

/* --- from other libraries --------------------------------------------------------------------- */

TEST(foreign_memory_is_shared_and_deleted_once) {
    foreign f;
    fill_six(&f);
    {
        GD_SCOPE;
        gd_tensor *x = gd_from_dlpack(&f.m);
        CHECK(gd_data(x) == six && gd_tensor_dim(x, 1) == 3);
        six[5] = 60;
        CHECK(gd_item(gd_at(x, 1, 2)) == 60);
        gd_tensor *view = gd_retain(gd_at(x, 1));
        gd_release(view);
        CHECK(f.deleted == 0);
        six[5] = 6;
    }
    CHECK(f.deleted == 1);
    fill_six(&f);
    {
        GD_SCOPE;
        CHECK(gd_data(gd_from_dlpack_unversioned(&f.old)) == six);
        CHECK(f.deleted == 0);
    }
    CHECK(f.deleted == 1);
    fill_six(&f); /* a deleter may be missing */
    f.m.deleter = NULL;
    GD_SCOPE;
    CHECK(!gd_tensor_is_error(gd_from_dlpack(&f.m)));
}

static void *release_in_thread(void *t) {
    gd_release(t);
    return NULL;
}

TEST(the_deleter_runs_on_the_thread_that_frees_last) {
    foreign f;
    fill_six(&f);
    gd_tensor *x = gd_from_dlpack(&f.m); /* no scope: the test owns it */
    pthread_t thread;
    pthread_create(&thread, NULL, release_in_thread, x);
    pthread_join(thread, NULL);
    CHECK(f.deleted == 1);
}

TEST(strides_and_byte_offset_are_used) {
    foreign f;
    fill(&f, six, 2, 32, 2, (int64_t[]){2, 2}, (int64_t[]){1, 2});
    f.m.dl_tensor.byte_offset = 4;
    GD_SCOPE;
    gd_tensor *x = gd_from_dlpack(&f.m);
    CHECK(gd_data(x) == six + 1);
    CHECK(gd_item(gd_at(x, 1, 1)) == 5 && gd_item(gd_at(x, 1, 0)) == 3);
}

TEST(memory_that_cannot_be_shared_is_copied_if_the_program_allows_it) {
    GD_SCOPE;
    foreign f;
    fill(&f, six + 5, 2, 32, 2, (int64_t[]){2, 3}, (int64_t[]){-3, -1});
    CHECK_FAILS(gd_tensor_is_error(gd_from_dlpack(&f.m)), GD_E_UNSUPPORTED, "stride is negative");
    CHECK(f.deleted == 0); /* the caller owns it after a failure */
    gd_tensor *x = gd_from_dlpack(&f.m, .copy = GD_COPY_IF_NEEDED);
    CHECK(f.deleted == 1);
    CHECK(gd_item(gd_at(x, 0, 0)) == 6 && gd_item(gd_at(x, 1, 2)) == 1);
    CHECK(gd_item(gd_at(x, 0, 2)) == 4);

    static char bytes[32];
    const double pi = 3.25;
    memcpy(bytes + 1, &pi, sizeof pi);
    fill(&f, bytes + 1, 2, 64, 1, (int64_t[]){1}, NULL);
    CHECK_FAILS(gd_tensor_is_error(gd_from_dlpack(&f.m)), GD_E_UNSUPPORTED, "multiple");
    CHECK(gd_item(gd_from_dlpack(&f.m, .copy = GD_COPY_IF_NEEDED)) == 3.25);

    fill_six(&f);
    CHECK(gd_data(gd_from_dlpack(&f.m, .copy = GD_COPY_ALWAYS)) != six && f.deleted == 1);
    fill_six(&f);
    CHECK(gd_data(gd_from_dlpack(&f.m, .copy = GD_COPY_IF_NEEDED)) == six);
}

TEST(what_gradus_has_not_is_refused_with_its_name) {
    GD_SCOPE;
    foreign f;
    static const struct {
        int code, bits, lanes;
        gd_status status;
        const char *part;
    } dtypes[] = {{0, 16, 1, GD_E_DTYPE, "int16; convert it to int32"},
                  {1, 64, 1, GD_E_DTYPE, "uint64; convert it to int64"},
                  {5, 64, 1, GD_E_DTYPE, "complex64; share its real"},
                  {2, 32, 4, GD_E_UNSUPPORTED, "4 lanes"},
                  {3, 64, 1, GD_E_DTYPE, "opaque64"},
                  {10, 8, 1, GD_E_DTYPE, "code 10 with 8 bits"}};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        fill(&f, six, dtypes[i].code, dtypes[i].bits, 1, (int64_t[]){1}, NULL);
        f.m.dl_tensor.dtype.lanes = (uint16_t)dtypes[i].lanes;
        CHECK_FAILS(gd_tensor_is_error(gd_from_dlpack(&f.m)), dtypes[i].status, dtypes[i].part);
    }
    const int64_t nine[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    fill(&f, six, 2, 32, 9, nine, NULL);
    CHECK_FAILS(gd_tensor_is_error(gd_from_dlpack(&f.m)), GD_E_SHAPE, "9 dimensions");
    fill(&f, six, 2, 32, 1, (int64_t[]){-1}, NULL);
    CHECK_FAILS(gd_tensor_is_error(gd_from_dlpack(&f.m)), GD_E_SHAPE, "negative");
    fill(&f, six, 2, 32, 2, (int64_t[]){2, 2}, (int64_t[]){INT64_MAX, 1});
    CHECK_FAILS(gd_tensor_is_error(gd_from_dlpack(&f.m)), GD_E_OVERFLOW, "stride 0");
    fill(&f, six, 2, 32, 2, (int64_t[]){2, 2}, (int64_t[]){INT64_MIN, 1});
    CHECK_FAILS(gd_tensor_is_error(gd_from_dlpack(&f.m, .copy = GD_COPY_ALWAYS)), GD_E_OVERFLOW,
                "stride 0");
    fill(&f, NULL, 2, 32, 1, (int64_t[]){1}, NULL);
    CHECK_FAILS(gd_tensor_is_error(gd_from_dlpack(&f.m)), GD_E_ARGUMENT, "address");
    fill_six(&f);
    f.m.dl_tensor.device.device_type = 8;
    CHECK_FAILS(gd_tensor_is_error(gd_from_dlpack(&f.m)), GD_E_DEVICE, "type 8");
    f.m.version.major = 2;
    CHECK_FAILS(gd_tensor_is_error(gd_from_dlpack(&f.m)), GD_E_UNSUPPORTED, "version 2.3");
    CHECK_FAILS(gd_tensor_is_error(gd_from_dlpack(NULL)), GD_E_ARGUMENT, "NULL");
    CHECK(f.deleted == 0);
}

TEST(pinned_memory_of_cuda_is_memory_of_the_host) {
    GD_SCOPE;
    foreign f;
    fill_six(&f);
    f.m.dl_tensor.device.device_type = 3;
    CHECK(gd_tensor_device(gd_from_dlpack(&f.m)) == gd_device_get("cpu"));
}

/* --- read-only memory ------------------------------------------------------------------------- */

static gd_tensor *read_only(foreign *f) {
    fill_six(f);
    f->m.flags = 1;
    return gd_from_dlpack(&f->m);
}

static gd_tensors write_captured(gd_tensors in, void *x) { return gd_listed(gd_add_(x, in.at[0])); }

TEST(read_only_memory_is_read_and_never_written) {
    GD_SCOPE;
    foreign f;
    gd_tensor *x = read_only(&f), *view = gd_at(x, 1);
    CHECK(gd_tensor_is_read_only(x) && gd_tensor_is_read_only(view) && gd_data(x) == six);
    CHECK(gd_item(gd_sum(x)) == 21);
    CHECK_FAILS(gd_tensor_is_error(gd_add_(x, 1)), GD_E_STATE, "'a' is read-only");
    CHECK_FAILS(gd_tensor_is_error(gd_mul_(view, 2)), GD_E_STATE, "read-only");
    CHECK_FAILS(gd_copy_from(x, six, sizeof six) != GD_OK, GD_E_STATE, "clone it first");
    CHECK_FAILS(gd_tensor_is_error(gd_index_put_(x, gd_places(0), gd_scalar(1))), GD_E_STATE,
                "read-only");
    gd_tensor *rows = gd_from_array(gd_dims(1), GD_I64, (const int64_t[]){1});
    CHECK_FAILS(gd_tensor_is_error(gd_index_put_(x, gd_places(rows), gd_scalar(1))), GD_E_STATE,
                "read-only");
    const gd_op *relu = gd_op_find("relu");
    CHECK_FAILS(gd_op_run_into(relu, gd_list(gd_ones(gd_dims(2, 3))), NULL, gd_list(x)) != GD_OK,
                GD_E_STATE, "read-only");
    gd_jit *jit = gd_jit_new(write_captured, x);
    CHECK_FAILS(gd_tensor_is_error(gd_jit_call(jit, gd_list(gd_ones(gd_dims(2, 3)))).at[0]),
                GD_E_STATE, "read-only");
    gd_tensor *copy = gd_add_(gd_clone(x), 1);
    CHECK(!gd_tensor_is_read_only(copy) && gd_item(gd_sum(copy)) == 27);
    for (int i = 0; i < 6; i++) CHECK(six[i] == (float)(i + 1));
}

TEST(an_optimizer_does_not_step_a_read_only_parameter) {
    GD_SCOPE;
    foreign f;
    gd_tensor *a = gd_requires_grad(read_only(&f)), *b = gd_requires_grad(gd_ones(gd_dims(2, 3)));
    gd_optimizer *sgd = gd_optim_sgd(gd_list(a, b), .lr = 1);
    gd_backward(gd_sum(gd_mul(a, b)));
    CHECK_FAILS(gd_optimizer_step(sgd) != GD_OK, GD_E_STATE, "read-only");
    CHECK(six[0] == 1 && gd_item(gd_at(b, 0, 0)) == 1);
}

TEST(read_only_memory_stays_read_only_in_a_third_library) {
    GD_SCOPE;
    foreign f;
    gd_tensor *x = read_only(&f);
    DLManagedTensorVersioned *m = gd_to_dlpack(x);
    CHECK(m->flags == 1);
    m->deleter(m);
    CHECK_FAILS(gd_to_dlpack_unversioned(x) == NULL, GD_E_STATE, "read-only");
    DLManagedTensor *copy = gd_to_dlpack_unversioned(x, .copy = true);
    CHECK(copy && copy->dl_tensor.data != six);
    copy->deleter(copy);
}

/* --- memory runs out ---------------------------------------------------------------------------- */

TEST(an_export_that_fails_keeps_nothing) {
    for (int copy = 0; copy < 2; copy++)
        for (fault_walk w = {.what = "gd_to_dlpack"}; fault_next(&w);) {
            GD_SCOPE;
            gd_tensor *x = gd_ones(gd_dims(1000));
            fault_begin(&w);
            DLManagedTensorVersioned *m = gd_to_dlpack(x, .copy = copy);
            fault_end(&w);
            CHECK_FAULT(&w, m ? GD_OK : gd_error_status());
            if (m) m->deleter(m);
        }
}

TEST(an_import_that_fails_leaves_the_tensor_to_the_caller) {
    for (int copy = 0; copy < 2; copy++)
        for (fault_walk w = {.what = "gd_from_dlpack"}; fault_next(&w);) {
            foreign f;
            fill_six(&f);
            bool failed;
            {
                GD_SCOPE;
                fault_begin(&w);
                failed = gd_tensor_is_error(
                    gd_from_dlpack(&f.m, .copy = copy ? GD_COPY_ALWAYS : GD_COPY_NEVER));
                fault_end(&w);
                CHECK_FAULT(&w, failed ? gd_error_status() : GD_OK);
            }
            CHECK(f.deleted == !failed);
        }
}

/* --- devices ---------------------------------------------------------------------------------- */

/* A tensor of another library on the test device, in the memory of `owner`. It is never freed: its
 * deleter may run later. */
static foreign *make_device(gd_tensor *owner) {
    static foreign all[8];
    static int count;
    foreign *f = &all[count++];
    gd_dl_tensor t;
    CHECK(gd_dl_describe(owner, &t) == GD_OK);
    fill(f, t.data, 2, 32, t.rank, t.dims, t.strides);
    f->m.dl_tensor.device = (DLDevice){t.device.type, t.device.number};
    return f;
}

TEST(memory_of_a_device_is_shared) {
    GD_SCOPE;
    gd_tensor *x = gd_to_device(gd_full(gd_dims(2, 3), 2), gd_test_device());
    DLManagedTensorVersioned *m = gd_to_dlpack(x, .stream = GD_NO_STREAM);
    CHECK(m->dl_tensor.device.device_type == 12);
    gd_tensor *y = gd_from_dlpack(m, .stream = GD_NO_STREAM);
    CHECK(gd_tensor_device(y) == gd_test_device());
    gd_add_(y, 1);
    CHECK(gd_item(gd_sum(x)) == 18);
    m = gd_to_dlpack(x, .device = gd_device_get("cpu"));
    CHECK(m->dl_tensor.device.device_type == 1 && m->flags == 2);
    CHECK(((float *)m->dl_tensor.data)[5] == 3);
    m->deleter(m);
    CHECK(gd_dl_find_device((gd_dl_device){12, 0}) == gd_test_device());
    CHECK(gd_dl_device_of(gd_test_device()).type == 12);
    CHECK(gd_device_stream(gd_test_device()) != 0 && gd_device_stream(gd_device_get("cpu")) == 0);
}

TEST(foreign_memory_of_a_device_is_deleted_after_the_kernels_that_use_it) {
    GD_SCOPE;
    gd_device *device = gd_test_device();
    gd_test_controls *controls = gd_test_device_controls(device);
    gd_tensor *owner = gd_to_device(gd_full(gd_dims(100), 2), device), *y;
    gd_synchronize(device);
    foreign *f = make_device(owner);
    controls->delay_us = 50000;
    {
        GD_SCOPE;
        gd_tensor *x = gd_from_dlpack(&f->m, .stream = GD_NO_STREAM);
        y = gd_keep(gd_add(x, 1));
    }
    CHECK(f->deleted == 0); /* the kernel has not begun */
    controls->delay_us = 0;
    CHECK(gd_item(gd_sum(y)) == 300);
    gd_synchronize(device);
    CHECK(f->deleted == 1);

    f = make_device(owner); /* an allocation finds memory whose kernels are done, too */
    controls->delay_us = 5000;
    {
        GD_SCOPE;
        gd_neg(gd_from_dlpack(&f->m, .stream = GD_NO_STREAM));
    }
    for (int i = 0; i < 1000 && !f->deleted; i++) {
        GD_SCOPE;
        gd_set_default_device(device);
        gd_empty(gd_dims(100), GD_F32);
        gd_set_default_device(NULL);
        usleep(1000);
    }
    controls->delay_us = 0;
    CHECK(f->deleted == 1);
}

/* Streams of the test device are its queues: 1 is the compute queue, 2 uploads. */
TEST(gradus_waits_for_the_stream_of_the_producer) {
    GD_SCOPE;
    enum { COUNT = 16 << 20 }; /* the upload takes a while */
    const size_t bytes = COUNT * sizeof(float);
    gd_device *device = gd_test_device();
    gd_tensor *owner = gd_to_device(gd_zeros(gd_dims(COUNT)), device);
    gd_synchronize(device);
    float *ones = malloc(bytes);
    for (int i = 0; i < COUNT; i++) ones[i] = 1;
    foreign *f = make_device(owner);
    device->api->upload(device, GD_QUEUE_UPLOAD, f->m.dl_tensor.data, ones, bytes);
    gd_tensor *x = gd_from_dlpack(&f->m, .stream = 2);
    CHECK(gd_item(gd_neg(gd_at(x, COUNT - 1))) == -1); /* a number would be an upload */
    free(ones);
}

TEST(the_stream_of_the_receiver_waits_for_gradus) {
    GD_SCOPE;
    gd_device *device = gd_test_device();
    gd_test_controls *controls = gd_test_device_controls(device);
    float *read = calloc(1000, sizeof *read);
    gd_tensor *x = gd_to_device(gd_zeros(gd_dims(1000)), device);
    gd_synchronize(device);
    controls->delay_us = 20000;
    gd_add_(x, 5);
    DLManagedTensorVersioned *m = gd_to_dlpack(x, .stream = 3); /* downloads */
    device->api->download(device, GD_QUEUE_DOWNLOAD, read, m->dl_tensor.data, 4000);
    gd_queue_event *event;
    device->api->event_record(device, GD_QUEUE_DOWNLOAD, &event);
    device->api->event_wait(device, event);
    controls->delay_us = 0;
    device->api->event_free(device, event);
    CHECK(read[0] == 5 && read[999] == 5);
    m->deleter(m);
    free(read);
}

TEST(a_device_does_not_copy_what_it_cannot_read) {
    GD_SCOPE;
    gd_tensor *owner = gd_to_device(gd_ones(gd_dims(4)), gd_test_device());
    foreign *f = make_device(owner);
    f->m.dl_tensor.byte_offset = 2;
    CHECK_FAILS(gd_tensor_is_error(
                    gd_from_dlpack(&f->m, .stream = GD_NO_STREAM, .copy = GD_COPY_IF_NEEDED)),
                GD_E_UNSUPPORTED, "in the other library");
    f = make_device(owner);
    gd_tensor *copy = gd_from_dlpack(&f->m, .stream = GD_NO_STREAM, .copy = GD_COPY_ALWAYS);
    CHECK(f->deleted == 1 && gd_item(gd_sum(copy)) == 4);
}

TEST_MAIN
