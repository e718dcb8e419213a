/* test_variants.c - one record text expands to the texts of several records. */
#include "codegen/opgen/variants.c"
#include "test.h"

static bool variant_is(const char *text, int k, const char *expected) {
    const char *at;
    char *variant = variant_text(text, k, &at);
    const bool same = variant && strcmp(variant, expected) == 0;
    if (variant && !same) printf("'%s', expected '%s'\n", variant, expected);
    free(variant);
    return same;
}

TEST(a_text_without_a_list_in_its_name_is_one_record) {
    const char *text = "pad(x) -> y\n  mode {constant, reflect} = constant";
    CHECK(variant_count(text) == 1);
    CHECK(variant_is(text, 0, text));
    CHECK(variant_is("f(x) -> y\n a{|b}", 0, "f(x) -> y\n a{|b}"));
}

TEST(empty_braces_insert_the_entry_and_bars_separate_alternatives) {
    const char *text = "pool{1,2,3}d(x) -> y\n x (N,{L|H,W|D,H,W})\n  stride int[{}] = 1\n"
                       "  mode {a, b} = a\n  onnx P   {|caffe Q|}";
    CHECK(variant_count(text) == 3);
    CHECK(variant_is(
        text, 0, "pool1d(x) -> y\n x (N,L)\n  stride int[1] = 1\n  mode {a, b} = a\n  onnx P   "));
    CHECK(variant_is(text, 1,
                     "pool2d(x) -> y\n x (N,H,W)\n  stride int[2] = 1\n  mode {a, b} = a\n"
                     "  onnx P   caffe Q"));
    CHECK(variant_is(text, 2,
                     "pool3d(x) -> y\n x (N,D,H,W)\n  stride int[3] = 1\n  mode {a, b} = a\n"
                     "  onnx P   "));
}

TEST(the_rules_of_all_variants_have_one_name) {
    char name[64];
    variant_rules_name("pool{1,2,3}d_with(x) -> y", name, sizeof name);
    CHECK(strcmp(name, "poolNd_with") == 0);
    variant_rules_name("pad (x) -> y\n {}", name, sizeof name);
    CHECK(strcmp(name, "pad") == 0);
}

TEST(a_wrong_number_of_alternatives_fails_with_its_location) {
    const char *text = "p{1,2,3}(x) -> y\n {a|b}", *at = NULL;
    CHECK(variant_text(text, 0, &at) == NULL);
    CHECK(at && strcmp(at, "{a|b}") == 0);
    CHECK(variant_text("p{1,2}(x) -> y\n {a|b", 0, &at) == NULL);
    CHECK(at && strcmp(at, "{a|b") == 0);
}

TEST_MAIN
