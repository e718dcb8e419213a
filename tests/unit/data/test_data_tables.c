/* test_data_tables.c - datasets of CSV files and NumPy arrays. */
#include <math.h>

#include "capture.h"
#include "clean_test.h"
#include "core/alloc.h"
#include "core/error.h"
#include "data_files.h"
#include "data_gather.h"
#include "files.h"
#include "format/csv.h"
#include "gradus/gradus.h"
#include "temp.h"

/* --- records ---------------------------------------------------------------------------------- */

/* All fields of a CSV text in the form "a|b;c|d;"; NULL: failed. */
static const char *fields_of(const char *text, size_t bytes, char separator) {
    static char out[2000];
    uint8_t *exact = malloc(bytes ? bytes : 1);
    gd_stream *stream;
    gd_csv *csv;
    const gd_csv_field *fields;
    int count = 1;
    size_t used = 0;
    memcpy(exact, text, bytes);
    out[0] = 0;
    if (gd_stream_open_memory(&stream, "t.csv", exact, bytes) != GD_OK) abort();
    if (gd_csv_open(&csv, stream, separator) != GD_OK) abort();
    gd_status status;
    while ((status = gd_csv_next(csv, &fields, &count)) == GD_OK && count > 0) {
        for (int i = 0; i < count; i++) {
            CHECK(strlen(fields[i].text) == fields[i].length);
            used += (size_t)snprintf(out + used, sizeof out - used, "%s%s", fields[i].text,
                                     i + 1 < count ? "|" : ";");
        }
    }
    gd_csv_close(csv);
    gd_stream_close(stream);
    free(exact);
    return status == GD_OK ? out : NULL;
}
static const char *fields_in(const char *text) { return fields_of(text, strlen(text), ','); }

#define CHECK_FIELDS(text, expected)                                                               \
    do {                                                                                           \
        const char *got_ = fields_in(text);                                                        \
        CHECK_SAYING(got_ &&strcmp(got_, expected) == 0, "%s", got_ ? got_ : gd_latest_failure()); \
    } while (0)

CLEAN_TEST(csv_records_follow_rfc_4180) {
    CHECK_FIELDS("a,b\nc,d\n", "a|b;c|d;");
    CHECK_FIELDS("a,b\r\nc,d", "a|b;c|d;");
    CHECK_FIELDS("a,b\rc,d\r", "a|b;c|d;");
    CHECK_FIELDS("\"a,1\",\"b\"\"c\"\n", "a,1|b\"c;");
    CHECK_FIELDS("\"two\nlines\",x\n", "two\nlines|x;");
    CHECK_FIELDS("\xEF\xBB\xBF"
                 "a,\n,b",
                 "a|;|b;");
    CHECK_FIELDS("\n\n  \na,b\n\n\n", "a|b;");
    CHECK_FIELDS(" a b , \"c \" ,d\n", "a b|c |d;");
    CHECK_FIELDS("a,,\n\"\"\n", "a||;;");
    CHECK_FIELDS("it's 5\" long,b", "it's 5\" long|b;");
    CHECK_FIELDS("", "");
    CHECK(strcmp(fields_of("a\tb\n", 4, '\t'), "a|b;") == 0);
    CHECK(strcmp(fields_of("1,5;2\n", 6, ';'), "1,5|2;") == 0);
}

CLEAN_TEST(damaged_csv_fails_with_line_and_column) {
    CHECK(!fields_in("a,b\nc,\"d") &&
          strstr(gd_latest_failure(), "t.csv: line 2, character 3: the quote"));
    CHECK(!fields_in("a,\"b\"c\n") &&
          strstr(gd_latest_failure(), "line 1, character 6: text after"));
    CHECK(!fields_in("\"a\nb\",\"c\"d") && strstr(gd_latest_failure(), "line 2, character 7"));
    CHECK(!fields_of("a,\0b", 4, ',') &&
          strstr(gd_latest_failure(), "line 1, character 3: a zero byte"));
    CHECK(!fields_in("\xC3\xA4,\"b\"c") && strstr(gd_latest_failure(), "character 6"));
}

/* --- tables ----------------------------------------------------------------------------------- */

static const char houses[] = "size,city,rooms,price\n"
                             "100,Bern,3,500\n"
                             "50,Aarau,2,300\n"
                             "75,\"Bern\",2,410.5\n";

static void check_floats(gd_tensor *t, int64_t count, const float *expected) {
    CHECK_SAYING(gd_tensor_dtype(t) == GD_F32 && gd_tensor_numel(t) == count, "%s %lld",
                 gd_error_message(), (long long)gd_tensor_numel(t));
    if (gd_tensor_numel(t) != count) return;
    const float *got = gd_data(t);
    for (int64_t i = 0; i < count; i++)
        CHECK_SAYING(fabsf(got[i] - expected[i]) < 1e-6f, "%lld: %g, expected %g", (long long)i,
                     (double)got[i], (double)expected[i]);
}
#define CHECK_FLOATS(t, ...)                                                   \
    check_floats(t, (int64_t)(sizeof((float[]){__VA_ARGS__}) / sizeof(float)), \
                 (float[]){__VA_ARGS__})

CLEAN_TEST(columns_are_numbers_and_categories) {
    GD_SCOPE;
    const char *path = temp_write_text("houses.csv", houses);
    gd_dataset *d = gd_dataset_csv(path, .target = "price");
    CHECK_SAYING(gd_dataset_count(d) == 3, "%s", gd_error_message());
    gd_tensors row = gd_dataset_get(d, 0);
    CHECK_FLOATS(row.at[0], 100, 0, 1, 3); /* Aarau, Bern */
    CHECK_FLOATS(row.at[1], 500);
    CHECK(gd_tensor_rank(row.at[1]) == 1 && gd_dataset_class_count(d) == 0);
    CHECK_FLOATS(gd_dataset_get(d, 1).at[0], 50, 1, 0, 2);

    d = gd_dataset_csv(path, .target = "city", .columns = "rooms size");
    row = gd_dataset_get(d, 2);
    CHECK_FLOATS(row.at[0], 2, 75);
    CHECK(gd_item_int(row.at[1]) == 1 && gd_tensor_rank(row.at[1]) == 0);
    CHECK(gd_dataset_class_count(d) == 2 && strcmp(gd_dataset_class_name(d, 1), "Bern") == 0);

    d = gd_dataset_new("csv", "path=x target=3");
    CHECK(!d && says("x: cannot be opened"));
    gd_clear_error();
    d = gd_dataset_csv(path, .target = "3", .categories = GD_INDEX, .types = "rooms:category");
    CHECK_FLOATS(gd_dataset_get(d, 0).at[0], 100, 1, 1);
    d = gd_dataset_csv(path);
    row = gd_dataset_get(d, 0);
    CHECK(row.count == 1);
    CHECK_FLOATS(row.at[0], 100, 0, 1, 3, 500);
}

CLEAN_TEST(categories_that_are_numbers_are_sorted_as_numbers) {
    GD_SCOPE;
    const char *path = temp_write_text("n.csv", "1;10\n2;9\n3;2\n4;10\n");
    gd_dataset *d = gd_dataset_csv(path, .separator = ";", .target = "1:category");
    CHECK_SAYING(gd_dataset_class_count(d) == 3, "%s", gd_error_message());
    CHECK(strcmp(gd_dataset_class_name(d, 0), "2") == 0 &&
          strcmp(gd_dataset_class_name(d, 2), "10") == 0);
    CHECK(gd_item_int(gd_dataset_get(d, 0).at[1]) == 2 &&
          gd_item_int(gd_dataset_get(d, 2).at[1]) == 0);
    CHECK(gd_dataset_count(d) == 4); /* no header: numbers in the first line */
    CHECK(gd_dataset_count(gd_dataset_csv(path, .separator = ";", .header = GD_YES)) == 3);
}

CLEAN_TEST(missing_values_follow_the_option) {
    GD_SCOPE;
    const char *path = temp_write_text("m.csv", "a,b,y\n1,u,1\n,v,2\n3,,3\n5,u,\n");
    CHECK(!gd_dataset_csv(path, .target = "y") &&
          says("line 3, column 1 (a): '' is a missing value"));
    gd_clear_error();
    CHECK(!gd_dataset_csv(path, .target = "y", .missing = GD_MEAN) && says("line 5") &&
          says("of the target"));
    gd_clear_error();
    gd_dataset *d = gd_dataset_csv(path, .target = "y", .missing = GD_DROP);
    CHECK(gd_dataset_count(d) == 1);
    path = temp_write_text("m.csv", "a,b\n1,u\nNA,v\n3,\n5,u\n");
    d = gd_dataset_csv(path, .missing = GD_MEAN);
    CHECK_FLOATS(gd_dataset_get(d, 1).at[0], 3, 0, 1, 0);
    CHECK_FLOATS(gd_dataset_get(d, 2).at[0], 3, 0, 0, 1); /* missing values are the last category */
    d = gd_dataset_csv(path, .missing = GD_ZERO, .categories = GD_INDEX);
    CHECK_FLOATS(gd_dataset_get(d, 1).at[0], 0, 1);
}

CLEAN_TEST(numbers_are_standardized_with_the_training_statistics) {
    GD_SCOPE;
    const char *train = temp_write_text("train.csv", "x,c,y\n1,b,0\n3,a,1\n5,b,0\n");
    const char *test = temp_write_text("test.csv", "y,c,x\n1,b,7\n");
    gd_dataset *d = gd_dataset_csv(train, .target = "y", .standardize = true);
    const float scale = sqrtf(8.0f / 3);
    CHECK_FLOATS(gd_dataset_get(d, 0).at[0], -2 / scale, 0, 1);
    CHECK_FLOATS(gd_dataset_get(d, 1).at[0], 0, 1, 0);
    d = gd_dataset_csv(test, .target = "y", .standardize = true, .like = train);
    CHECK_SAYING(d, "%s", gd_error_message());
    CHECK_FLOATS(gd_dataset_get(d, 0).at[0], 4 / scale, 0, 1);
    CHECK_FLOATS(gd_dataset_get(d, 0).at[1], 1);
    const char *twice = temp_write_text("twice.csv", "x,x\n1,2\n3,4\n");
    CHECK_FLOATS(gd_dataset_get(gd_dataset_csv(twice, .like = twice), 1).at[0], 3, 4);
    temp_write_text("test.csv", "x,c,y\n1,z,1\n");
    CHECK(!gd_dataset_csv(test, .target = "y", .like = train) &&
          says("line 2, column 2 (c): 'z' is a category"));
    gd_clear_error();
    temp_write_text("test.csv", "x,c,y\nno,b,1\n");
    CHECK(!gd_dataset_csv(test, .target = "y", .like = train) && says("'no' is not a number"));
    gd_clear_error();
    temp_write_text("test.csv", "x,c\n1,b\n");
    CHECK(!gd_dataset_csv(test, .target = "y", .like = train) &&
          says("has no column 'y'; it has x, c"));
}

/* A failure must not be followed by a dataset; its message has all these parts. */
#define CHECK_FAILS(dataset, ...)                                                       \
    do {                                                                                \
        const char *const parts_[] = {__VA_ARGS__};                                     \
        CHECK(!(dataset) && gd_failed());                                               \
        for (size_t i_ = 0; i_ < sizeof parts_ / sizeof *parts_; i_++)                  \
            CHECK_SAYING(says(parts_[i_]), "'%s': %s", parts_[i_], gd_error_message()); \
        gd_clear_error();                                                               \
    } while (0)

CLEAN_TEST(numbers_with_decimal_commas_fail_or_are_read_with_the_option) {
    GD_SCOPE;
    const char *path = temp_write_text("de.csv", "size;price\n1,5;2\n2;3\n-1.234,5e1;4\n");
    CHECK_FAILS(gd_dataset_csv(path, .separator = ";", .target = "price"),
                "line 2, column 1 (size): '1,5' looks like a number with a decimal comma",
                "2 of the 2 texts", "decimal=comma", "types='size:category'");
    gd_dataset *d =
        gd_dataset_csv(path, .separator = ";", .target = "price", .types = "size:category");
    CHECK(gd_dataset_count(d) == 3);
    d = gd_dataset_csv(path, .separator = ";", .target = "price", .decimal = ",");
    CHECK_SAYING(d, "%s", gd_error_message()); /* as the message promises */
    CHECK_FLOATS(gd_dataset_get(d, 2).at[0], -12345);
    path = temp_write_text("de.csv", "size;price\n1,5;2\n2;3\n-2,5e1;4\n");
    d = gd_dataset_csv(path, .separator = ";", .target = "price", .decimal = ",");
    CHECK_SAYING(d, "%s", gd_error_message());
    CHECK_FLOATS(gd_dataset_get(d, 0).at[0], 1.5f);
    CHECK_FLOATS(gd_dataset_get(d, 1).at[0], 2);
    CHECK_FLOATS(
        gd_dataset_get(gd_dataset_csv(path, .separator = ";", .decimal = "comma"), 2).at[0], -25,
        4);
    CHECK_FAILS(gd_dataset_csv(path, .separator = ";", .types = "size:number"),
                "line 2, column 1 (size): '1,5' is not a number with a decimal point",
                "decimal=comma");
    path = temp_write_text("points.csv", "a;b\nx;1.5\ny;2.5\n");
    CHECK_FAILS(gd_dataset_csv(path, .separator = ";", .decimal = ","), "column 2 (b): '1.5'",
                "decimal point", "decimal=point");
    path = temp_write_text("thousands.csv", "a,b\n\"1,234.5\",1\n\"1,234,567.25\",2\n");
    CHECK_FLOATS(gd_dataset_get(gd_dataset_csv(path), 1).at[0], 1234567.25f, 2);
    path = temp_write_text("not.csv", "a;b\n12.34,5;1\n1234.567,5;2\n1.234.5,6;3\n,5.1;4\n");
    d = gd_dataset_csv(path, .separator = ";", .decimal = ",", .categories = GD_INDEX);
    CHECK_SAYING(d, "%s", gd_error_message());
    CHECK_FLOATS(gd_dataset_get(d, 0).at[0], 2, 1);       /* no numbers: the third of four */
    path = temp_write_text("none.csv", "1,5;x\n2,5;y\n"); /* read as a header and one row */
    CHECK_FAILS(gd_dataset_csv(path, .separator = ";"), "'2,5' looks like a number");
    path = temp_write_text("dates.csv", "day;n\n12.05.2024;1\n13.05.2024;2\n");
    CHECK(gd_dataset_csv(path, .separator = ";", .decimal = ",")); /* dates are no numbers */
    CHECK_FAILS(gd_dataset_csv(path, .decimal = ","), "separator and decimal are the same");
    CHECK_FAILS(gd_dataset_csv(path, .decimal = "x"), "decimal is 'x'");
}

/* A few decimal commas between numbers make no categories of all. */
CLEAN_TEST(a_share_of_decimal_commas_is_an_error_in_a_column_of_numbers) {
    GD_SCOPE;
    static const char *const files[] = {"size;y\n7;1\nabc;2\ndef;3\n1,5;4\n",
                                        "size;y\n7;1\n8;2\nunknown;3\n1,5;4\n",
                                        "size;y\n7;1\n8;2\nunknown;3\n1 234,5;4\n",
                                        "size;y\n7;1\n8;2\n9;3\n1'234,5;4\n",
                                        "size;y\n7;1\n8;2\n9;3\n1\xC2\xA0"
                                        "234,5;4\n",
                                        "size;y\n7;1\n8;2\n9;3\n1\xE2\x80\xAF"
                                        "234,5;4\n",
                                        "size;y\n7;1\n8;2\n9;3\n\xE2\x88\x92"
                                        "1,5;4\n"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        CHECK_FAILS(gd_dataset_csv(temp_write_text("some.csv", files[i]), .separator = ";"),
                    "line 5, column 1 (size): '", "looks like a number with a decimal comma",
                    "decimal=comma");
    const char *path = temp_write_text("some.csv", "size;y\nabc;1\ndef;2\n1,5;3\n");
    CHECK(gd_dataset_csv(path, .separator = ";")); /* a text among texts */
}

CLEAN_TEST(marks_of_thousands_are_read_with_a_decimal_comma) {
    GD_SCOPE;
    static const char text[] = "size;y\n1 234,5;1\n1\xC2\xA0"
                               "234,5;1\n1\xE2\x80\xAF"
                               "234,5;1\n1'234,5;1\n"
                               "\xE2\x88\x92"
                               "1.234,5;1\n1 234;1\n12 345 678;1\n";
    static const float expected[] = {1234.5f, 1234.5f, 1234.5f, 1234.5f, -1234.5f, 1234, 12345678};
    const char *path = temp_write_text("marks.csv", text);
    gd_dataset *d = gd_dataset_csv(path, .separator = ";", .decimal = "comma", .target = "y");
    CHECK_SAYING(d, "%s", gd_error_message());
    for (int i = 0; d && i < 7; i++) CHECK_FLOATS(gd_dataset_get(d, i).at[0], expected[i]);
    path = temp_write_text("marks.csv", "size,y\n1'234.5,1\n\xE2\x88\x92"
                                        "2.5,1\n");
    CHECK_FLOATS(gd_dataset_get(gd_dataset_csv(path, .target = "y"), 0).at[0], 1234.5f);
    CHECK_FLOATS(gd_dataset_get(gd_dataset_csv(path, .target = "y"), 1).at[0], -2.5f);
    /* not thousands */
    static const char *const texts[] = {"1 23,5", "1234 567", "1  234", "12 345.5", "1'234 567"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char file[100];
        snprintf(file, sizeof file, "size;y\n%s;1\n", texts[i]);
        CHECK_FAILS(gd_dataset_csv(temp_write_text("marks.csv", file), .separator = ";",
                                   .decimal = "comma", .types = "size:number"),
                    "is not a number");
    }
}

static char unit_notice[1024];
static void keep_notice(gd_log_level level, const char *message, void *user) {
    (void)level, (void)user;
    snprintf(unit_notice, sizeof unit_notice, "%s", message);
}

CLEAN_TEST(numbers_with_units_are_categories_and_the_log_says_so) {
    GD_SCOPE;
    static const struct {
        const char *text;
        bool notice;
    } files[] = {{"price;y\n5,00 \xE2\x82\xAC;1\n6,10 \xE2\x82\xAC;2\n", true},
                 {"price;y\n5%;1\n6%;2\nnone;1\n", true},
                 {"price;y\n$1,234.50;1\n$6;2\n", true},
                 {"price;y\n1,5 kg;1\n2,5 kg;2\n", true},
                 {"price;y\n3rd;1\n4th;2\n", false},
                 {"price;y\n5 Main Street;1\n6 Main Street;2\n", false},
                 {"price;y\n#5;1\n#6;2\n", false},
                 {"price;y\n1.5.3;1\n4-5;2\n", false},
                 {"price;y\nroom 5;1\nroom 6;2\n", false},
                 {"price;y\n5%;1\nx;2\ny;3\n", false}};
    gd_set_log(keep_notice, NULL);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const char *path = temp_write_text("units.csv", files[i].text);
        *unit_notice = 0;
        gd_dataset *d = gd_dataset_csv(path, .separator = ";");
        CHECK_SAYING(d, "%s: %s", files[i].text, gd_error_message());
        CHECK_SAYING(!!strstr(unit_notice, "column price: ") == files[i].notice, "%s: '%s'",
                     files[i].text, unit_notice);
        *unit_notice = 0;
        CHECK(gd_dataset_csv(path, .separator = ";", .types = "price:category") && !*unit_notice);
    }
    gd_set_log(NULL, NULL);
}

/* As where "-" stands for a missing value. */
CLEAN_TEST(a_few_decimal_commas_among_texts_are_categories_and_the_log_says_so) {
    GD_SCOPE;
    static const char *const files[] = {"price;y\n-;2\n-;2\n-;2\n1,7;3\n1,8;3\n",
                                        "price;y\nnone;2\n1,8;3\n"};
    gd_set_log(keep_notice, NULL);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const char *path = temp_write_text("few.csv", files[i]);
        *unit_notice = 0;
        CHECK_SAYING(gd_dataset_csv(path, .separator = ";", .target = "y"), "%s",
                     gd_error_message());
        CHECK_SAYING(strstr(unit_notice, "column price: ") &&
                         strstr(unit_notice, "numbers with a decimal comma") &&
                         strstr(unit_notice, "types='price:category'"),
                     "'%s'", unit_notice);
        *unit_notice = 0;
        CHECK(gd_dataset_csv(path, .separator = ";", .types = "price:category") && !*unit_notice);
    }
    gd_set_log(NULL, NULL);
}

CLEAN_TEST(a_forgotten_separator_is_named) {
    GD_SCOPE;
    const char *path = temp_write_text("s.csv", "size;price;city\n1;2;a\n");
    CHECK_FAILS(gd_dataset_csv(path), "has one column, 'size;price;city'",
                "with separator=; it has 3");
    CHECK(gd_dataset_csv(path, .separator = ";") && gd_dataset_csv(path, .separator = ","));
    path = temp_write_text("s.csv", "size\tprice\n1\t2\n");
    CHECK_FAILS(gd_dataset_csv(path), "with separator=tab it has 2");
    path = temp_write_text("s.csv", "size|price|city\n1|2|a\n");
    CHECK_FAILS(gd_dataset_csv(path), "with separator=| it has 3");
    CHECK(gd_dataset_csv(path, .separator = "|"));
}

CLEAN_TEST(messages_have_the_number_of_a_column_not_of_a_character) {
    GD_SCOPE;
    const char *path = temp_write_text("m.csv", "age,city,y\n33,Bern,1\n34,,2\n");
    CHECK_FAILS(gd_dataset_csv(path), "line 3, column 2 (city): '' is a missing value");
    path = temp_write_text("m.csv", "33,Bern,1\n34,,2\n");
    CHECK_FAILS(gd_dataset_csv(path), "line 2, column 1 (counted from 0): '' is a missing value");
}

CLEAN_TEST(a_layout_converts_other_files_as_the_training_table) {
    GD_SCOPE;
    const char *train =
        temp_write_text("train.csv", "x;id;c;y\n1,5;7;b\"q\";0\n3;8;a;1\n6;9;b\"q\";0\n");
    gd_dataset *d = gd_dataset_csv(train, .target = "y", .separator = ";", .decimal = ",",
                                   .columns = "x c", .standardize = true);
    CHECK_SAYING(d, "%s", gd_error_message());
    gd_dataset *part = gd_dataset_range(d, 0, 2);
    char text[1000], again[1000];
    const int64_t length = gd_dataset_layout(part, text, sizeof text);
    CHECK(length == (int64_t)strlen(text) && gd_dataset_layout(d, NULL, 0) == length);
    const char *rows = temp_write_text("rows.csv", "c;x\na;1,5\nb\"q\";6\n"); /* no y */
    gd_dataset *r = gd_dataset_csv(rows, .layout = text);
    CHECK_SAYING(r, "%s", gd_error_message());
    CHECK(gd_dataset_get(r, 0).count == 1);
    for (int i = 0; i < 2; i++) { /* the same bits */
        float a[3], b[3];
        gd_copy_to(gd_dataset_get(d, 2 * i).at[0], a, sizeof a);
        gd_copy_to(gd_dataset_get(r, i).at[0], b, sizeof b);
        CHECK(a[0] == b[0] && (i == 0 || memcmp(a, b, sizeof a) == 0));
    }
    r = gd_dataset_csv(train, .layout = text, .target = "y");
    CHECK_FLOATS(gd_dataset_get(r, 1).at[1], 1);
    CHECK(gd_dataset_layout(r, again, sizeof again) == length && strcmp(again, text) == 0);
    r = gd_dataset_csv(train, .layout = text, .target = "");
    CHECK(gd_dataset_get(r, 1).count == 1);
    gd_dataset *by_name = gd_dataset_new("csv", "path=none layout=x");
    CHECK_FAILS(by_name, "the layout");
    CHECK(gd_dataset_layout(gd_dataset_tensors(gd_ones(gd_dims(2))), NULL, 0) == -1 &&
          !gd_failed());
}

CLEAN_TEST(missing_and_unknown_columns_of_another_file_are_named) {
    GD_SCOPE;
    char text[1000];
    const char *path = temp_write_text("t.csv", "age,city,y\n3,a,1\n4,b,2\n");
    gd_dataset_layout(gd_dataset_csv(path, .target = "y"), text, sizeof text);
    CHECK_FAILS(gd_dataset_csv(temp_write_text("r.csv", "agee,y\n3,1\n"), .layout = text),
                "has no columns 'age', 'city'; it has agee, y (unknown: 'agee')");
    CHECK_FAILS(gd_dataset_csv(temp_write_text("r.csv", "age,city\n3,c\n"), .layout = text),
                "line 2, column 2 (city): 'c' is a category that the training table does not have");
    CHECK(gd_dataset_csv(temp_write_text("r.csv", "city,new,age\na,1,3\n"), .layout = text));
    CHECK_FAILS(gd_dataset_csv(path, .layout = text, .target = "age"), "the target is 'age'",
                "'y'");
    path = temp_write_text("t.csv", "1,2,3\n4,5,6\n"); /* without a header, by their places */
    gd_dataset_layout(gd_dataset_csv(path, .target = "1"), text, sizeof text);
    gd_dataset *d = gd_dataset_csv(temp_write_text("r.csv", "7,9\n"), .layout = text);
    CHECK_SAYING(d, "%s", gd_error_message());
    CHECK_FLOATS(gd_dataset_get(d, 0).at[0], 7, 9);
    d = gd_dataset_csv(path, .layout = text, .target = "");
    CHECK_FLOATS(gd_dataset_get(d, 1).at[0], 4, 6);
    CHECK_FAILS(gd_dataset_csv(temp_write_text("r.csv", "7,8,9,10\n"), .layout = text),
                "has 4 columns; the training table has 3, with the target");
    CHECK_FAILS(gd_dataset_csv(path, .layout = "{}"), "the layout is not complete");
    CHECK_FAILS(gd_dataset_csv(path, .layout = text, .like = path), "give one of them");
}

CLEAN_TEST(a_second_column_of_one_name_in_another_file_is_named) {
    GD_SCOPE;
    char text[1000];
    const char *path = temp_write_text("t.csv", "age,city,y\n3,a,1\n4,b,2\n");
    gd_dataset_layout(gd_dataset_csv(path, .target = "y"), text, sizeof text);
    capture_log(GD_LOG_WARNING);
    gd_dataset *d =
        gd_dataset_csv(temp_write_text("r.csv", "city,age,age,y\na,3,9,1\n"), .layout = text);
    end_log_capture();
    CHECK_FLOATS(gd_dataset_get(d, 0).at[0], 3, 1, 0);
    CHECK_SAYING(captured.warnings == 1 &&
                     strstr(captured.text, "r.csv: column 3 (age) is not used: the training table "
                                           "has only 1 column of this name"),
                 "%s", captured.text);
    path = temp_write_text("t.csv", "x,x,y\n1,2,1\n3,4,0\n");
    gd_dataset_layout(gd_dataset_csv(path, .target = "y"), text, sizeof text);
    capture_log(GD_LOG_WARNING);
    CHECK_FLOATS(gd_dataset_get(gd_dataset_csv(path, .layout = text), 1).at[0], 3, 4);
    end_log_capture();
    CHECK_SAYING(captured.warnings == 0, "%s", captured.text);
}

CLEAN_TEST(each_row_to_predict_gives_a_sample_also_where_the_training_dropped_rows) {
    GD_SCOPE;
    char text[1000];
    const char *path = temp_write_text("t.csv", "age,y\n3,1\n,5\n4,2\n"),
               *rows = temp_write_text("r.csv", "age,y\n3,1\n\n,2\n4,\n");
    gd_dataset_layout(gd_dataset_csv(path, .target = "y", .missing = GD_DROP), text, sizeof text);
    CHECK(gd_dataset_count(gd_dataset_csv(rows, .layout = text)) == 1); /* to evaluate */
    CHECK(!gd_dataset_csv(rows, .layout = text, .target = ""));
    CHECK_SAYING(says("line 4, column 1 (age): '' is a missing value; the training table was read "
                      "with missing=drop, and each row of this one gives a sample: fill it in, or "
                      "remove the row"),
                 "%s", gd_error_message());
    gd_clear_error();
    rows = temp_write_text("r.csv", "age,y\n3,\n4,\n");
    CHECK(gd_dataset_count(gd_dataset_csv(rows, .layout = text, .target = "")) == 2);
}

CLEAN_TEST(a_missing_value_of_another_file_is_that_of_its_training_table) {
    GD_SCOPE;
    char text[1000];
    const char *path = temp_write_text("t.csv", "age,y\n3,1\n4,2\n"),
               *rows = temp_write_text("r.csv", "age,y\n,1\n4,\n");
    gd_dataset_layout(gd_dataset_csv(path, .target = "y"), text, sizeof text);
    CHECK(!gd_dataset_csv(rows, .layout = text, .target = ""));
    CHECK_SAYING(says("line 2, column 1 (age): '' is a missing value; the training table was read "
                      "without missing=mean, zero or drop") &&
                     !says("says what"),
                 "%s", gd_error_message());
    gd_clear_error();
    rows = temp_write_text("r.csv", "age,y\n4,\n");
    CHECK_FAILS(gd_dataset_csv(rows, .layout = text),
                "a missing value of the target; the training");
    gd_dataset_layout(gd_dataset_csv(path, .target = "y", .missing = GD_MEAN), text, sizeof text);
    rows = temp_write_text("r.csv", "age\n?\n");
    CHECK_FLOATS(gd_dataset_get(gd_dataset_csv(rows, .layout = text), 0).at[0], 3.5f);
}

CLEAN_TEST(wrong_csv_options_fail) {
    GD_SCOPE;
    const char *path = temp_write_text("houses.csv", houses);
    CHECK(!gd_dataset_csv(path, .target = "cost") &&
          says("has no column 'cost'; it has size, city, rooms, price"));
    gd_clear_error();
    CHECK(!gd_dataset_csv(path, .types = "city") && says("neither :number nor :category"));
    gd_clear_error();
    CHECK(!gd_dataset_csv(path, .types = "city:number") &&
          says("line 2, column 2 (city): 'Bern' is not a number"));
    gd_clear_error();
    CHECK(!gd_dataset_csv(path, .separator = "ab") && says("separator is 'ab'"));
    gd_clear_error();
    CHECK(!gd_dataset_csv(NULL) && says("path is not given"));
    gd_clear_error();
    CHECK(!gd_dataset_csv(temp_write_text("e.csv", "")) && says("e.csv: is empty"));
    gd_clear_error();
    CHECK(!gd_dataset_csv(temp_write_text("e.csv", "a,b\n")) && says("a header, and no rows"));
    gd_clear_error();
    CHECK(!gd_dataset_csv(temp_write_text("e.csv", "1,2\n3\n")) &&
          says("line 2 has 1 fields; the first has 2"));
}

CLEAN_TEST(a_batch_contains_its_rows) {
    GD_SCOPE;
    size_t size;
    uint8_t *zipped = test_gzip(houses, sizeof houses - 1, &size);
    const char *path = temp_write("houses.csv.gz", zipped, size);
    free(zipped);
    gd_dataset *d = gd_dataset_csv(path, .target = "city");
    CHECK_SAYING(d, "%s", gd_error_message());
    CHECK_FLOATS(gd_dataset_get(d, 1).at[0], 50, 2, 300);
    check_gather(d);
    check_gather(gd_dataset_csv(path, .target = "price", .standardize = true));
    check_gather(gd_dataset_csv(path, .categories = GD_INDEX));
}

static void check_damaged_csv(const void *data, size_t bytes) {
    GD_SCOPE;
    const char *path = temp_write("damaged.csv", data, bytes);
    gd_dataset *d = gd_dataset_csv(path, .target = "0", .missing = GD_ZERO);
    if (!d) CHECK_SAYING(says("damaged.csv"), "%s", gd_error_message());
    if (d) gd_dataset_get(d, 0);
    gd_clear_error();
}

CLEAN_TEST(a_damaged_table_is_read_or_fails) {
    char text[] = "size,\"city\"\n1,\"a\"\"b\"\n2,\"c\nd\"\n3.5,\n";
    for (size_t n = 0; n < sizeof text; n++) check_damaged_csv(text, n);
    for (size_t bit = 0; bit < 8 * (sizeof text - 1); bit++) {
        text[bit / 8] = (char)(text[bit / 8] ^ 1 << bit % 8);
        check_damaged_csv(text, sizeof text - 1);
        text[bit / 8] = (char)(text[bit / 8] ^ 1 << bit % 8);
    }
}

/* --- NumPy ------------------------------------------------------------------------------------ */

CLEAN_TEST(rows_of_arrays_are_samples) {
    GD_SCOPE;
    gd_tensor *x = gd_reshape(gd_arange(0, 12, .dtype = GD_F32), gd_dims(3, 2, 2)),
              *y = gd_arange(5, 8, .dtype = GD_I64);
    const char *path = temp_path("a.npz");
    CHECK(gd_save_npz(path, gd_names("y", "x"), gd_list(y, x)) == GD_OK);
    gd_dataset *d = gd_dataset_numpy(path, .names = "x y");
    CHECK_SAYING(gd_dataset_count(d) == 3, "%s", gd_error_message());
    gd_tensors row = gd_dataset_get(d, 2);
    CHECK(row.count == 2 && gd_tensor_rank(row.at[0]) == 2 && gd_tensor_rank(row.at[1]) == 0);
    CHECK_FLOATS(row.at[0], 8, 9, 10, 11);
    CHECK(gd_item_int(row.at[1]) == 7 && gd_tensor_dtype(row.at[1]) == GD_I64);
    check_gather(d);
    row = gd_dataset_get(gd_dataset_numpy(path), 0);
    CHECK(gd_item_int(row.at[0]) == 5);
    CHECK(!gd_dataset_numpy(path, .names = "z") && says("has no array 'z'"));
    gd_clear_error();
    CHECK(gd_save_npz(path, gd_names("a", "b"), gd_list(x, gd_ones(gd_dims(2)))) == GD_OK);
    CHECK(!gd_dataset_numpy(path) && says("'b' is f32[2], but the first array has 3 samples"));
    gd_clear_error();
    const char *single = temp_path("a.npy");
    CHECK(gd_save_npy(single, x) == GD_OK);
    size_t bytes = 0, size;
    uint8_t *data = file_read(single, &bytes), *zipped = test_gzip(data, bytes, &size);
    CHECK_FLOATS(gd_dataset_get(gd_dataset_numpy(single), 1).at[0], 4, 5, 6, 7);
    const char *packed = temp_write("a.npy.gz", zipped, size);
    CHECK_FLOATS(gd_dataset_get(gd_dataset_numpy(packed), 1).at[0], 4, 5, 6, 7);
    zipped[size / 2] ^= 1;
    temp_write("a.npy.gz", zipped, size);
    CHECK(!gd_dataset_numpy(packed) && says("a.npy.gz"));
    gd_clear_error();
    CHECK(!gd_dataset_numpy(single, .names = "x") && says("is no .npz file"));
    gd_clear_error();
    CHECK(gd_save_npy(single, gd_scalar(1)) == GD_OK);
    CHECK(!gd_dataset_numpy(single) && says("is one number"));
    free(data);
    free(zipped);
}

CLEAN_TEST(a_damaged_archive_fails_with_its_name) {
    size_t bytes = 0;
    const char *path = temp_path("d.npz");
    {
        GD_SCOPE;
        CHECK(gd_save_npz(path, gd_names("x", "y"),
                          gd_list(gd_ones(gd_dims(2, 3)), gd_ones(gd_dims(2)))) == GD_OK);
    }
    uint8_t *data = file_read(path, &bytes);
    for (size_t n = 0; n < bytes; n++) {
        GD_SCOPE;
        temp_write("d.npz", data, n);
        CHECK_SAYING(!gd_dataset_numpy(path) && says("d.npz"), "cut at %zu: %s", n,
                     gd_error_message());
        gd_clear_error();
    }
    for (size_t bit = 0; bit < 8 * bytes; bit += 3) {
        GD_SCOPE;
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        temp_write("d.npz", data, bytes);
        if (!gd_dataset_numpy(path)) CHECK_SAYING(says("d.npz"), "%s", gd_error_message());
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        gd_clear_error();
    }
    free(data);
}

TEST_MAIN
