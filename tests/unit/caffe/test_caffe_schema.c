/* test_caffe_schema.c - the tables of Caffe's messages are consistent, and fields that a file does not
 * set have Caffe's defaults.
 */
#include "caffe/schema.h"

#include <math.h>

#include "caffe/own.h"
#include "clean_test.h"
#include "core/alloc.h"
#include "core/error.h"
#include "core/number.h"
#include "gradus/extend.h"

/* --- the tables ------------------------------------------------------------------------------- */

enum { MAX_SCHEMAS = 200 };
static const gd_pb_schema *schemas[MAX_SCHEMAS];
static int n_schemas;

static void collect(const gd_pb_schema *schema) {
    for (int i = 0; i < n_schemas; i++)
        if (schemas[i] == schema) return;
    CHECK(n_schemas < MAX_SCHEMAS);
    if (n_schemas == MAX_SCHEMAS) return;
    schemas[n_schemas++] = schema;
    for (int i = 0; i < schema->count; i++)
        if (schema->fields[i].message) collect(schema->fields[i].message);
}

static bool has_word(const gd_pb_enum *e, const char *word) {
    for (; e->name; e++)
        if (strcmp(e->name, word) == 0) return true;
    return false;
}

static bool is_default(const gd_pb_field *f) {
    char *end = "";
    if (f->type == GD_PB_STRING) return true;
    if (f->type == GD_PB_BOOL) return strcmp(f->by_default, "true") == 0;
    if (f->type == GD_PB_ENUM) return has_word(f->values, f->by_default);
    if (f->type == GD_PB_FLOAT) gd_double_parse(f->by_default, &end);
    else if (f->type < GD_PB_BOOL) strtoll(f->by_default, &end, 10);
    else return false;
    return *end == '\0' && f->by_default[0] != '\0';
}

static void check_field(const gd_pb_schema *s, int i) {
    const gd_pb_field *f = &s->fields[i];
    const bool repeated = f->flags & GD_PB_REPEATED;
    for (int k = 0; k < i; k++) {
        CHECK_SAYING(s->fields[k].number < f->number, "%s.%s", s->name, f->name);
        CHECK_SAYING(strcmp(s->fields[k].name, f->name) != 0, "%s.%s", s->name, f->name);
    }
    CHECK_SAYING((f->message != NULL) == (f->type == GD_PB_MESSAGE), "%s.%s", s->name, f->name);
    CHECK_SAYING((f->values != NULL) == (f->type == GD_PB_ENUM), "%s.%s", s->name, f->name);
    CHECK_SAYING(!f->by_default || (!repeated && is_default(f)), "%s.%s", s->name, f->name);
}

TEST(all_tables_are_in_the_order_of_their_numbers_and_have_valid_defaults) {
    collect(&gd_caffe_solver_schema);
    collect(&gd_caffe_solver_state_schema);
    collect(&gd_caffe_blob_vector_schema);
    collect(&gd_caffe_datum_schema);
    CHECK_SAYING(n_schemas == 82, "%d", n_schemas);
    for (int s = 0; s < n_schemas; s++)
        for (int i = 0; i < schemas[s]->count; i++) check_field(schemas[s], i);
}

/* --- defaults --------------------------------------------------------------------------------- */

static const gd_pb *read_layer(gd_pb_doc **doc, const char *text) {
    CHECK_SAYING(gd_pb_read_text(doc, &gd_caffe_layer_schema, "layer.txt", text, strlen(text)) ==
                     GD_OK,
                 "%s", gd_latest_failure());
    return gd_pb_root(*doc);
}

TEST(a_field_that_is_not_set_has_its_default) {
    gd_pb_doc *doc;
    const gd_pb *layer = read_layer(&doc, "name: 'a' pooling_param { stride: 2 pad_h: 0 }");
    CHECK(gd_pb_int_of(layer, "pooling_param.stride") == 2);
    CHECK(gd_pb_int_of(layer, "pooling_param.pad") == 0);
    CHECK(gd_pb_int_of(layer, "convolution_param.group") == 1);
    CHECK(gd_pb_int_of(layer, "convolution_param.bias_term") == 1);
    CHECK(gd_pb_int_of(layer, "batch_norm_param.use_global_stats") == 0);
    CHECK(gd_pb_int_of(layer, "flatten_param.end_axis") == -1);
    CHECK(gd_pb_int_of(layer, "hinge_loss_param.norm") == 1);
    CHECK(gd_pb_float_of(layer, "lrn_param.beta") == 0.75);
    CHECK(gd_pb_float_of(layer, "batch_norm_param.moving_average_fraction") == 0.999);
    CHECK(gd_pb_float_of(layer, "convolution_param.weight_filler.max") == 1);
    CHECK(!strcmp(gd_pb_string_of(layer, "convolution_param.weight_filler.type"), "constant"));
    CHECK(!strcmp(gd_pb_string_of(layer, "name"), "a") && !*gd_pb_string_of(layer, "type"));
    CHECK(!strcmp(gd_pb_word_of(layer, "pooling_param.pool"), "MAX"));
    CHECK(!strcmp(gd_pb_word_of(layer, "phase"), "TRAIN")); /* no default: the first word */
    CHECK(gd_pb_has(layer, "pooling_param.pad_h") && !gd_pb_has(layer, "pooling_param.pad"));
    CHECK(gd_pb_message_of(layer, "pooling_param") && !gd_pb_message_of(layer, "lrn_param"));
    gd_pb_free(doc);
}

TEST(values_of_a_file_are_found_by_their_path) {
    gd_pb_doc *doc;
    const gd_pb *layer =
        read_layer(&doc, "convolution_param { kernel_size: 3 kernel_size: 5 "
                         "weight_filler { type: 'xavier' value: 0.1 variance_norm: AVERAGE } }");
    const gd_pb_list *sizes = gd_pb_list_of(layer, "convolution_param.kernel_size");
    CHECK(sizes && sizes->count == 2 && sizes->ints[1] == 5);
    CHECK(gd_pb_int_of(layer, "convolution_param.kernel_size") == 3);
    CHECK(gd_pb_float_of(layer, "convolution_param.weight_filler.value") == 0.1);
    CHECK(
        !strcmp(gd_pb_word_of(layer, "convolution_param.weight_filler.variance_norm"), "AVERAGE"));
    gd_pb_free(doc);
}

TEST(paths_that_do_not_exist_find_nothing) {
    gd_pb_doc *doc;
    const gd_pb *layer = read_layer(&doc, "name: 'a' pooling_param { stride: 2 }");
    static const char *const paths[] = {"",      "pooling",        "pooling_param.x", "name.x",
                                        "name.", "pooling_param.", ".name",           "x.stride"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        CHECK(!gd_pb_has(layer, paths[i]) && gd_pb_int_of(layer, paths[i]) == 0);
        CHECK(gd_pb_float_of(layer, paths[i]) == 0 && !*gd_pb_string_of(layer, paths[i]));
        CHECK(!gd_pb_message_of(layer, paths[i]) && !*gd_pb_word_of(layer, paths[i]));
    }
    CHECK(gd_pb_int_of(layer, "name") == 0 && gd_pb_float_of(layer, "pooling_param.stride") == 0);
    CHECK(gd_pb_int_of(NULL, "name") == 0 && !*gd_pb_string_of(NULL, "name"));
    gd_pb_free(doc);
}

TEST(failures_begin_with_the_place_of_a_message) {
    gd_pb_doc *doc;
    const gd_pb *layer = read_layer(&doc, "name: 'a'\npooling_param {\n stride: 2 }");
    CHECK(gd_pb_fail(gd_pb_message_of(layer, "pooling_param"), "no %s", "pool") == GD_E_FORMAT);
    CHECK_SAYING(strncmp(gd_latest_failure(), "layer.txt:2:", 12) == 0 &&
                     strstr(gd_latest_failure(), ": no pool"),
                 "%s", gd_latest_failure());
    gd_pb_free(doc);

    static const char wire[] = "\x0a\x01x\xca\x07\x02\x18\x02"; /* name, pooling_param.stride */
    CHECK(gd_pb_read(&doc, &gd_caffe_layer_schema, "a.bin", wire, sizeof wire - 1) == GD_OK);
    CHECK(gd_pb_int_of(gd_pb_root(doc), "pooling_param.stride") == 2);
    gd_pb_fail(gd_pb_message_of(gd_pb_root(doc), "pooling_param"), "no pool");
    CHECK_SAYING(strcmp(gd_latest_failure(), "a.bin: byte 6: no pool") == 0, "%s",
                 gd_latest_failure());
    gd_pb_free(doc);

    doc = gd_pb_new(&gd_caffe_layer_schema);
    gd_pb_fail(gd_pb_root(doc), "no pool");
    CHECK(strcmp(gd_latest_failure(), "no pool") == 0);
    gd_pb_free(doc);
}

/* --- ops of the program ----------------------------------------------------------------------- */

TEST(the_options_of_an_op_of_the_program_are_fields_of_a_message) {
    gd_pb_doc *doc;
    char options[100], *text;
    size_t bytes;
    CHECK(gd_op_define("my_scaled(x) -> y  elementwise float\n"
                       "x times a.\n"
                       "  a float = 1\n"
                       "  n int = 2\n"
                       "  flag bool = false\n"
                       "  y = x * a\n",
                       NULL) == GD_OK);
    static const char own[] = "type: \"my_scaled\"\nmy_scaled_param {\n  a: 0.1\n  flag: true\n}\n";
    const gd_pb *layer = read_layer(&doc, own);
    CHECK(gd_pb_float_of(layer, "my_scaled_param.a") == 0.1);
    CHECK(gd_caffe_own_options(layer, gd_op_find("my_scaled"), options, sizeof options) == GD_OK);
    CHECK_SAYING(strcmp(options, "a=0.1 flag=true") == 0, "%s", options);
    CHECK(gd_caffe_own_options(layer, gd_op_find("my_scaled"), options, 10) == GD_E_FORMAT);
    CHECK(gd_pb_print_text(doc, &text, &bytes) == GD_OK && strcmp(text, own) == 0);
    gd_free(text);
    CHECK(gd_pb_print(doc, &text, &bytes) == GD_OK && bytes == 11); /* only the type */
    gd_free(text);
    gd_pb_free(doc);

    static const char *const wrong[][2] = {
        {"my_scaled_param { b: 1 }", "my_scaled_param has no field 'b'"},
        {"my_scaled_param { a: x }", "my_scaled_param.a: expected a number, found 'x'"},
        {"tanhx_param { a: 1 }",
         "a LayerParameter has no field 'tanhx_param'; did you mean tanh_param?"},
        {"relu6_param { a: 1 }",
         "a LayerParameter has no field 'relu6_param'; did you mean relu_param?"},
    };
    for (int i = 0; i < 4; i++) {
        CHECK(gd_pb_read_text(&doc, &gd_caffe_layer_schema, "a", wrong[i][0],
                              strlen(wrong[i][0])) == GD_E_FORMAT);
        CHECK_SAYING(strstr(gd_latest_failure(), wrong[i][1]), "%s", gd_latest_failure());
    }
}

CLEAN_TEST(a_copy_of_a_net_outlives_it) {
    static const char text[] = "name: \"n\"\n"
                               "layer {\n"
                               "  name: \"a\"\n"
                               "  type: \"Convolution\"\n"
                               "  bottom: \"x\"\n"
                               "  bottom: \"y\"\n"
                               "  loss_weight: 0.1\n"
                               "  convolution_param {\n"
                               "    kernel_size: 3\n"
                               "    kernel_size: 4\n"
                               "    weight_filler {\n"
                               "      type: \"xavier\"\n"
                               "    }\n"
                               "  }\n"
                               "}\n";
    gd_pb_doc *from, *to = gd_pb_new(&gd_caffe_net_schema);
    char *printed = NULL;
    size_t bytes = 0;
    CHECK(to && gd_pb_read_text(&from, &gd_caffe_net_schema, "net", text, strlen(text)) == GD_OK);
    gd_pb_copy(gd_pb_root(to), gd_pb_root(from));
    gd_pb_free(from);
    CHECK(gd_pb_print_text(to, &printed, &bytes) == GD_OK);
    CHECK_SAYING(printed && strcmp(printed, text) == 0, "%s", printed);
    gd_free(printed);
    gd_pb_free(to);
}

TEST_MAIN
