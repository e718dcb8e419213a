/* test_index_set.c - src/core/index_set.h finds items by hash and comparison. */
#include "core/index_set.h"
#include "test.h"

enum { ITEMS = 1000 };

/* Returns the index of the item with this number, or -1. Items have `hashes` different hashes. */
static int find_number(const gd_index_set *set, const int *numbers, int number, int hashes) {
    int found;
    for (size_t probe = 0; (found = gd_index_set_next(
                                set, gd_hash_mix(0, (uint64_t)(number % hashes)), &probe)) >= 0;)
        if (numbers[found] == number) break;
    return found;
}

static void check_set(int hashes) {
    gd_index_set set = {0};
    int numbers[ITEMS] = {0};
    CHECK(find_number(&set, numbers, 0, hashes) == -1);
    for (int i = 0; i < ITEMS; i++) {
        numbers[i] = 7 * i;
        CHECK(find_number(&set, numbers, numbers[i], hashes) == -1);
        CHECK(gd_index_set_add(&set, gd_hash_mix(0, (uint64_t)(numbers[i] % hashes)), i));
    }
    CHECK(set.count == ITEMS && set.size >= 2 * ITEMS);
    for (int i = 0; i < ITEMS; i++) {
        CHECK(find_number(&set, numbers, 7 * i, hashes) == i);
        CHECK(find_number(&set, numbers, 7 * i + 1, hashes) == -1);
    }
    gd_index_set_free(&set);
}

TEST(index_set_finds_each_item) { check_set(1 << 20); }
TEST(index_set_distinguishes_items_with_equal_hashes) { check_set(3); }

TEST_MAIN
