/* test_state_faults.c - saving and loading with any one allocation failing.
 *
 * The status is GD_E_MEMORY (or the memory was not needed), the old file or the old values are
 * unchanged, nothing leaks, and the same call without a fault works.
 */
#include "core/error.h"
#include "fault_walk.h"
#include "state_things.h"
#include "temp.h"

typedef struct saved_objects {
    net *a, *b;
    moments *m;
    gd_session *session;
    gd_tensor *variable;
    const char *path;
    bool sharded;
} saved_objects;

static saved_objects make_objects(double value, const char *path) {
    saved_objects w = {.a = small_net(value), .b = small_net(value), .path = path};
    w.a->has_values = true;
    w.a->integer = (int64_t)value;
    w.b->inner = small_net(value);
    add(w.b, "half", gd_full(gd_dims(3), value, .dtype = GD_F16));
    w.m = new_moments(w.a, value);
    w.m->steps = (int64_t)value;
    gd_graph *graph = gd_graph_new();
    GD_GRAPH(graph);
    w.variable = gd_variable(gd_full(gd_dims(4), value), .name = "v");
    w.session = gd_session_new(graph);
    gd_session_get(w.session, w.variable); /* initializes the variable */
    return w;
}

static void end_objects(saved_objects *w) {
    end_moments(w->m);
    end_net(w->a);
    end_net(w->b);
}

static gd_state_parts parts_of(const saved_objects *w, gd_state_part at[5]) {
    at[0] = gd_part("m", (void *)w->m);
    at[1] = gd_part("a", (void *)w->a);
    at[2] = gd_part("b", (void *)w->b);
    at[3] = gd_part("train", w->session);
    at[4] = gd_part("rng", gd_generator());
    return (gd_state_parts){at, 5};
}

static gd_status save_objects(const saved_objects *w) {
    gd_state_part at[5];
    const gd_save_state_options options = {.shard_bytes = w->sharded ? 60 : 0};
    return gd_save_state_at(NULL, w->path, parts_of(w, at), &options);
}

static const char *same_name(const char *name, void *user) {
    (void)user;
    return name;
}

static gd_status load_objects(const saved_objects *w) {
    gd_state_part at[5];
    const gd_load_state_options options = {.rename = same_name};
    return gd_load_state_at(NULL, w->path, parts_of(w, at), &options);
}

/* Returns whether all values are `value`. */
static bool objects_have_value(const saved_objects *w, double value) {
    GD_SCOPE;
    bool same = all_are(w->a, value) && all_are(w->b, value) && all_are(w->b->inner, value) &&
                w->a->integer == value && w->m->steps == value &&
                gd_rng_state().seed == (uint64_t)value;
    for (int i = 0; i < 3; i++) same &= gd_item(gd_min(w->m->moment[i])) == value;
    return same && gd_item(gd_min(gd_session_get(w->session, w->variable))) == value;
}

/* Saves `two` over `one`. Some allocations may fail without effect. */
static void walk_saves(const saved_objects *one, const saved_objects *two, const saved_objects *to,
                       bool lasting) {
    fault_walk w = {.what = "saving", .lasting = lasting};
    for (gd_status status = GD_OK; fault_next(&w);) {
        gd_seed(1);
        if (status == GD_OK) CHECK_SAYING(save_objects(one) == GD_OK, "%s", gd_error_message());
        gd_seed(2);
        fault_begin(&w);
        status = save_objects(two);
        fault_end(&w);
        CHECK_FAULT(&w, status);
        CHECK_ROUND(&w, load_objects(to) == GD_OK);
        gd_clear_error();
        CHECK_ROUND(&w, objects_have_value(to, status == GD_OK ? 2 : 1));
    }
    CHECK_SAYING(w.failures > 30, "%lld saves failed", (long long)w.failures);
}

/* Loads the values 2 over the values 1. Some allocations may fail without effect. */
static void walk_loads(const saved_objects *from_one, const saved_objects *to, bool lasting) {
    fault_walk w = {.what = "loading", .lasting = lasting};
    while (fault_next(&w)) {
        saved_objects reset = *to;
        reset.path = from_one->path;
        CHECK(load_objects(&reset) == GD_OK && objects_have_value(to, 1));
        fault_begin(&w);
        const gd_status status = load_objects(to);
        fault_end(&w);
        CHECK_FAULT(&w, status);
        CHECK_ROUND(&w, objects_have_value(to, status == GD_OK ? 2 : 1));
    }
    CHECK_SAYING(w.failures > 30, "%lld loads failed", (long long)w.failures);
}

static void walk_objects(bool sharded, bool lasting) {
    GD_SCOPE;
    const char *path = temp_path("faults.%s", sharded ? "index.json" : "safetensors");
    saved_objects one = make_objects(1, path), two = make_objects(2, path),
                  to = make_objects(3, path),
                  first = make_objects(1, temp_path("first.safetensors"));
    one.sharded = two.sharded = sharded;
    gd_seed(1);
    CHECK_SAYING(save_objects(&first) == GD_OK, "%s", gd_error_message());
    walk_saves(&one, &two, &to, lasting);
    walk_loads(&first, &to, lasting);
    end_objects(&one);
    end_objects(&two);
    end_objects(&to);
    end_objects(&first);
}

CLEAN_TEST(any_allocation_may_fail) { walk_objects(false, false); }
CLEAN_TEST(all_allocations_from_any_one_on_may_fail) { walk_objects(false, true); }
CLEAN_TEST(any_allocation_of_a_save_in_shards_may_fail) { walk_objects(true, false); }

/* The load has to create the moments. */
CLEAN_TEST(any_allocation_of_a_load_that_creates_tensors_may_fail) {
    GD_SCOPE;
    net *n = small_net(2);
    moments *m = new_moments(n, 5);
    const char *path = temp_path("made.safetensors");
    m->steps = 9;
    CHECK(gd_save_state(path, gd_part("adam", (void *)m), gd_part("net", (void *)n)) == GD_OK);
    fault_walk w = {.what = "loading moments"};
    while (fault_next(&w)) {
        GD_SCOPE;
        moments *to = new_moments(n, 0);
        fault_begin(&w);
        const gd_status status =
            gd_load_state(path, gd_part("adam", (void *)to), gd_part("net", (void *)n));
        fault_end(&w);
        CHECK_FAULT(&w, status);
        for (int i = 0; i < 3; i++) CHECK_ROUND(&w, !to->moment[i] == (status != GD_OK));
        CHECK_ROUND(&w, to->steps == (status == GD_OK ? 9 : 0));
        if (status == GD_OK) CHECK(gd_item(gd_min(to->moment[2])) == 5);
        end_moments(to);
    }
    CHECK_SAYING(w.failures > 30, "%lld loads failed", (long long)w.failures);
    end_moments(m);
    end_net(n);
}

/* Moves the data of a file by one byte, so that each tensor needs memory for its conversion. */
static void make_unaligned(const char *path) {
    char data[4000];
    uint64_t length;
    FILE *f = fopen(path, "rb");
    const size_t bytes = f ? fread(data, 1, sizeof data, f) : 0;
    if (f) fclose(f);
    CHECK(bytes > 8 && bytes < sizeof data);
    memcpy(&length, data, 8);
    f = fopen(path, "wb");
    const uint64_t longer = length + 1;
    CHECK(f && fwrite(&longer, 8, 1, f) == 1 && fwrite(data + 8, length, 1, f) == 1 &&
          fputc(' ', f) == ' ' && fwrite(data + 8 + length, bytes - 8 - length, 1, f) == 1);
    if (f) fclose(f);
}

CLEAN_TEST(any_allocation_of_a_load_that_converts_may_fail) {
    GD_SCOPE;
    net *from = small_net(2);
    const char *path = temp_path("odd.safetensors");
    CHECK(gd_save_state(path, gd_part("", (void *)from)) == GD_OK);
    make_unaligned(path);
    fault_walk w = {.what = "loading with a conversion"};
    while (fault_next(&w)) {
        GD_SCOPE;
        net *to = new_net();
        for (int i = 0; i < from->count; i++)
            add(to, from->names[i], gd_ones(gd_tensor_shape(from->tensors[i]), .dtype = GD_F64));
        fault_begin(&w);
        const gd_status status = gd_load_state(path, gd_part("", (void *)to));
        fault_end(&w);
        CHECK_FAULT(&w, status);
        CHECK_ROUND(&w, all_are(to, status == GD_OK ? 2 : 1));
        end_net(to);
    }
    CHECK_SAYING(w.failures > 15, "%lld loads failed", (long long)w.failures);
    end_net(from);
}

/* The state of an object, and a state read from a file. */
CLEAN_TEST(any_allocation_of_reading_a_state_may_fail) {
    GD_SCOPE;
    net *n = small_net(2), *to = small_net(1);
    const char *path = temp_path("read.safetensors");
    CHECK(gd_save_state(path, gd_part("", (void *)n)) == GD_OK);
    for (fault_walk w = {.what = "reading a state"}; fault_next(&w);) {
        GD_SCOPE;
        fault_begin(&w);
        gd_state *file = gd_read_state(path), *own = gd_state_of((void *)n);
        const gd_status status = gd_set_state((void *)to, file);
        fault_end(&w);
        CHECK_ROUND(&w, (file && own) || gd_failed());
        CHECK_FAULT(&w, gd_error_status());
        CHECK_ROUND(&w, all_are(to, status == GD_OK ? 2 : 1));
        net *one = small_net(1);
        CHECK(gd_set_state((void *)to, gd_state_of((void *)one)) == GD_OK);
        end_net(one);
    }
    end_net(n);
    end_net(to);
}

TEST_MAIN
