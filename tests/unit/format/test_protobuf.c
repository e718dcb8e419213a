/* test_protobuf.c - protocol buffers: both formats compared with Python's, limits, and invalid
 * messages.
 */
#include <math.h>

#include "fuzz/damage.h"
#include "fuzz/fuzz_protobuf.c"
#include "core/error.h"
#include "format/file.h"
#include "core/number.h"
#include "test.h"

static bool says(const char *part) { return strstr(gd_latest_failure(), part) != NULL; }

/* Written by Python's protobuf 7 from the same schema. */
static const char wire[] = "\x08\xf9\xff\xff\xff\xff\xff\xff\xff\xff\x01\x10\x80\x80\x80\x80\x80"
                           "\x80\x80\x80\x80\x01\x18\xff\xff\xff\xff\x0f\x20\xff\xff\xff"
                           "\xff\xff\xff\xff\xff\xff\x01\x28\x01\x30\x05\x3d\xcd\xcc\xcc\x3d\x41"
                           "\x9c\x75\x00\x88\x3c\xe4\x37\x7e\x4a\x0b\x67\x72\xc3\xbc\xc3"
                           "\x9f\x20\x22\x78\x22\x0a\x52\x03\x00\xff\x5c\x5a\x0b\x08\xac\x02\x5a"
                           "\x06\x4a\x04\x64\x65\x65\x70\x62\x02\x10\x01\x62\x00\x68\x00"
                           "\x68\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x68\x7f\x68\x80\x01\x72"
                           "\x0d\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\xac\x02\x7a"
                           "\x08\x00\x00\xc0\x3f\x00\x00\x80\x7f\x8a\x01\x08\x00\x00\x00\x00\x00"
                           "\x00\x00\x80\xc2\x3e\x01\x61\xc2\x3e\x00";
enum { WIRE = sizeof wire - 1 };

static const char text[] = "i32: -7\n"
                           "i64: -9223372036854775808\n"
                           "u32: 4294967295\n"
                           "u64: 18446744073709551615\n"
                           "flag: true\n"
                           "color: GREEN\n"
                           "f: 0.1\n"
                           "d: 1e+300\n"
                           "text: \"grüß \\\"x\\\"\\n\"\n"
                           "data: \"\\000\\377\\\\\"\n"
                           "child {\n"
                           "  i32: 300\n"
                           "  child {\n"
                           "    text: \"deep\"\n"
                           "  }\n"
                           "}\n"
                           "things {\n"
                           "  i64: 1\n"
                           "}\n"
                           "things {\n"
                           "}\n"
                           "numbers: 0\n"
                           "numbers: -1\n"
                           "numbers: 127\n"
                           "numbers: 128\n"
                           "packed: 1\n"
                           "packed: -1\n"
                           "packed: 300\n"
                           "floats: 1.5\n"
                           "floats: inf\n"
                           "doubles: -0\n"
                           "names: \"a\"\n"
                           "names: \"\"\n";

static gd_status read_wire(gd_pb_doc **doc, const char *data, size_t bytes) {
    return gd_pb_read(doc, &thing_schema, "thing.pb", data, bytes);
}
static gd_status read_text(gd_pb_doc **doc, const char *data) {
    return gd_pb_read_text(doc, &thing_schema, "thing.txt", data, strlen(data));
}

static void check_values(gd_pb_doc *doc) {
    const gd_pb *root = gd_pb_root(doc);
    CHECK(gd_pb_int(root, "i32", 0) == -7 && gd_pb_int(root, "i64", 0) == INT64_MIN);
    CHECK(gd_pb_int(root, "u32", 0) == UINT32_MAX &&
          (uint64_t)gd_pb_int(root, "u64", 0) == UINT64_MAX);
    CHECK(gd_pb_int(root, "flag", 0) == 1 && gd_pb_int(root, "color", 0) == 5);
    CHECK(gd_pb_float(root, "f", 0) == (double)0.1f && gd_pb_float(root, "d", 0) == 1e300);
    CHECK(strcmp(gd_pb_string(root, "text"), "grüß \"x\"\n") == 0);
    const gd_pb_list *data = gd_pb_get(root, "data");
    CHECK(data && data->bytes[0].length == 3 && memcmp(data->bytes[0].data, "\0\377\\", 3) == 0);
    const gd_pb *child = gd_pb_message(root, "child");
    CHECK(gd_pb_int(child, "i32", 0) == 300);
    CHECK(strcmp(gd_pb_string(gd_pb_message(child, "child"), "text"), "deep") == 0);
    CHECK(gd_pb_count(root, "things") == 2 &&
          gd_pb_int(gd_pb_message_at(root, "things", 0), "i64", 0) == 1);
    CHECK(gd_pb_count(gd_pb_message_at(root, "things", 1), "i64") == 0);
    const gd_pb_list *numbers = gd_pb_get(root, "numbers"), *packed = gd_pb_get(root, "packed");
    CHECK(numbers && numbers->count == 4 && numbers->ints[1] == -1 && numbers->ints[3] == 128);
    CHECK(packed && packed->count == 3 && packed->ints[1] == -1 && packed->ints[2] == 300);
    const gd_pb_list *floats = gd_pb_get(root, "floats"), *doubles = gd_pb_get(root, "doubles");
    CHECK(floats && floats->count == 2 && floats->floats[0] == 1.5f && isinf(floats->floats[1]));
    CHECK(doubles && doubles->count == 1 && signbit(gd_pb_float_at(doubles, 0)));
    CHECK(gd_pb_count(root, "names") == 2 && strcmp(gd_pb_string_at(root, "names", 0), "a") == 0);
    CHECK(gd_pb_get(root, "nothing") == NULL && gd_pb_int(root, "nothing", 3) == 3 &&
          gd_pb_message(root, "nothing") == NULL);
}

TEST(messages_written_by_python_are_read_and_written_byte_for_byte) {
    gd_pb_doc *doc, *from_text;
    char *again, *printed;
    size_t bytes, length;
    CHECK(read_wire(&doc, wire, WIRE) == GD_OK);
    check_values(doc);
    CHECK(gd_pb_print(doc, &again, &bytes) == GD_OK && bytes == WIRE &&
          memcmp(again, wire, WIRE) == 0);
    CHECK(gd_pb_print_text(doc, &printed, &length) == GD_OK);
    CHECK_SAYING(strcmp(printed, text) == 0, "%s", printed);
    gd_free(again);
    CHECK_SAYING(read_text(&from_text, text) == GD_OK, "%s", gd_latest_failure());
    check_values(from_text);
    CHECK(gd_pb_print(from_text, &again, &bytes) == GD_OK && bytes == WIRE &&
          memcmp(again, wire, WIRE) == 0);
    gd_free(again);
    gd_free(printed);
    gd_pb_free(from_text);
    gd_pb_free(doc);
}

TEST(bytes_are_not_copied) {
    gd_pb_doc *doc;
    CHECK(read_wire(&doc, wire, WIRE) == GD_OK);
    const gd_pb_list *data = gd_pb_get(gd_pb_root(doc), "data");
    CHECK(data && data->bytes[0].data > wire && data->bytes[0].data < wire + WIRE);
    gd_pb_free(doc);
}

TEST(a_message_is_filled_and_written) {
    gd_pb_doc *doc = gd_pb_new(&thing_schema);
    gd_pb *root = gd_pb_root(doc);
    gd_pb_put_int(root, "color", 10);
    gd_pb_put_int(root, "color", 5); /* not repeated: the last value wins */
    gd_pb *child = gd_pb_put_message(root, "things");
    gd_pb_put_string(child, "text", "x");
    gd_pb_put_float(child, "floats", 0.25);
    gd_pb_put_bytes(root, "data", "ab\0", 3);
    char *out;
    size_t bytes;
    CHECK(gd_pb_print_text(doc, &out, &bytes) == GD_OK);
    CHECK_SAYING(
        strcmp(out,
               "color: GREEN\ndata: \"ab\\000\"\nthings {\n  text: \"x\"\n  floats: 0.25\n}\n") ==
            0,
        "%s", out);
    gd_free(out);
    gd_pb_put_int(root, "text", 1);
    /* writes to a missing message are ignored */
    gd_pb_put_int(gd_pb_put_message(root, "no such"), "i32", 1);
    CHECK(gd_pb_print(doc, &out, &bytes) == GD_E_ARGUMENT && says("'text'") && out == NULL);
    gd_pb_free(doc);
}

TEST(packed_and_unpacked_numbers_are_read_and_unknown_fields_are_skipped) {
    gd_pb_doc *doc;
    /* packed numbers one by one, unpacked ones packed; fields 16 (all wire types), 500 */
    static const char mixed[] =
        "\x70\x05\x70\x06\x6a\x02\x07\x08\x80\x01\x01\x85\x01\x01\x02\x03\x04\x82\x01\x02zz"
        "\x81\x01\x01\x02\x03\x04\x05\x06\x07\x08\x08\x09";
    CHECK_SAYING(read_wire(&doc, mixed, sizeof mixed - 1) == GD_OK, "%s", gd_latest_failure());
    const gd_pb_list *packed = gd_pb_get(gd_pb_root(doc), "packed"),
                     *numbers = gd_pb_get(gd_pb_root(doc), "numbers");
    CHECK(packed && packed->count == 2 && packed->ints[1] == 6);
    CHECK(numbers && numbers->count == 2 && numbers->ints[1] == 8);
    CHECK(gd_pb_int(gd_pb_root(doc), "i32", 0) == 9);
    gd_pb_free(doc);
    /* doubles that are not copied, and more of them behind */
    static const char doubles[] = "\x8a\x01\x08\0\0\0\0\0\0\xf0\x3f\x89\x01\0\0\0\0\0\0\0\x40"
                                  "\x8a\x01\x08\0\0\0\0\0\0\x08\x40";
    CHECK(read_wire(&doc, doubles, 11) == GD_OK);
    const gd_pb_list *viewed = gd_pb_get(gd_pb_root(doc), "doubles");
    CHECK(viewed && viewed->items == doubles + 3 &&
          gd_pb_float(gd_pb_root(doc), "doubles", 0) == 1);
    gd_pb_free(doc);
    CHECK(read_wire(&doc, doubles, sizeof doubles - 1) == GD_OK);
    viewed = gd_pb_get(gd_pb_root(doc), "doubles");
    CHECK(viewed && viewed->count == 3);
    for (int i = 0; i < 3; i++) CHECK(gd_pb_float_at(viewed, (size_t)i) == i + 1);
    gd_pb_free(doc);
    /* a message in two parts is merged */
    CHECK(read_wire(&doc, "\x5a\x02\x08\x01\x5a\x02\x10\x02", 8) == GD_OK);
    const gd_pb *child = gd_pb_message(gd_pb_root(doc), "child");
    CHECK(gd_pb_int(child, "i32", 0) == 1 && gd_pb_int(child, "i64", 0) == 2);
    gd_pb_free(doc);
}

TEST(a_message_truncated_anywhere_fails_or_is_valid) {
    for (size_t n = 0; n < WIRE; n++) {
        /* a heap copy of exactly this size, so that AddressSanitizer detects reads beyond it */
        char *part = malloc(n + 1);
        memcpy(part, wire, n);
        gd_pb_doc *doc;
        gd_status status = gd_pb_read(&doc, &thing_schema, "cut", part, n);
        CHECK(status == GD_OK || (status == GD_E_FORMAT && doc == NULL && says("cut: byte ")));
        if (status == GD_OK) check_way_back(doc, true);
        gd_pb_free(doc);
        free(part);
    }
}

static void check_wire_fails(const char *data, size_t bytes, const char *message) {
    gd_pb_doc *doc;
    CHECK(read_wire(&doc, data, bytes) == GD_E_FORMAT && doc == NULL);
    CHECK_SAYING(says(message), "%s", gd_latest_failure());
}

TEST(a_wrong_message_is_refused_with_the_place_and_the_field) {
    check_wire_fails("\x62\x02\x10\x01\x62\x03\x4a\x05z", 9,
                     "thing.pb: byte 7: things[1].text: needs 5 bytes where 1 are left");
    check_wire_fails("\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x02", 11,
                     "byte 1: i32: a number has more than 64 bits");
    check_wire_fails("\x08\xff", 2, "i32: a number is truncated");
    check_wire_fails("\x0a\x00", 2, "i32: has wire type 2; in a Thing it has 0");
    check_wire_fails("\x0b", 1, "i32: has wire type 3");
    check_wire_fails("\x83\x01", 2, "byte 2: a group");
    check_wire_fails("\x00", 1, "byte 0: a field number must be from 1 to 2^29 - 1");
    check_wire_fails("\x4a\x02\xc3\x28", 4, "text: a string is not UTF-8");
    check_wire_fails("\x4a\x01\0", 3, "text: a string is not UTF-8, or holds a zero byte");
    check_wire_fails("\x3d\x00\x00", 3, "f: a number is truncated");
    check_wire_fails("\x7a\x05\x00\x00\x00\x00\x00", 7,
                     "floats[0]: packed numbers do not fill their bytes");
    check_wire_fails("\x72\x02\x01\x80", 4, "byte 3: packed[0]: a number is truncated");
    check_wire_fails("\x5a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11,
                     "child: needs 18446744073709551615 bytes where 0 are left");
}

TEST(nesting_has_a_limit) {
    enum { DEEP = 400 };
    char *nested = malloc(2 * DEEP * 3), *prose = malloc(DEEP * 9 + 1);
    gd_pb_doc *doc;
    for (int levels = 98; levels <= 101; levels++) {
        size_t at = 2 * DEEP * 3;
        for (int i = 0; i < levels; i++) { /* from the inside out */
            const size_t length = 2 * DEEP * 3 - at;
            if (length >= 128)
                nested[--at] = (char)(length >> 7), nested[--at] = (char)(length | 0x80);
            else nested[--at] = (char)length;
            nested[--at] = 0x5a;
        }
        prose[0] = '\0';
        for (int i = 0; i < levels; i++) strcat(prose, "child{");
        for (int i = 0; i < levels; i++) strcat(prose, "}");
        const bool fits = levels <= 99;
        CHECK((read_wire(&doc, nested + at, 2 * DEEP * 3 - at) == GD_OK) == fits);
        if (fits) check_way_back(doc, false);
        else
            CHECK_SAYING(says("child.child.child.child.child.child....child") && says("100 levels"),
                         "%s", gd_latest_failure());
        gd_pb_free(doc);
        CHECK((read_text(&doc, prose) == GD_OK) == fits);
        gd_pb_free(doc);
    }
    free(nested);
    free(prose);
}

TEST(text_is_read_in_all_notations) {
    gd_pb_doc *doc;
    CHECK_SAYING(
        read_text(&doc, "# a comment\n"
                        "i32: 0x1F, i64: -017; u32 : 7 flag: t color: 10\n"
                        "f: 1.5f d: .5e-3 text: 'it''s \\x41\\102\\u00e9\\U0001F600' # more\n"
                        " \"!\"\n"
                        "things < i32: 1 > things: { i32: 2 } things [{i32: 3}, <i32: 4>]\n"
                        "numbers: [1, -2,3] numbers: 4 packed: [] floats: [-inf, nan, 1]") == GD_OK,
        "%s", gd_latest_failure());
    const gd_pb *root = doc ? gd_pb_root(doc) : NULL;
    CHECK(gd_pb_int(root, "i32", 0) == 31 && gd_pb_int(root, "i64", 0) == -15 &&
          gd_pb_int(root, "u32", 0) == 7);
    CHECK(gd_pb_int(root, "flag", 0) == 1 && gd_pb_int(root, "color", 0) == 10);
    CHECK(gd_pb_float(root, "f", 0) == 1.5 && gd_pb_float(root, "d", 0) == 0.5e-3);
    CHECK_SAYING(strcmp(gd_pb_string(root, "text"), "its ABé😀!") == 0, "%s",
                 gd_pb_string(root, "text"));
    CHECK(gd_pb_count(root, "things") == 4 &&
          gd_pb_int(gd_pb_message_at(root, "things", 3), "i32", 0) == 4);
    CHECK(gd_pb_message_at(root, "things", 1)->line == 5 &&
          gd_pb_message_at(root, "things", 1)->column == 19 && /* of its name */
          gd_pb_message_at(root, "things", 3)->column == 56);
    CHECK(gd_pb_count(root, "numbers") == 4 && gd_pb_count(root, "packed") == 0);
    const gd_pb_list *floats = gd_pb_get(root, "floats");
    CHECK(floats && isinf(floats->floats[0]) && isnan(floats->floats[1]) && floats->floats[2] == 1);
    gd_pb_free(doc);
}

static void check_text_fails(const char *data, const char *message) {
    gd_pb_doc *doc;
    CHECK(read_text(&doc, data) == GD_E_FORMAT && doc == NULL);
    CHECK_SAYING(says(message), "%s: %s", data, gd_latest_failure());
}

TEST(invalid_text_fails_with_line_column_and_field) {
    check_text_fails("i32: 1\nthings {\n  wrong: 1\n}",
                     "thing.txt:3:3: things[0] has no field 'wrong'");
    check_text_fails("wrong: 1", "thing.txt:1:1: a Thing has no field 'wrong'");
    check_text_fails("i32: x", "thing.txt:1:6: i32: expected an integer of 32 bits, found 'x'");
    check_text_fails("i32: 2147483648", "i32: expected an integer of 32 bits, found '2147483648'");
    check_text_fails("u32: -1", "u32: expected a nonnegative integer");
    check_text_fails("i32: 1 i32: 2", "thing.txt:1:8: i32: is given twice");
    check_text_fails("i32: [1]", "i32: takes one value");
    check_text_fails("color: PINK", "color: expected RED, GREEN or BLUE, found 'PINK'");
    check_text_fails("color: 'BLEU'", "color: expected RED, GREEN or BLUE without quotes, found a "
                                      "string in quotes; did you mean BLUE?");
    check_text_fails("child: {}\n child: {}",
                     "thing.txt:2:2: child: is given twice, first in line 1");
    check_text_fails("text: \"a\n\"", "text: expected a closing quote, found the end of the line");
    check_text_fails("text: \"\\q\"", "expected an escape");
    check_text_fails("text: \"\\xff\"", "text: a string is not UTF-8");
    check_text_fails("text: x", "text: expected a string in quotes, found 'x'; write \"x\"");
    check_text_fails("\nchild { i32: 1",
                     "child: expected '}' for the bracket of line 2, found the end");
    check_text_fails("child < i32: 1 }", "child: expected the name of a field, found '}'");
    check_text_fails("child: 3", "child: expected '{', found '3'");
    check_text_fails("numbers: [1 2]", "numbers[0]: expected ',' or ']', found '2'");
    check_text_fails("numbers: [1,]", "expected a value");
    check_text_fails("i32 1", "i32: expected ':'");
    check_text_fails("[a.b]: 1", "expected the name of a field, found '['");
    check_text_fails("f: 0x10", "f: expected a number");
    check_text_fails("i32: ", "i32: expected an integer of 32 bits, found the end");
}

/* --- short form of fuzz/fuzz_protobuf.c: a fixed sequence of damaged messages --------------------
 */

TEST(damaged_messages_never_crash_and_can_be_written_if_they_are_read) {
    for (int round = 0; round < 20000; round++) {
        size_t size;
        uint8_t *data = round & 1 ? damaged_copy(text, sizeof text - 1, &size)
                                  : damaged_copy(wire, WIRE, &size);
        LLVMFuzzerTestOneInput(data, size);
        free(data);
    }
}

TEST_MAIN
