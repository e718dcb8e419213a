/* test_json.c - JSON reading and writing (format/json.h) and numbers (core/number.h). */
#include <float.h>
#include <math.h>

#include "core/alloc.h"
#include "core/error.h"
#include "core/number.h"
#include "draw.h"
#include "fault_walk.h"
#include "format/json.h"
#include "test.h"

/* Parses a heap copy of exactly `bytes` bytes, so that AddressSanitizer detects reads beyond it. */
static gd_json_doc *parse_bytes(const char *text, size_t bytes, gd_status *status) {
    char *copy = malloc(bytes ? bytes : 1);
    memcpy(copy, text, bytes);
    gd_json_doc *doc;
    *status = gd_json_parse(&doc, "t.json", copy, bytes);
    free(copy);
    CHECK((*status == GD_OK) == (doc != NULL));
    return doc;
}

static gd_json_doc *parse_text(const char *text) {
    gd_status status;
    gd_json_doc *doc = parse_bytes(text, strlen(text), &status);
    if (doc == NULL) fprintf(stderr, "failed:  %s\n  %s\n", text, gd_latest_failure());
    return doc;
}

static bool fails_with(const char *text, const char *message) {
    gd_status status;
    gd_json_doc *doc = parse_bytes(text, strlen(text), &status);
    gd_json_free(doc);
    bool as_expected = status == GD_E_FORMAT && strcmp(gd_latest_failure(), message) == 0;
    if (!as_expected)
        fprintf(stderr, "%s\n  gave:     %s\n  expected: %s\n", text,
                status == GD_OK ? "no error" : gd_latest_failure(), message);
    return as_expected;
}

static const char sample_text[] =
    "{\"name\": \"caf\\u00e9 \\ud83d\\ude00 \xC3\xA9\", \"list\": [1, -2.5e3, true, false, null, "
    "[], {}],\n \"a\": {\"b\": {\"c\": \"\\\"\\\\\\/\\b\\f\\n\\r\\t\"}}, \"n\": 9007199254740993, "
    "\"k1\": 1, \"k2\": 2, \"k3\": 3, \"k4\": 4, \"k5\": 5, \"k6\": 6}";

/* --- reading ---------------------------------------------------------------------------------- */

TEST(values_of_every_type) {
    gd_json_doc *doc = parse_text(sample_text);
    CHECK(doc != NULL);
    if (doc == NULL) return;
    const gd_json *root = gd_json_root(doc);
    CHECK(root->type == GD_JSON_OBJECT && root->count == 10);
    const gd_json *name = gd_json_get(root, "name");
    CHECK(name->type == GD_JSON_STRING);
    CHECK(strcmp(name->text, "caf\xC3\xA9 \xF0\x9F\x98\x80 \xC3\xA9") == 0);
    CHECK(name->length == strlen(name->text));
    const gd_json *list = gd_json_get(root, "list");
    CHECK(list->type == GD_JSON_ARRAY && list->count == 7);
    CHECK(gd_json_at(list, 0)->integer == 1 && gd_json_at(list, 0)->is_integer);
    CHECK(gd_json_at(list, 1)->number == -2500 && gd_json_at(list, 1)->integer == -2500);
    CHECK(gd_json_at(list, 2)->type == GD_JSON_BOOL && gd_json_at(list, 2)->boolean);
    CHECK(gd_json_at(list, 3)->type == GD_JSON_BOOL && !gd_json_at(list, 3)->boolean);
    CHECK(gd_json_at(list, 4)->type == GD_JSON_NULL);
    CHECK(gd_json_at(list, 5)->type == GD_JSON_ARRAY && gd_json_at(list, 5)->count == 0);
    CHECK(gd_json_at(list, 6)->type == GD_JSON_OBJECT && gd_json_at(list, 6)->count == 0);
    CHECK(gd_json_at(list, 7) == NULL);
    const gd_json *c = gd_json_get(gd_json_get(gd_json_get(root, "a"), "b"), "c");
    CHECK(c != NULL && strcmp(c->text, "\"\\/\b\f\n\r\t") == 0);
    CHECK(gd_json_get(root, "n")->integer == 9007199254740993); /* not representable as a double */
    CHECK(gd_json_get(root, "k6")->integer == 6);               /* found by the sorted index */
    CHECK(gd_json_get(root, "k7") == NULL && gd_json_get(root, "") == NULL);
    CHECK(gd_json_get(list, "name") == NULL && gd_json_get(NULL, "name") == NULL);
    CHECK(strcmp(gd_json_at(root, 1)->key, "list") == 0); /* members keep the order of the text */
    CHECK(gd_json_get(root, "a")->line == 2 && gd_json_get(root, "a")->column == 7);
    gd_json_free(doc);
}

TEST(numbers_are_read_as_exact_integers_and_as_doubles) {
    static const struct {
        const char *text;
        double number;
        bool is_integer;
        int64_t integer;
    } cases[] = {
        {"0", 0, true, 0},
        {"-0", -0.0, true, 0},
        {"9223372036854775807", 0x1p63, true, INT64_MAX},
        {"-9223372036854775808", -0x1p63, true, INT64_MIN},
        {"9223372036854775808", 0x1p63, false, 0},
        {"-9223372036854775809", -0x1p63, false, 0},
        {"1e3", 1000, true, 1000},
        {"2.0", 2, true, 2},
        {"0.1", 0.1, false, 0},
        {"1E-2", 0.01, false, 0},
        {"1.7976931348623157e308", DBL_MAX, false, 0},
        {"5e-324", 5e-324, false, 0},
        {"1e-999", 0, true, 0},
        {"0.10000000000000000000000000000000000000000000000000000000000000000000000000001", 0.1,
         false, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gd_json_doc *doc = parse_text(cases[i].text);
        CHECK(doc != NULL);
        if (doc == NULL) continue;
        const gd_json *v = gd_json_root(doc);
        CHECK(v->type == GD_JSON_NUMBER && v->number == cases[i].number);
        CHECK(v->is_integer == cases[i].is_integer);
        CHECK(!v->is_integer || v->integer == cases[i].integer);
        gd_json_free(doc);
    }
    gd_json_doc *doc = parse_text("-0");
    CHECK(doc != NULL && signbit(gd_json_root(doc)->number));
    gd_json_free(doc);
}

TEST(strings_may_contain_zero_bytes) {
    gd_json_doc *doc = parse_text("\"a\\u0000b\"");
    CHECK(doc != NULL && gd_json_root(doc)->length == 3);
    CHECK(doc != NULL && memcmp(gd_json_root(doc)->text, "a\0b", 4) == 0);
    gd_json_free(doc);
}

TEST(errors_give_position_and_reason) {
    CHECK(fails_with("", "t.json:1:1: expected a value, found the end"));
    CHECK(fails_with("{\"a\": 1,\n \"b\" 2}", "t.json:2:6: expected ':' after the key, found '2'"));
    CHECK(fails_with("[1 2]", "t.json:1:4: expected ',' or ']', found '2'"));
    CHECK(fails_with("[1,]", "t.json:1:4: expected a value, found ']'"));
    CHECK(fails_with("{\"a\":1,}", "t.json:1:8: expected a key in double quotes, found '}'"));
    CHECK(fails_with("{a:1}", "t.json:1:2: expected a key in double quotes, found 'a'"));
    CHECK(fails_with("{\"a\":1", "t.json:1:7: expected ',' or '}', found the end"));
    CHECK(fails_with("nul", "t.json:1:1: expected a value, found 'n'"));
    CHECK(fails_with("1 x", "t.json:1:3: expected nothing more, found 'x'"));
    CHECK(fails_with("01", "t.json:1:2: expected nothing more, found '1'"));
    CHECK(fails_with("1.", "t.json:1:3: expected a digit after '.', found the end"));
    CHECK(fails_with("-", "t.json:1:2: expected a digit, found the end"));
    CHECK(fails_with("1e+", "t.json:1:4: expected a digit of the exponent, found the end"));
    CHECK(fails_with("+1", "t.json:1:1: expected a value, found '+'"));
    CHECK(fails_with("NaN", "t.json:1:1: expected a value, found 'N'"));
    CHECK(fails_with("[1e999]", "t.json:1:2: this number is beyond the range of a double"));
    CHECK(fails_with("\"a", "t.json:1:3: expected a closing '\"', found the end"));
    CHECK(fails_with("\"\\",
                     "t.json:1:3: expected one of \"\\/bfnrtu after a backslash, found the end"));
    CHECK(fails_with("\"\\x\"",
                     "t.json:1:3: expected one of \"\\/bfnrtu after a backslash, found 'x'"));
    CHECK(fails_with("\"\n\"",
                     "t.json:1:2: expected an escape for a control character, found byte 0x0A"));
    CHECK(fails_with("\"\\u12G4\"", "t.json:1:6: expected four hexadecimal digits, found 'G'"));
    CHECK(fails_with("\"\\udc00\"",
                     "t.json:1:8: the second half of a surrogate pair has no first half"));
    CHECK(fails_with("\"\\ud800x\"", "t.json:1:8: expected \\u and the second half of a surrogate "
                                     "pair, found 'x'"));
    CHECK(fails_with("\"\xC0\x80\"", "t.json:1:2: expected UTF-8, found byte 0xC0"));
    CHECK(fails_with("\"\xED\xA0\x80\"", "t.json:1:2: expected UTF-8, found byte 0xED"));
    CHECK(fails_with("\"\xF4\x90\x80\x80\"", "t.json:1:2: expected UTF-8, found byte 0xF4"));
    CHECK(fails_with("\xEF\xBB\xBF{}", "t.json:1:1: expected a value, found byte 0xEF"));
}

TEST(duplicate_keys_fail) {
    CHECK(fails_with("{\"a\":1,\n\"a\":2}", "t.json:2:5: a second member with the key \"a\""));
    CHECK(fails_with(
        "{\"k1\":1,\"k2\":2,\"k3\":3,\"k4\":4,\"k5\":5,\"k6\":6,\"k7\":7,\"k8\":8,\"k9\":9,"
        "\"k3\":0}",
        "t.json:1:70: a second member with the key \"k3\""));
}

TEST(nesting_has_a_limit) {
    char text[2 * GD_JSON_MAX_DEPTH + 8];
    for (int depth = GD_JSON_MAX_DEPTH; depth <= GD_JSON_MAX_DEPTH + 1; depth++) {
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        gd_status status;
        gd_json_free(parse_bytes(text, 2 * (size_t)depth, &status));
        CHECK(status == (depth <= GD_JSON_MAX_DEPTH ? GD_OK : GD_E_FORMAT));
    }
    char *deep = malloc(1000000); /* deep nesting must not exhaust the stack */
    memset(deep, '[', 1000000);
    gd_status status;
    gd_json_free(parse_bytes(deep, 1000000, &status));
    CHECK(status == GD_E_FORMAT);
    free(deep);
}

TEST(text_truncated_at_any_byte_fails) {
    for (size_t bytes = 0; bytes < strlen(sample_text); bytes++) {
        gd_status status;
        gd_json_doc *doc = parse_bytes(sample_text, bytes, &status);
        CHECK(doc == NULL && status == GD_E_FORMAT);
        gd_json_free(doc);
    }
}

TEST(text_with_any_changed_byte_does_not_crash) {
    char text[sizeof sample_text];
    for (size_t i = 0; i + 1 < sizeof sample_text; i++)
        for (int value = 0; value < 256; value++) {
            memcpy(text, sample_text, sizeof sample_text);
            text[i] = (char)value;
            gd_status status;
            gd_json_free(parse_bytes(text, sizeof sample_text - 1, &status));
            CHECK(status == GD_OK || status == GD_E_FORMAT);
        }
}

TEST(failed_allocations_return_a_status) {
    for (fault_walk w = {.what = "parsing"}; fault_next(&w);) {
        gd_status status;
        fault_begin(&w);
        gd_json_doc *doc = parse_bytes(sample_text, strlen(sample_text), &status);
        fault_end(&w);
        gd_json_free(doc);
        CHECK_ROUND(&w, status == (w.fired ? GD_E_MEMORY : GD_OK));
    }
}

/* --- writing ---------------------------------------------------------------------------------- */

static void write_example(gd_json_writer *w, int indent) {
    gd_json_writer_begin(w, indent);
    gd_json_put_begin_object(w);
    gd_json_put_key(w, "a \"b\"\n");
    gd_json_put_begin_array(w);
    gd_json_put_int(w, INT64_MIN);
    gd_json_put_double(w, 0.1);
    gd_json_put_bool(w, true);
    gd_json_put_null(w);
    gd_json_put_string_n(w, "\0\x1f\t\\\xC3\xA9", 6);
    gd_json_put_end_array(w);
    gd_json_put_key(w, "empty");
    gd_json_put_begin_object(w);
    gd_json_put_end_object(w);
    gd_json_put_end_object(w);
}

TEST(written_text_is_json) {
    gd_json_writer w;
    char *text;
    size_t bytes;
    write_example(&w, 0);
    CHECK(gd_json_writer_end(&w, &text, &bytes) == GD_OK);
    CHECK(strcmp(text, "{\"a \\\"b\\\"\\n\":[-9223372036854775808,0.1,true,null,"
                       "\"\\u0000\\u001f\\t\\\\\xC3\xA9\"],\"empty\":{}}") == 0);
    CHECK(bytes == strlen(text));
    gd_json_doc *doc = parse_text(text);
    CHECK(doc != NULL && gd_json_at(gd_json_get(gd_json_root(doc), "a \"b\"\n"), 4)->length == 6);
    gd_json_free(doc);
    gd_free(text);

    write_example(&w, 2);
    CHECK(gd_json_writer_end(&w, &text, &bytes) == GD_OK);
    CHECK(strcmp(text,
                 "{\n  \"a \\\"b\\\"\\n\": [\n    -9223372036854775808,\n    0.1,\n    true,\n"
                 "    null,\n    \"\\u0000\\u001f\\t\\\\\xC3\xA9\"\n  ],\n  \"empty\": {}\n}\n") ==
          0);
    gd_free(text);
}

TEST(invalid_json_cannot_be_written) {
    gd_json_writer w;
    char *text;
    size_t bytes;
    const double bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++) {
        gd_json_writer_begin(&w, 0);
        gd_json_put_double(&w, bad[i]);
        CHECK(gd_json_writer_end(&w, &text, &bytes) == GD_E_ARGUMENT && text == NULL);
    }
    gd_json_writer_begin(&w, 0);
    gd_json_put_string(&w, "\xFF");
    CHECK(gd_json_writer_end(&w, &text, &bytes) == GD_E_ARGUMENT);
    gd_json_writer_begin(&w, 0);
    CHECK(gd_json_writer_end(&w, &text, &bytes) == GD_E_STATE); /* no value */
    gd_json_writer_begin(&w, 0);
    gd_json_put_int(&w, 1);
    gd_json_put_int(&w, 2); /* a second value at the top level */
    CHECK(gd_json_writer_end(&w, &text, &bytes) == GD_E_STATE);
    gd_json_writer_begin(&w, 0);
    gd_json_put_begin_object(&w);
    gd_json_put_int(&w, 2); /* a member without a key */
    CHECK(gd_json_writer_end(&w, &text, &bytes) == GD_E_STATE);
    gd_json_writer_begin(&w, 0);
    gd_json_put_begin_array(&w);
    gd_json_put_key(&w, "k"); /* a key outside an object */
    CHECK(gd_json_writer_end(&w, &text, &bytes) == GD_E_STATE);
    gd_json_writer_begin(&w, 0);
    gd_json_put_begin_array(&w);
    gd_json_put_end_object(&w); /* the end of an object in an array */
    CHECK(gd_json_writer_end(&w, &text, &bytes) == GD_E_STATE);
    gd_json_writer_begin(&w, 0);
    gd_json_put_begin_object(&w);
    gd_json_put_key(&w, "k");
    gd_json_put_end_object(&w); /* a key without a value */
    CHECK(gd_json_writer_end(&w, &text, &bytes) == GD_E_STATE);
    gd_json_writer_begin(&w, 0);
    for (int i = 0; i <= GD_JSON_MAX_DEPTH; i++) gd_json_put_begin_array(&w);
    CHECK(gd_json_writer_end(&w, &text, &bytes) == GD_E_STATE);
    write_example(&w, 2);
    gd_json_writer_cancel(&w);
    for (fault_walk faults = {.what = "writing"}; fault_next(&faults);) {
        fault_begin(&faults);
        write_example(&w, 2);
        gd_status status = gd_json_writer_end(&w, &text, &bytes);
        fault_end(&faults);
        CHECK_ROUND(&faults, status == (faults.fired ? GD_E_MEMORY : GD_OK));
        gd_free(text);
    }
}

/* Returns any finite double. */
static double draw_double(draws *d) {
    const uint64_t bits = draw_bits(d);
    double value;
    memcpy(&value, &bits, sizeof value);
    return isfinite(value) ? value : 0;
}

TEST(doubles_are_printed_short_and_read_back_exactly) {
    static const struct {
        double value;
        const char *text;
    } known[] = {{0, "0"},
                 {-0.0, "-0"},
                 {0.1, "0.1"},
                 {1e23, "1e+23"},
                 {5e-324, "5e-324"},
                 {1.0 / 3, "0.3333333333333333"},
                 {100, "100"},
                 {1e15, "1e+15"},
                 {123456.789, "123456.789"},
                 {0.1 + 0.2, "0.30000000000000004"},
                 {DBL_MAX, "1.7976931348623157e+308"}};
    char text[GD_DOUBLE_TEXT];
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        int length = gd_double_print(text, known[i].value);
        CHECK(strcmp(text, known[i].text) == 0 && length == (int)strlen(text));
    }
    draws d = {1};
    for (int i = 0; i < 20000; i++) {
        double value = draw_double(&d);
        gd_double_print(text, value);
        CHECK(gd_double_parse(text, NULL) == value);
    }
}

TEST_MAIN
