/* test_state.c - objects load by name what they have saved; messages name every mismatch. */
#include <math.h>

#include "backend/test/device.h"
#include "compare.h"
#include "files.h"
#include "state_things.h"
#include "temp.h"

/* --- round trips ------------------------------------------------------------------------------ */

CLEAN_TEST(every_dtype_and_rank_is_saved_and_loaded) {
    GD_SCOPE;
    static const char *const ranks[] = {"r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8"};
    net *from = new_net(), *to = new_net();
    for (gd_dtype dtype = GD_BOOL; dtype < GD_DTYPE_COUNT; dtype++) {
        gd_tensor *t = gd_cast(gd_sub(gd_arange(0, 14), gd_scalar(5)), dtype);
        add(from, gd_dtype_name(dtype), t);
        add(to, gd_dtype_name(dtype), gd_zeros(gd_dims(14), .dtype = dtype));
    }
    for (int rank = 0; rank <= 8; rank++) {
        gd_shape shape = gd_dims(2, 1, 3, 1, 2, 1, 2, 1);
        shape.rank = rank;
        add(from, ranks[rank], gd_randn(shape));
        add(to, ranks[rank], gd_zeros(shape));
    }
    add(from, "empty", gd_zeros(gd_dims(2, 0, 3), .dtype = GD_F64));
    add(to, "empty", gd_zeros(gd_dims(2, 0, 3), .dtype = GD_F64));
    add(from, "strided", gd_transpose(gd_randn(gd_dims(3, 5)), 0, 1));
    add(to, "strided", gd_transpose(gd_zeros(gd_dims(3, 5)), 0, 1));
    const char *path = temp_path("round.safetensors");
    CHECK_SAYING(gd_save_state(path, gd_part("net", (void *)from)) == GD_OK, "%s",
                 gd_error_message());
    CHECK_SAYING(gd_load_state(path, gd_part("net", (void *)to)) == GD_OK, "%s",
                 gd_error_message());
    for (int i = 0; i < from->count; i++) {
        char a[256], b[256];
        const size_t bytes = tensor_bytes(from->tensors[i]);
        CHECK(bytes <= sizeof a && gd_copy_to(from->tensors[i], a, bytes) == GD_OK &&
              gd_copy_to(to->tensors[i], b, bytes) == GD_OK);
        CHECK_SAYING(memcmp(a, b, bytes) == 0, "%s", from->names[i]);
    }
    end_net(from);
    end_net(to);
}

CLEAN_TEST(values_are_saved_and_loaded_exactly) {
    static const double numbers[] = {0.1, -0.0, 1e308, 5e-324, INFINITY, -INFINITY, NAN, 1.0 / 3};
    static const int64_t integers[] = {INT64_MIN, INT64_MAX, 0, -1, 1, 2, 3, 4};
    const char *path = temp_path("values.safetensors");
    for (int i = 0; i < 8; i++) {
        net *from = new_net(), *to = new_net();
        from->has_values = to->has_values = true;
        from->number = numbers[i];
        from->integer = integers[i];
        from->natural = i ? UINT64_MAX - (uint64_t)i : UINT64_MAX;
        from->text = strcpy(gd_malloc(32), i % 2 ? "" : "a \"text\"\nof \xc3\xa4 few");
        CHECK(gd_save_state(path, gd_part("v", (void *)from)) == GD_OK);
        CHECK_SAYING(gd_load_state(path, gd_part("v", (void *)to)) == GD_OK, "%s",
                     gd_error_message());
        CHECK(memcmp(&from->number, &to->number, 8) == 0 ||
              (isnan(from->number) && isnan(to->number)));
        CHECK(from->integer == to->integer && from->natural == to->natural &&
              strcmp(from->text, to->text) == 0);
        end_net(from);
        end_net(to);
    }
}

CLEAN_TEST(loading_keeps_the_handle_and_storage_of_a_tensor) {
    GD_SCOPE;
    net *from = small_net(2), *to = small_net(1);
    gd_tensor *handle = to->tensors[0], *view = gd_reshape(handle, gd_dims(6));
    void *data = gd_data(handle);
    const char *path = temp_path("handle.safetensors");
    CHECK(gd_save_state(path, gd_part(NULL, (void *)from)) == GD_OK);
    CHECK(gd_load_state(path, gd_part("", (void *)to)) == GD_OK && all_are(to, 2));
    CHECK(to->tensors[0] == handle && gd_data(handle) == data && gd_item(gd_min(view)) == 2);
    end_net(from);
    end_net(to);
}

CLEAN_TEST(the_tape_detects_a_load_into_a_saved_tensor) {
    GD_SCOPE;
    net *from = small_net(2), *to = new_net();
    gd_tensor *w = gd_requires_grad(gd_ones(gd_dims(3, 2)));
    add(to, "fc1.weight", w);
    gd_tensor *loss = gd_sum(gd_square(w));
    const char *path = temp_path("tape.safetensors");
    gd_load_report report;
    CHECK(gd_save_state(path, gd_part("", (void *)from)) == GD_OK);
    CHECK(gd_load_state_with(path, gd_parts(gd_part("", (void *)to)), .partial = &report) == GD_OK);
    CHECK(gd_backward(loss) == GD_E_STATE); /* a saved value was overwritten */
    gd_clear_error();
    end_net(from);
    end_net(to);
}

CLEAN_TEST(only_floats_are_converted) {
    GD_SCOPE;
    static const gd_dtype floats[] = {GD_F16, GD_BF16, GD_F32, GD_F64};
    const char *path = temp_path("convert.safetensors");
    for (int i = 0; i < 4; i++) {
        gd_tensor *from = gd_cast(gd_sub(gd_arange(0, 9), gd_scalar(4.5)), floats[i]);
        CHECK(gd_save_state(path, gd_part("w", from)) == GD_OK);
        for (int k = 0; k < 4; k++) {
            gd_tensor *to = gd_zeros(gd_dims(9), .dtype = floats[k]);
            CHECK(gd_load_state(path, gd_part("w", to)) == GD_OK);
            CHECK(tensors_distance(gd_cast(to, GD_F64), gd_cast(from, GD_F64)) == 0);
        }
        gd_tensor *integer = gd_zeros(gd_dims(9), .dtype = GD_I64);
        CHECK(gd_load_state(path, gd_part("w", integer)) != GD_OK &&
              says("of a dtype that cannot be converted w"));
        gd_clear_error();
    }
}

CLEAN_TEST(tensors_on_a_device_that_the_host_cannot_read_are_saved_and_loaded) {
    GD_SCOPE;
    gd_device *device = gd_test_device();
    gd_tensor *on_host = gd_randn(gd_dims(4, 6)), *on_device = gd_to_device(on_host, device);
    gd_tensor *strided = gd_transpose(gd_to_device(gd_zeros(gd_dims(6, 4)), device), 0, 1);
    gd_tensor *half = gd_to_device(gd_zeros(gd_dims(4, 6), .dtype = GD_F64), device);
    const char *path = temp_path("device.safetensors");
    CHECK_SAYING(gd_save_state(path, gd_part("w", on_device)) == GD_OK, "%s", gd_error_message());
    CHECK_SAYING(gd_load_state(path, gd_part("w", strided)) == GD_OK, "%s", gd_error_message());
    CHECK_SAYING(gd_load_state(path, gd_part("w", half)) == GD_OK, "%s", gd_error_message());
    CHECK(tensors_distance(gd_to_device(strided, gd_device_get("cpu")), on_host) == 0);
    CHECK(gd_item(gd_max(gd_abs(
              gd_sub(gd_to_device(half, gd_device_get("cpu")), gd_cast(on_host, GD_F64))))) == 0);
    /* the tensor in the state has no name */
    CHECK(gd_set_state(half, gd_state_of(on_device)) != GD_OK);
    gd_clear_error();
}

/* (450, 1000), the numbers 0 to 250 again and again, which all floats hold exactly. */
static gd_tensor *many_numbers(gd_dtype dtype) {
    gd_tensor *n = gd_reshape(gd_arange(0, 450000, .dtype = GD_F64), gd_dims(450, 1000)),
              *of = gd_scalar(251);
    return gd_cast(gd_sub(n, gd_mul(gd_floor(gd_div(n, of)), of)), dtype);
}

CLEAN_TEST(tensors_larger_than_a_piece_are_converted_and_uploaded_completely) {
    static const gd_dtype dtypes[] = {GD_F16, GD_BF16, GD_F32, GD_F64};
    for (int from = 0; from < 4; from++)
        for (int to = 0; to < 4; to++) {
            GD_SCOPE;
            const char *path = temp_path("pieces.safetensors");
            gd_tensor *expected = many_numbers(dtypes[to]),
                      *host = gd_zeros(gd_dims(450, 1000), .dtype = dtypes[to]),
                      *strided =
                          gd_transpose(gd_zeros(gd_dims(1000, 450), .dtype = dtypes[to]), 0, 1),
                      *device = gd_to_device(gd_zeros(gd_dims(450, 1000), .dtype = dtypes[to]),
                                             gd_test_device());
            CHECK(gd_save_state(path, gd_part("u", gd_full(gd_dims(3), 1, .dtype = GD_U8)),
                                gd_part("w", many_numbers(dtypes[from]))) == GD_OK);
            CHECK_SAYING(gd_load_state(path, gd_part("w", host)) == GD_OK &&
                             gd_load_state(path, gd_part("w", strided)) == GD_OK &&
                             gd_load_state(path, gd_part("w", device)) == GD_OK,
                         "%s", gd_error_message());
            CHECK(tensors_distance(host, expected) == 0);
            CHECK(tensors_distance(gd_contiguous(strided), expected) == 0);
            CHECK(tensors_distance(gd_to_device(device, gd_device_get("cpu")), expected) == 0);
        }
}

/* --- names ------------------------------------------------------------------------------------ */

CLEAN_TEST(a_state_lists_names_and_tensors) {
    GD_SCOPE;
    net *n = small_net(3);
    n->inner = small_net(4);
    n->inner->has_values = true;
    n->inner->integer = 12;
    gd_state *s = gd_state_of((void *)n);
    CHECK(gd_state_count(s) == 6 && strcmp(gd_state_name(s, 4), "inner.fc1.bias") == 0 &&
          !gd_state_name(s, 6) && !gd_state_name(s, -1));
    CHECK(gd_state_tensor_at(s, 0) == n->tensors[0] &&
          gd_state_find(s, "inner.fc2.weight") == n->inner->tensors[2]);
    CHECK(!gd_state_find(s, "fc3") && strcmp(gd_state_value(s, "inner.integer"), "12") == 0 &&
          gd_state_value_count(s) == 4);
    CHECK(!gd_state_value(s, "integer") && strcmp(gd_state_value_name(s, 3), "inner.text") == 0);
    CHECK(gd_state_count(NULL) == 0 && !gd_state_find(NULL, "x") && !gd_state_value(NULL, "x"));
    net *other = small_net(5);
    other->inner = small_net(6);
    other->inner->has_values = true;
    CHECK_SAYING(gd_set_state((void *)other, s) == GD_OK, "%s", gd_error_message());
    CHECK(all_are(other, 3) && all_are(other->inner, 4) && other->inner->integer == 12);
    end_net(n);
    end_net(other);
}

CLEAN_TEST(a_tied_tensor_is_written_once_and_loaded_under_any_name) {
    GD_SCOPE;
    net *from = small_net(2), *first = new_net(), *second = new_net();
    add(from, "decoder", from->tensors[0]);
    add(from, "view",
        gd_reshape(from->tensors[0], gd_dims(3, 2))); /* the same memory through another handle */
    const char *path = temp_path("tied.safetensors");
    CHECK(gd_save_state(path, gd_part("", (void *)from)) == GD_OK);
    gd_state *s = gd_read_state(path);
    CHECK(gd_state_count(s) == 3 && gd_state_find(s, "fc1.weight") && !gd_state_find(s, "decoder"));
    gd_tensor *w = gd_zeros(gd_dims(3, 2));
    add(first, "decoder", w); /* the missing name comes first */
    add(first, "fc1.weight", w);
    add(first, "fc1.bias", gd_zeros(gd_dims(3)));
    add(first, "fc2.weight", gd_zeros(gd_dims(2, 3)));
    CHECK_SAYING(gd_load_state(path, gd_part("", (void *)first)) == GD_OK, "%s",
                 gd_error_message());
    CHECK(all_are(first, 2));
    add(second, "decoder", w);
    add(second, "other", w);
    gd_load_report report;
    CHECK(gd_load_state_with(path, gd_parts(gd_part("", (void *)second)), .partial = &report) ==
          GD_OK);
    CHECK(report.loaded == 0 && report.missing == 2 && report.unexpected == 3);
    end_net(from);
    end_net(first);
    end_net(second);
}

CLEAN_TEST(moments_are_named_after_their_parameters_in_any_order) {
    GD_SCOPE;
    net *n = small_net(1);
    moments *m = new_moments(n, 7);
    const char *path = temp_path("moments.safetensors"), *alone = temp_path("alone.safetensors");
    m->steps = 50;
    for (int order = 0; order < 2; order++) {
        const gd_status status =
            order ? gd_save_state(path, gd_part("net", (void *)n), gd_part("adam", (void *)m))
                  : gd_save_state(path, gd_part("adam", (void *)m), gd_part("net", (void *)n));
        CHECK_SAYING(status == GD_OK, "%s", gd_error_message());
        gd_state *s = gd_read_state(path);
        CHECK(gd_state_count(s) == 6 && gd_state_find(s, "adam.fc1.weight.exp_avg") &&
              gd_state_find(s, "net.fc1.weight"));
        CHECK(strcmp(gd_state_value(s, "adam.steps"), "50") == 0);
    }
    CHECK(gd_save_state(alone, gd_part("adam", (void *)m)) == GD_OK &&
          gd_state_find(gd_read_state(alone), "adam.0.exp_avg"));
    for (int variant = 0; variant < 4;
         variant++) { /* both forms of names, with and without the net */
        net *fresh = small_net(0);
        moments *loaded = new_moments(fresh, 0);
        const char *from = variant % 2 ? alone : path;
        gd_load_report report;
        gd_status status = GD_OK;
        if (variant == 0)
            status =
                gd_load_state(from, gd_part("adam", (void *)loaded), gd_part("net", (void *)fresh));
        if (variant == 1)
            status = gd_load_state_with(
                from, gd_parts(gd_part("net", (void *)fresh), gd_part("adam", (void *)loaded)),
                .partial = &report);
        if (variant == 3) status = gd_load_state(from, gd_part("adam", (void *)loaded));
        if (variant == 2) { /* names of a net that is not in the file */
            CHECK(gd_load_state(from, gd_part("adam", (void *)loaded)) != GD_OK &&
                  says("unexpected adam.fc1.weight.exp_avg") && loaded->steps == 0);
            gd_clear_error();
        } else {
            CHECK_SAYING(status == GD_OK && loaded->steps == 50, "%s", gd_error_message());
            for (int i = 0; i < 3; i++)
                CHECK(loaded->moment[i] && gd_item(gd_min(loaded->moment[i])) == 7);
        }
        end_moments(loaded);
        end_net(fresh);
    }
    end_moments(m);
    end_net(n);
}

CLEAN_TEST(parts_distinguish_equal_names_of_two_nets) {
    GD_SCOPE;
    net *a = small_net(1), *b = small_net(2), *both = new_net();
    for (int i = 0; i < 3; i++) add(both, a->names[i], a->tensors[i]);
    for (int i = 0; i < 3; i++) add(both, b->names[i], b->tensors[i]);
    moments *m = new_moments(both, 7);
    const char *path = temp_path("two.safetensors");
    CHECK_SAYING(gd_save_state(path, gd_part("adam", (void *)m), gd_part("gen", (void *)a),
                               gd_part("dis", (void *)b)) == GD_OK,
                 "%s", gd_error_message());
    gd_state *s = gd_read_state(path);
    CHECK(gd_state_find(s, "adam.gen.fc1.bias.exp_avg") &&
          gd_state_find(s, "adam.dis.fc1.bias.exp_avg"));
    moments *loaded = new_moments(both, 0);
    CHECK_SAYING(gd_load_state(path, gd_part("gen", (void *)a), gd_part("adam", (void *)loaded),
                               gd_part("dis", (void *)b)) == GD_OK,
                 "%s", gd_error_message());
    for (int i = 0; i < 6; i++) CHECK(loaded->moment[i] != NULL);
    end_moments(m);
    end_moments(loaded);
    end_net(a);
    end_net(b);
    end_net(both);
}

/* --- mismatches ------------------------------------------------------------------------------- */

CLEAN_TEST(a_mismatching_load_lists_the_differences_and_changes_nothing) {
    GD_SCOPE;
    net *from = small_net(2), *to = small_net(1);
    from->has_values = to->has_values = true;
    to->integer = 5;
    const char *path = temp_path("strict.safetensors");
    add(from, "head.weight", gd_ones(gd_dims(2, 2)));
    add(from, "head.bias", gd_ones(gd_dims(4)));
    add(to, "head.weight", gd_ones(gd_dims(3, 2)));
    add(to, "extra", gd_ones(gd_dims(1)));
    CHECK(gd_save_state(path, gd_part("net", (void *)from)) == GD_OK);
    CHECK(gd_load_state(path, gd_part("net", (void *)to)) == GD_E_SHAPE);
    CHECK_SAYING(says("strict.safetensors does not fit part 'net': missing net.extra; unexpected "
                      "net.head.bias; of another shape "
                      "net.head.weight (f32[2,2], f32[3,2] here)") &&
                     says("test_state.c:"),
                 "%s", gd_error_message());
    gd_clear_error();
    CHECK(all_are(to, 1) && to->integer == 5 && !to->text);
    gd_load_report report;
    CHECK(gd_load_state_with(path, gd_parts(gd_part("net", (void *)to)), .partial = &report) ==
          GD_OK);
    CHECK_SAYING(report.loaded == 7 && report.missing == 1 && report.unexpected == 1 &&
                     report.unfit == 1 && strstr(report.text, "missing net.extra"),
                 "%s", report.text);
    CHECK(gd_item(gd_min(to->tensors[0])) == 2 && gd_item(gd_min(to->tensors[3])) == 1 &&
          to->integer == 0);
    CHECK(gd_load_state_with(path, gd_parts(gd_part("net", (void *)from)), .partial = &report) ==
              GD_OK &&
          !report.text[0]);
    end_net(from);
    end_net(to);
}

CLEAN_TEST(long_lists_of_differences_are_shortened_to_a_count) {
    GD_SCOPE;
    static const char *const names[] = {"a0", "a1", "a2", "a3", "a4", "a5", "a6"};
    net *from = small_net(2), *to = new_net();
    for (int i = 0; i < 7; i++) add(to, names[i], gd_ones(gd_dims(1)));
    const char *path = temp_path("long.safetensors");
    CHECK(gd_save_state(path, gd_part("", (void *)from)) == GD_OK);
    CHECK(gd_load_state(path, gd_part("", (void *)to)) == GD_E_FORMAT);
    CHECK_SAYING(
        says("missing a0, a1, a2, a3 and 3 more; unexpected fc1.weight, fc1.bias, fc2.weight"),
        "%s", gd_error_message());
    gd_clear_error();
    CHECK(gd_load_state(path, gd_part("net", (void *)from)) == GD_E_FORMAT);
    CHECK_SAYING(says("missing net.fc1.weight") && says("all fit as gd_part(\"\", ...)"), "%s",
                 gd_error_message());
    gd_clear_error();
    end_net(from);
    end_net(to);
}

CLEAN_TEST(a_part_is_loaded_from_a_file_with_more_parts) {
    GD_SCOPE;
    net *n = small_net(2), *plain = small_net(3), *to = small_net(0);
    moments *m = new_moments(n, 7);
    const char *path = temp_path("parts.safetensors");
    CHECK(gd_save_state(path, gd_part("", (void *)plain), gd_part("net", (void *)n),
                        gd_part("adam", (void *)m), gd_part("rng", gd_generator())) == GD_OK);
    CHECK_SAYING(gd_load_state(path, gd_part("net", (void *)to)) == GD_OK && all_are(to, 2), "%s",
                 gd_error_message());
    CHECK_SAYING(gd_load_state(path, gd_part("", (void *)to)) == GD_OK && all_are(to, 3), "%s",
                 gd_error_message());
    end_moments(m);
    end_net(n);
    end_net(plain);
    end_net(to);
}

CLEAN_TEST(missing_and_invalid_values_are_reported) {
    GD_SCOPE;
    net *from = small_net(2), *to = small_net(1);
    const char *path = temp_path("wrong.safetensors");
    from->has_values = true;
    CHECK(gd_save_state(path, gd_part("net", (void *)from)) == GD_OK);
    CHECK(gd_load_state(path, gd_part("net", (void *)to)) != GD_OK &&
          says("unexpected net.number, net.integer, net.natural, net.text"));
    gd_clear_error();
    from->has_values = false;
    to->has_values = true;
    CHECK(gd_save_state(path, gd_part("net", (void *)from)) == GD_OK);
    CHECK(gd_load_state(path, gd_part("net", (void *)to)) != GD_OK &&
          says("missing net.number, net.integer, net.natural, net.text"));
    gd_clear_error();
    gd_state *s = gd_read_state(
        GRADUS_GOLDEN "/safetensors/all.safetensors"); /* "step": "41" written by another program */
    CHECK(gd_set_state(s, s) == GD_OK);
    end_net(from);
    end_net(to);
}

CLEAN_TEST(parts_without_state_or_with_duplicate_names_fail) {
    GD_SCOPE;
    net *n = small_net(1), *o = small_net(2);
    const char *path = temp_path("refused.safetensors");
    gd_graph *graph = gd_graph_new();
    const struct {
        gd_status status;
        const char *why;
    } tries[] = {
        {gd_save_state(path, gd_part("g", graph)),
         "part 'g' is of the kind 'graph', which has no state"},
        {(gd_clear_error(), gd_save_state(path, gd_part("n", (gd_tensor *)NULL))),
         "part 'n' is NULL"},
        {(gd_clear_error(), gd_save_state(path, gd_part("n", (void *)n), gd_part("n", (void *)o))),
         "two parts have the name 'n'"},
        {(gd_clear_error(), gd_load_state(path, gd_part("n", (void *)n), gd_part("m", (void *)n))),
         "are the same object"},
        {(gd_clear_error(), gd_save_state(path, gd_part("", gd_ones(gd_dims(2))))),
         "without a name"},
        {(gd_clear_error(), gd_save_state(NULL, gd_part("n", (void *)n))), "the path is NULL"},
        {(gd_clear_error(), gd_load_state(path, gd_part("n", (void *)n))), "cannot be opened"},
        {(gd_clear_error(),
          gd_save_state_with(path, gd_parts(gd_part("n", (void *)n)), .shard_bytes = 10)),
         ".index.json"},
        {(gd_clear_error(),
          gd_save_state_with(path, gd_parts(gd_part("n", (void *)n)), .shard_bytes = -10)),
         "-10 bytes"},
        {(gd_clear_error(), gd_save_state_at(NULL, path, (gd_state_parts){NULL, 0}, NULL)),
         "no parts"},
    };
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++)
        CHECK_SAYING(tries[i].status != GD_OK, "%s", tries[i].why);
    gd_clear_error();
    CHECK(gd_save_state(path, gd_part("g", graph)) != GD_OK && says(tries[0].why));
    gd_clear_error();
    CHECK(gd_load_state(path, gd_part("n", (void *)n), gd_part("m", (void *)n)) != GD_OK &&
          says(tries[3].why));
    gd_clear_error();
    CHECK(!file_exists(path));
    CHECK(gd_state_of(graph) == NULL && says("gd_state_of: the object is of the kind 'graph'"));
    gd_clear_error();
    add(n, "fc1.bias", gd_ones(gd_dims(9))); /* another tensor with the same name */
    CHECK(gd_save_state(path, gd_part("n", (void *)n)) != GD_OK &&
          says("part 'n': two tensors have the name 'n.fc1.bias'"));
    gd_clear_error();
    end_net(n);
    end_net(o);
}

/* --- options of loading ----------------------------------------------------------------------- */

static const char *rename_layer(const char *name, void *user) {
    static char text[100];
    ++*(int *)user;
    if (strcmp(name, "dropped") == 0) return NULL;
    snprintf(text, sizeof text, "%s%s", strncmp(name, "layer", 5) == 0 ? "fc" : "",
             strncmp(name, "layer", 5) == 0 ? name + 5 : name);
    return text;
}
static const char *rename_all(const char *name, void *user) {
    (void)name;
    return user;
}

CLEAN_TEST(names_can_be_mapped_and_prefixes_removed) {
    GD_SCOPE;
    net *from = new_net(), *to = small_net(0);
    int calls = 0;
    add(from, "model.layer1.weight", gd_full(gd_dims(3, 2), 4));
    add(from, "model.layer1.bias", gd_full(gd_dims(3), 4));
    add(from, "model.layer2.weight", gd_full(gd_dims(2, 3), 4));
    add(from, "model.dropped", gd_ones(gd_dims(1)));
    add(from, "ema.layer1.weight", gd_ones(gd_dims(1)));
    const char *path = temp_path("rename.safetensors");
    CHECK(gd_save_state(path, gd_part("", (void *)from)) == GD_OK);
    CHECK_SAYING(gd_load_state_with(path, gd_parts(gd_part("", (void *)to)), .prefix = "model.",
                                    .rename = rename_layer, .user = &calls) == GD_OK,
                 "%s", gd_error_message());
    CHECK(all_are(to, 4) && calls == 4);
    CHECK(gd_load_state_with(path, gd_parts(gd_part("", (void *)to)), .rename = rename_all,
                             .user = (void *)"same") == GD_E_ARGUMENT &&
          says("two tensors have the name 'same'"));
    gd_clear_error();
    CHECK(gd_load_state_with(path, gd_parts(gd_part("", (void *)to)), .prefix = "model.") ==
              GD_E_FORMAT &&
          says("unexpected layer1.weight"));
    gd_clear_error();
    end_net(from);
    end_net(to);
}

/* --- the generator and sessions --------------------------------------------------------------- */

CLEAN_TEST(the_generator_continues_where_it_was_saved) {
    GD_SCOPE;
    const char *path = temp_path("rng.safetensors");
    gd_seed(UINT64_MAX - 3);
    gd_randn(gd_dims(3));
    CHECK(gd_save_state(path, gd_part("rng", gd_generator())) == GD_OK);
    const double next = gd_item(gd_randn(gd_dims(1)));
    gd_seed(1);
    gd_tensor *other = gd_ones(gd_dims(2));
    CHECK(gd_load_state(path, gd_part("rng", gd_generator()), gd_part("w", other)) !=
          GD_OK); /* w is missing */
    gd_clear_error();
    CHECK(gd_rng_state().seed == 1 && gd_rng_state().call == 0);
    CHECK_SAYING(gd_load_state(path, gd_part("rng", gd_generator())) == GD_OK, "%s",
                 gd_error_message());
    CHECK(gd_item(gd_randn(gd_dims(1))) == next);
    gd_release(gd_retain(gd_generator()));
}

typedef struct training {
    gd_session *session;
    gd_tensor *step, *w;
} training;

/* Dropout makes each run different. */
static training make_training(void) {
    training t;
    gd_seed(3);
    gd_graph *graph = gd_graph_new();
    GD_GRAPH(graph);
    t.w = gd_variable(gd_randn(gd_dims(4, 4)), .name = "w");
    gd_tensor *loss = gd_mean(gd_square(gd_dropout(t.w, .p = 0.5, .training = true)));
    gd_optimizer *adam = gd_optim_adam(gd_list(t.w), .lr = 0.1);
    t.step = gd_minimize(adam, loss);
    t.session = gd_session_new(graph, .level = 0);
    return t;
}

static double run_steps(training t, int steps) {
    for (int i = 0; i < steps; i++) {
        GD_SCOPE;
        gd_session_run(t.session, gd_feed(), gd_list(t.step));
    }
    GD_SCOPE;
    return gd_item(gd_sum(gd_session_get(t.session, t.w)));
}

CLEAN_TEST(a_loaded_session_continues_with_the_same_bits) {
    GD_SCOPE;
    const char *path = temp_path("session.safetensors");
    training a = make_training();
    const double expected = run_steps(a, 20);
    training b = make_training();
    run_steps(b, 10);
    CHECK_SAYING(gd_save_state(path, gd_part("train", b.session)) == GD_OK, "%s",
                 gd_error_message());
    CHECK(run_steps(b, 10) == expected);
    training c = make_training();
    CHECK_SAYING(gd_load_state(path, gd_part("train", c.session)) == GD_OK, "%s",
                 gd_error_message());
    CHECK(run_steps(c, 10) == expected);
    training d = make_training(); /* a session that has already run */
    run_steps(d, 7);
    CHECK(gd_load_state(path, gd_part("train", d.session)) == GD_OK &&
          run_steps(d, 10) == expected);
    gd_state *s = gd_read_state(path);
    CHECK(gd_state_find(s, "train.w") && gd_state_value(s, "train.runs"));
}

CLEAN_TEST(a_failed_load_leaves_a_session_unchanged) {
    GD_SCOPE;
    const char *path = temp_path("session2.safetensors");
    training a = make_training(), b = make_training();
    const double expected = run_steps(a, 5);
    gd_tensor *other = gd_ones(gd_dims(3));
    CHECK(gd_save_state(path, gd_part("train", a.session)) == GD_OK);
    run_steps(b, 3);
    CHECK(gd_load_state(path, gd_part("train", b.session), gd_part("other", other)) != GD_OK &&
          says("missing other"));
    gd_clear_error();
    CHECK(run_steps(b, 2) == expected); /* the variables can still be written */
}

static gd_tensors save_in_trace(gd_tensors in, void *user) {
    CHECK(gd_save_state(user, gd_part("w", in.at[0])) != GD_OK);
    return gd_listed(in.at[0]);
}

CLEAN_TEST(nothing_is_saved_while_a_function_is_traced) {
    GD_SCOPE;
    const char *path = temp_path("traced.safetensors");
    gd_jit_call(gd_jit_new(save_in_trace, (void *)(uintptr_t)path), gd_list(gd_ones(gd_dims(2))));
    CHECK(gd_failed() && !file_exists(path));
    gd_clear_error();
}

CLEAN_TEST(nothing_is_saved_or_loaded_after_a_failure) {
    GD_SCOPE;
    net *n = small_net(1);
    const char *path = temp_path("failed.safetensors");
    gd_reshape(n->tensors[0], gd_dims(77));
    CHECK(gd_save_state(path, gd_part("n", (void *)n)) == gd_error_status() && !file_exists(path));
    CHECK(gd_load_state(path, gd_part("n", (void *)n)) == gd_error_status() && says("reshape"));
    gd_clear_error();
    end_net(n);
}

TEST_MAIN
