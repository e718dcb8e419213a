/* test_arena.c - the arena reuses the memory of large buffers for other sizes. */
#include "core/arena.h"
#include "draw.h"
#include "gradus/gradus.h"
#include "test.h"

enum { MEGABYTE = 1 << 20, BUFFERS = 40 };

typedef struct buffer {
    unsigned char *at;
    size_t bytes;
    unsigned char mark;
} buffer;

static void fill_buffer(buffer *b, size_t bytes, unsigned char mark) {
    *b = (buffer){gd_arena_alloc(bytes), bytes, mark};
    CHECK(b->at && (size_t)b->at % 64 == 0);
    if (b->at) memset(b->at, mark, bytes);
}

static bool is_intact(const buffer *b) {
    for (size_t i = 0; i < b->bytes; i += 997)
        if (b->at[i] != b->mark) return false;
    return b->at[b->bytes - 1] == b->mark;
}

/* The library uses the same arena, so this test creates no tensors. */
TEST(buffers_do_not_overlap_in_any_order) {
    static buffer list[BUFFERS];
    draws d = {1};
    for (int i = 0; i < 3000; i++) {
        buffer *b = &list[draw_below(&d, BUFFERS)];
        if (b->at) {
            CHECK(is_intact(b));
            gd_arena_free(b->at);
            b->at = NULL;
        } else fill_buffer(b, MEGABYTE + (size_t)draw_below(&d, 6 * MEGABYTE), (unsigned char)i);
    }
    for (int i = 0; i < BUFFERS; i++)
        if (list[i].at) {
            CHECK(is_intact(&list[i]));
            gd_arena_free(list[i].at);
            list[i].at = NULL;
        }
    gd_arena_trim();
    CHECK(gd_arena_cached() == 0);
}

TEST(adjacent_free_buffers_are_merged) {
    buffer a[4];
    for (int i = 0; i < 4; i++) fill_buffer(&a[i], 5 * MEGABYTE, 1);
    for (int i = 0; i < 4; i++) gd_arena_free(a[i].at);
    const int64_t before = gd_arena_cached();
    CHECK(before >= 20 * MEGABYTE);
    buffer all;
    fill_buffer(&all, 20 * MEGABYTE, 2);
    CHECK_SAYING(gd_arena_cached() <= before - 20 * MEGABYTE, "%lld", (long long)gd_arena_cached());
    gd_arena_free(all.at);
    gd_arena_trim();
}

/* The sizes of tensors vary, as with training batches of varying size. */
TEST(cached_memory_does_not_exceed_peak_use) {
    GD_SCOPE;
    gd_memory_trim(NULL);
    gd_memory_reset_peak(NULL);
    static const int64_t sizes[] = {3, 4, 5, 6, 7, 9, 11, 13};
    for (int i = 0; i < 8; i++) {
        GD_SCOPE;
        for (int64_t done = 0; done + sizes[i] <= 64; done += sizes[i])
            gd_zeros(gd_dims(sizes[i], MEGABYTE / 4));
    }
    const gd_memory m = gd_memory_stats(NULL);
    CHECK_SAYING(m.live_bytes + m.cached_bytes < m.peak_bytes + m.peak_bytes / 8,
                 "%lld live, %lld kept, at most %lld in use", (long long)m.live_bytes,
                 (long long)m.cached_bytes, (long long)m.peak_bytes);
    gd_memory_trim(NULL);
    CHECK(gd_memory_stats(NULL).cached_bytes == 0);
}

TEST_MAIN
