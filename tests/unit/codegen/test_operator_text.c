/* test_operator_text.c - the text of an operator in a record: its parts, and mistakes in it. */
#include "clean_test.h"
#include "codegen/record.h"

static bool same(const char *a, const char *b) { return a && b ? strcmp(a, b) == 0 : a == b; }

static bool operator_is(const gd_operator_text *t, gd_operator_text expected) {
    const bool is = same(t->name, expected.name) && same(t->inputs, expected.inputs) &&
                    same(t->attributes, expected.attributes) && same(t->when, expected.when) &&
                    same(t->cast, expected.cast);
    if (!is)
        printf("%s (%s) %s when %s cast %s\n", t->name, t->inputs, t->attributes, t->when, t->cast);
    return is;
}

#define HEAD                                                                                  \
    "f(x, w?) -> y\nDocumentation.\n  axis int = 0\n  dims int[] = none\n  scale float = 1\n" \
    "  mode {near, far} = near\n  flag bool = false\n"

/* Parses a record with these lines behind those of HEAD. */
static gd_record parse(const char *lines, char text[512]) {
    gd_record r;
    snprintf(text, 512, "%s%s", HEAD, lines);
    gd_record_parse(&r, text);
    return r;
}

TEST(a_line_has_a_name_inputs_attributes_conditions_and_casts) {
    char text[512];
    gd_record r = parse("  onnx Gather(w, x, k=axis) axis=axis~0  far?   when x:rank>0 x:int  "
                        "cast -i\n",
                        text);
    CHECK_SAYING(!r.error[0], "%s", r.error);
    CHECK(operator_is(&r.onnx, (gd_operator_text){"Gather", "w  x  k=axis", "axis=axis~0  far?",
                                                  "x:rank>0 x:int", "-i"}));
    CHECK(operator_is(&r.caffe, (gd_operator_text){.name = ""}));
}

TEST(parts_may_be_missing_and_two_systems_share_a_line) {
    char text[512];
    gd_record r = parse("  onnx Conv   caffe Convolution\n", text);
    CHECK(operator_is(&r.onnx, (gd_operator_text){.name = "Conv"}));
    CHECK(operator_is(&r.caffe, (gd_operator_text){.name = "Convolution"}));
    r = parse("  caffe Scale(x) when scale=1   onnx Mul  cast y", text);
    CHECK(operator_is(&r.onnx, (gd_operator_text){.name = "Mul", .cast = "y"}));
    CHECK(operator_is(&r.caffe,
                      (gd_operator_text){.name = "Scale", .inputs = "x", .when = "scale=1"}));
    r = parse("  onnx None()\n  caffe Other flag=flag", text);
    CHECK(operator_is(&r.onnx, (gd_operator_text){.name = "None", .inputs = ""}));
    CHECK(operator_is(&r.caffe, (gd_operator_text){.name = "Other", .attributes = "flag=flag"}));
}

TEST(lines_that_are_indented_further_continue_the_text) {
    char text[512];
    gd_record r = parse("  onnx Long(x)\n"
                        "       axis=axis\n"
                        "    scale=scale  when flag=true\n"
                        "  saves x\n"
                        "  last int = 4\n",
                        text);
    CHECK_SAYING(!r.error[0], "%s", r.error);
    CHECK(r.onnx.attributes && strncmp(r.onnx.attributes, "axis=axis ", 10) == 0);
    const char *words = r.onnx.attributes;
    char word[GD_OPERATOR_WORD];
    CHECK(gd_operator_next_word(&words, word, sizeof word) && same(word, "axis=axis"));
    CHECK(gd_operator_next_word(&words, word, sizeof word) && same(word, "scale=scale"));
    CHECK(!gd_operator_next_word(&words, word, sizeof word) && same(r.onnx.when, "flag=true"));
    CHECK(r.saves_in == 1 && r.n_attrs == 6);
}

/* Lines behind HEAD, and the error that they give, with its line. */
static const struct {
    const char *lines, *error;
    int line;
} mistakes[] = {
    {"  onnx\n", "expected an operator at ''", 8},
    {"  onnx 7(x)\n", "expected an operator at '7(x)'", 8},
    {"  onnx A,B\n", "expected an operator at 'A,B'", 8},
    {"  onnx A(x, w\n", "expected ')' and a space in 'A(x, w'", 8},
    {"  onnx A(x)axis=axis\n", "expected ')' and a space in 'A(x)axis=axis'", 8},
    {"  onnx A\n  onnx B\n", "a second operator: 'B'", 9},
    {"  onnx A when\n", "an empty list before the end, or before ''", 8},
    {"  onnx A when  cast y\n", "an empty list before the end, or before 'cast y'", 8},
    {"  onnx A when x:int  when x:float\n", "a second list: 'when x:float'", 8},
    /* inputs */
    {"  onnx A(z)\n", "onnx A: no such input: 'z'", 8},
    {"  onnx A(x|1)\n", "onnx A: an input that is not optional cannot be filled: 'x|1'", 8},
    {"  onnx A(x, w|2)\n", "onnx A: not an input: 'w|2'", 8},
    {"  onnx A(x/pads)\n", "onnx A: an input cannot be converted: 'x/pads'", 8},
    {"  onnx A(x, k=)\n", "onnx A: not an input: 'k='", 8},
    {"  onnx A(x, k=z)\n", "onnx A: no such option: 'k=z'", 8},
    {"  onnx A(x, k=dims)\n", "onnx A: the option is not one number: 'k=dims'", 8},
    {"  onnx A(x, k:scale)\n", "onnx A: the option has no integers: 'k:scale'", 8},
    {"  onnx A(x, k:dims/up)\n", "onnx A: no such conversion: 'k:dims/up'", 8},
    {"  onnx A(x, k:dims/same_pads)\n", "onnx A: no such conversion: 'k:dims/same_pads'", 8},
    /* attributes */
    {"  onnx A axis\n", "onnx A: not an attribute: 'axis'", 8},
    {"  onnx A =axis\n", "onnx A: not an attribute: '=axis'", 8},
    {"  onnx A a:b=axis\n", "onnx A: not an attribute: 'a:b=axis'", 8},
    {"  onnx A a!1|axis\n", "onnx A: not an attribute: 'a!1|axis'", 8},
    {"  onnx A a=axes\n", "onnx A: no such option: 'a=axes'", 8},
    {"  onnx A a=axis~x\n", "onnx A: not a value of the option: 'a=axis~x'", 8},
    {"  onnx A a=flag~yes\n", "onnx A: not a value of the option: 'a=flag~yes'", 8},
    {"  onnx A a=dims*3\n", "onnx A: not an attribute: 'a=dims*3'", 8},
    {"  onnx A a=scale*2\n", "onnx A: only lists of integers are repeated: 'a=scale*2'", 8},
    {"  onnx A a=dims|scale\n", "onnx A: no such list of integers: 'a=dims|scale'", 8},
    {"  onnx A a=mode,afar:b\n", "onnx A: no such word of the option: 'a=mode,afar:b'", 8},
    {"  onnx A a=axis,far:b\n", "onnx A: only words have other names: 'a=axis,far:b'", 8},
    {"  onnx A a=axis b!1 a?\n", "onnx A: two attributes of one name: 'a'", 8},
    /* conditions */
    {"  onnx A when x\n", "onnx A: not a condition: 'x'", 8},
    {"  onnx A when z:int\n", "onnx A: no such input: 'z:int'", 8},
    {"  onnx A when x:f31\n", "onnx A: no such dtype: 'x:f31'", 8},
    {"  onnx A when x:rank=two\n", "onnx A: not a rank: 'x:rank=two'", 8},
    {"  onnx A when x:size=2\n", "onnx A: not a condition: 'x:size=2'", 8},
    {"  onnx A when x:rank_of=z\n", "onnx A: no such input: 'x:rank_of=z'", 8},
    {"  onnx A when axes=1\n", "onnx A: no such option: 'axes=1'", 8},
    {"  onnx A when mode=away\n", "onnx A: not a value of the option: 'mode=away'", 8},
    /* casts, and the line of an error */
    {"  onnx A cast q\n", "onnx A: no such cast: 'q'", 8},
    {"  onnx A cast y b\n", "onnx A: no such cast: 'y b'", 8},
    {"  onnx A cast ybi\n", "onnx A: more letters than inputs: 'ybi'", 8},
    {"  saves x\n  onnx A\n      a=z\n  caffe B\n  more int = 1\n", "onnx A: no such option: 'a=z'",
     9},
    {"  onnx A\n      axis=axis\n  saves z\n", "no such input or output 'z'", 10},
    {"  onnx A   caffe B b=z\n", "caffe B: no such option: 'b=z'", 8},
};

TEST(mistakes_are_found_with_their_line) {
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        char text[512];
        const gd_record r = parse(mistakes[i].lines, text);
        CHECK_SAYING(strcmp(r.error, mistakes[i].error) == 0 && r.error_line == mistakes[i].line,
                     "%sgives, in line %d: %s", mistakes[i].lines, r.error_line, r.error);
    }
}

TEST(words_of_any_length_are_parsed_or_refused) {
    for (int length = 1; length < 200; length++) {
        char word[256], lines[512], text[1024];
        memset(word, 'a', sizeof word);
        word[length] = '\0';
        for (int form = 0; form < 6; form++) {
            const char *const forms[] = {"(%s)",           " %s=axis",      " a=%s",
                                         " a=mode,far:%s", " when axis=%s", " when x:%s"};
            gd_record r;
            snprintf(lines, sizeof lines, forms[form], word);
            snprintf(text, sizeof text, "%s  onnx A%s\n", HEAD, lines);
            const bool parsed = gd_record_parse(&r, text);
            const bool fits = (form == 1 && length < GD_OPERATOR_WORD) ||
                              (form == 3 && length < GD_OPERATOR_WORD);
            CHECK_SAYING(parsed == fits, "%s: %s", lines, r.error);
        }
    }
}

TEST_MAIN
