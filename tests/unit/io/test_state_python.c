/* test_state_python.c - the safetensors package reads our files, and we read its files
 * and a PyTorch checkpoint. Needs a Python with torch and safetensors:
 * python3, or the one named by GRADUS_PYTHON. */
#include "compare.h"
#include "state_things.h"
#include "temp.h"

static const char *find_python(void) {
    static char command[500];
    const char *name = getenv("GRADUS_PYTHON") ? getenv("GRADUS_PYTHON") : "python3";
    static int available = -1;
    if (available < 0) {
        snprintf(command, sizeof command,
                 "%s -c 'import torch, numpy, safetensors' >/dev/null 2>&1", name);
        available = system(command) == 0;
    }
    return available ? name : NULL;
}

static bool run_python(const char *what, const char *path) {
    char command[1500];
    snprintf(command, sizeof command, "%s '%s/unit/io/state_python.py' %s '%s'", find_python(),
             GRADUS_TESTS, what, path);
    return system(command) == 0;
}

static gd_tensor *make_values(gd_shape shape, gd_dtype dtype) {
    int64_t count = 1;
    for (int i = 0; i < shape.rank; i++) count *= shape.at[i];
    gd_tensor *i = gd_cast(gd_arange(0, (double)count), GD_I64);
    gd_tensor *third = gd_sub(i, gd_mul(gd_floor_divide(i, gd_scalar_int(3)), gd_scalar_int(3)));
    const int less = dtype == GD_U8 || dtype == GD_BOOL ? 0 : 1;
    return gd_reshape(gd_cast(gd_sub(third, gd_scalar_int(less)), dtype), shape);
}

/* Has the values of state_python.py, or zeros. */
static net *make_net(bool zeros) {
    GD_SCOPE;
    static const char *const ranks[] = {"r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8"};
    net *n = new_net();
    n->has_values = true;
    n->integer = zeros ? 0 : -7;
    for (gd_dtype dtype = GD_BOOL; dtype < GD_DTYPE_COUNT; dtype++)
        add(n, gd_dtype_name(dtype),
            zeros ? gd_zeros(gd_dims(2, 5), .dtype = dtype) : make_values(gd_dims(2, 5), dtype));
    for (int rank = 0; rank <= 8; rank++) {
        gd_shape shape = gd_dims(2, 1, 3, 1, 2, 1, 2, 1);
        shape.rank = rank;
        add(n, ranks[rank], zeros ? gd_zeros(shape) : make_values(shape, GD_F32));
    }
    add(n, "empty", gd_zeros(gd_dims(2, 0, 3), .dtype = GD_F64));
    return n;
}

CLEAN_TEST(python_safetensors_reads_our_files) {
    if (!find_python()) SKIP("no Python with torch and safetensors");
    net *n = make_net(false);
    const char *path = temp_path("ours.safetensors");
    for (int checksum = 0; checksum < 2; checksum++) {
        CHECK_SAYING(gd_save_state_with(path, gd_parts(gd_part("net", (void *)n)),
                                        .checksum = checksum) == GD_OK,
                     "%s", gd_error_message());
        CHECK(run_python("read", path));
    }
    end_net(n);
}

CLEAN_TEST(files_of_python_safetensors_are_read) {
    GD_SCOPE;
    if (!find_python()) SKIP("no Python with torch and safetensors");
    net *n = make_net(true), *expected = make_net(false);
    const char *path = temp_path("theirs.safetensors");
    CHECK(run_python("write", path));
    CHECK_SAYING(gd_load_state(path, gd_part("net", (void *)n)) == GD_OK, "%s", gd_error_message());
    for (int i = 0; i < n->count; i++) {
        gd_tensor *a = gd_cast(n->tensors[i], GD_F64), *b = gd_cast(expected->tensors[i], GD_F64);
        if (gd_tensor_numel(a) > 0) CHECK_SAYING(tensors_distance(a, b) == 0, "%s", n->names[i]);
    }
    CHECK(n->number == 0.5 && n->integer == -7 && n->natural == 9 && n->text &&
          strcmp(n->text, "x") == 0);
    end_net(n);
    end_net(expected);
}

CLEAN_TEST(a_pytorch_checkpoint_is_loaded) {
    GD_SCOPE;
    if (!find_python()) SKIP("no Python with torch and safetensors");
    const char *path = temp_path("net.pt");
    CHECK(run_python("checkpoint", path));
    net *n = new_net();
    gd_tensor *w = gd_zeros(gd_dims(4, 3)), *t = gd_zeros(gd_dims(3, 2));
    add(n, "a.weight", w);
    add(n, "b.weight", w); /* tied here, too */
    add(n, "a.bias", gd_zeros(gd_dims(4)));
    add(n, "b.bias", gd_zeros(gd_dims(4)));
    add(n, "t", t);
    CHECK(gd_load_state(path, gd_part("", (void *)n)) != GD_OK &&
          says("all fit with .prefix = \"state_dict.module.\""));
    gd_clear_error();
    CHECK_SAYING(gd_load_state_with(path, gd_parts(gd_part("", (void *)n)),
                                    .prefix = "state_dict.module.") == GD_OK,
                 "%s", gd_error_message());
    CHECK(gd_item(gd_at(w, 2, 1)) == 7 && gd_item(gd_at(t, 2, 1)) == 5 &&
          gd_item(gd_min(n->tensors[3])) == 2);
    end_net(n);
}

TEST_MAIN
