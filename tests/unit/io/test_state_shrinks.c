/* test_state_shrinks.c - files that another program truncates while they are loaded: the load is a
 * status, and the process lives. */
#define _GNU_SOURCE 1
#include <sys/syscall.h>
#include <unistd.h>

#include "clean_test.h"
#include "core/error.h"
#include "gradus/gradus.h"
#include "temp.h"

/* The library calls this definition of pread. */
static const char *victim;
static int reads, truncate_at = -1;

ssize_t pread(int fd, void *data, size_t bytes, off_t offset) {
    if (truncate_at >= 0 && reads++ == truncate_at) CHECK(truncate(victim, 1000) == 0);
    return syscall(SYS_pread64, fd, data, bytes, offset);
}

enum { ROWS = 300, COLUMNS = 1000 };

static void save_victim(bool checksum) {
    GD_SCOPE;
    victim = temp_path("net.safetensors");
    CHECK(gd_save_state_with(victim,
                             gd_parts(gd_part("a", gd_ones(gd_dims(ROWS, COLUMNS))),
                                      gd_part("b", gd_ones(gd_dims(COLUMNS)))),
                             .checksum = checksum) == GD_OK);
}

/* The file is truncated before read number `at`. Returns whether there were so many. */
static bool load_shrinking(int at, gd_dtype dtype, bool strided) {
    GD_SCOPE;
    gd_tensor *a = strided ? gd_transpose(gd_zeros(gd_dims(COLUMNS, ROWS), .dtype = dtype), 0, 1)
                           : gd_zeros(gd_dims(ROWS, COLUMNS), .dtype = dtype),
              *b = gd_zeros(gd_dims(COLUMNS));
    reads = 0;
    truncate_at = at;
    const gd_status status = gd_load_state(victim, gd_part("a", a), gd_part("b", b));
    truncate_at = -1;
    const bool reached = reads > at;
    CHECK_SAYING(reached == (status != GD_OK), "read %d: status %d", at, status);
    if (reached) {
        CHECK_SAYING(status == GD_E_FORMAT && strstr(gd_error_message(), "has become shorter"),
                     "read %d: %s", at, gd_error_message());
        const bool in_part = strstr(gd_error_message(), "tensors may be loaded in part") != NULL;
        gd_clear_error();
        CHECK_SAYING(in_part || gd_item(gd_max(gd_cast(a, GD_F64))) + gd_item(gd_max(b)) == 0,
                     "read %d changed a tensor", at);
    } else {
        CHECK(gd_item(gd_min(gd_cast(a, GD_F64))) == 1 && gd_item(gd_min(b)) == 1);
    }
    return reached;
}

CLEAN_TEST(a_file_that_shrinks_while_it_is_loaded_is_a_status) {
    static const struct {
        gd_dtype dtype;
        bool checksum, strided;
    } ways[] = {{GD_F32, false, false}, {GD_F32, true, false}, {GD_F64, false, false},
                {GD_F16, true, false},  {GD_F32, false, true}, {GD_F64, true, true}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        int at = 0;
        do save_victim(ways[i].checksum);
        while (load_shrinking(at++, ways[i].dtype, ways[i].strided) && at < 1000);
        CHECK_SAYING(at > 5 && at < 1000, "%d reads", at);
    }
}

static const char *truncate_now(const char *name, void *user) {
    (void)user;
    CHECK(truncate(victim, 1000) == 0);
    return name;
}

CLEAN_TEST(a_file_that_shrinks_before_the_first_tensor_is_written_changes_nothing) {
    GD_SCOPE;
    save_victim(false);
    gd_tensor *a = gd_zeros(gd_dims(ROWS, COLUMNS)), *b = gd_zeros(gd_dims(COLUMNS));
    CHECK(gd_load_state_with(victim, gd_parts(gd_part("a", a), gd_part("b", b)),
                             .rename = truncate_now) == GD_E_FORMAT);
    CHECK_SAYING(strstr(gd_error_message(), "has become shorter") &&
                     !strstr(gd_error_message(), "in part"),
                 "%s", gd_error_message());
    gd_clear_error();
    CHECK(gd_item(gd_max(a)) == 0 && gd_item(gd_max(b)) == 0);
}

CLEAN_TEST(reading_the_state_of_a_file_that_shrinks_is_a_status) {
    for (int at = 0; at < 1000; at++) {
        GD_SCOPE;
        save_victim(false);
        reads = 0;
        truncate_at = at;
        gd_state *s = gd_read_state(victim);
        truncate_at = -1;
        CHECK(!s == (reads > at));
        gd_clear_error();
        if (s) return;
    }
    CHECK(!"it never succeeded");
}

TEST_MAIN
