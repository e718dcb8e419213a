/* test_caffe_rules.c - which optimizer and schedule a solver of Caffe describes.
 *
 * Each line of tests/golden/caffe_optim_cases.txt has the fields of a solver, and the optimizer and the
 * schedule that follow its formulas (test_optim_caffe.c).
 */
#include <stdio.h>
#include <string.h>

#include "clean_test.h"
#include "gradus/gradus.h"
#include "caffe/schema.h"
#include "caffe/solver_rule.h"
#include "core/alloc.h"
#include "dispatch/attrs.h"

enum { LINE = 400, TEXT = 1000 };

/* "type=SGD stepvalue=10,25" as a prototxt: "type: 'SGD' stepvalue: 10 stepvalue: 25". */
static void print_solver(const char *fields, char text[TEXT]) {
    char word[LINE], name[LINE];
    *text = 0;
    for (const char *s = fields; sscanf(s, "%399s", word) == 1;
         s = strstr(s, word) + strlen(word)) {
        const size_t n = strcspn(word, "=");
        snprintf(name, sizeof name, "%.*s", (int)n, word);
        const bool quoted = strcmp(name, "type") == 0 || strcmp(name, "lr_policy") == 0 ||
                            strcmp(name, "regularization_type") == 0;
        for (const char *v = word + n; *v == '=' || *v == ',';) {
            const size_t length = strcspn(v + 1, ",");
            const size_t used = strlen(text);
            snprintf(text + used, TEXT - used, quoted ? "%s: '%.*s' " : "%s: %.*s ", name,
                     (int)length, v + 1);
            v += 1 + length;
        }
    }
}

static bool same_options(const gd_caffe_rule *got, const gd_factory *factory, void *options) {
    if (got->factory != factory) return false;
    for (int i = 0; i < factory->record.n_attrs; i++) {
        const gd_op_attr *a = &factory->record.attrs[i];
        if (a->type == GD_ATTR_SHAPE || a->type == GD_ATTR_INTS) {
            const gd_shape *p = gd_factory_option(factory, got->options, a->name, NULL),
                           *q = gd_factory_option(factory, options, a->name, NULL);
            if (p->rank != q->rank || memcmp(p->at, q->at, (size_t)p->rank * sizeof *p->at) != 0)
                return false;
        } else if (gd_attr_number(a, got->options).value != gd_attr_number(a, options).value)
            return false;
    }
    return true;
}

/* `text` is a record's name with options. */
static bool is_like(const gd_caffe_rule *got, const char *kind, const char *text) {
    char name[80];
    const gd_factory *factory;
    void *options;
    if (sscanf(text, "%79s", name) != 1) return false;
    if (gd_factory_read(kind, name, strstr(text, name) + strlen(name), &factory, &options) != GD_OK)
        return false;
    const bool same = same_options(got, factory, options);
    gd_free(options);
    return same;
}

static void check_case(char *line) {
    char text[TEXT], *part[4] = {line, "", "", ""};
    for (int i = 1; i < 4 && (part[i] = strchr(part[i - 1], '|')); i++) *part[i]++ = 0;
    print_solver(part[0], text);
    if (!strstr(text, "lr_policy")) strcat(text, "lr_policy: 'fixed' ");
    gd_pb_doc *doc = NULL;
    gd_caffe_rule optimizer = {NULL, NULL}, schedule = {NULL, NULL};
    CHECK(gd_pb_read_text(&doc, &gd_caffe_solver_schema, "s", text, strlen(text)) == GD_OK);
    if (!doc) return;
    CHECK_SAYING(gd_caffe_read_optimizer(gd_pb_root(doc), &optimizer) == GD_OK, "%s: %s", text,
                 gd_latest_failure());
    CHECK_SAYING(gd_caffe_read_schedule(gd_pb_root(doc), &schedule) == GD_OK, "%s: %s", text,
                 gd_latest_failure());
    if (optimizer.factory)
        CHECK_SAYING(is_like(&optimizer, "optimizer", part[1]), "%s: not %s", text, part[1]);
    const bool plain = !part[2] || strspn(part[2], " ") == strlen(part[2]);
    if (schedule.factory)
        CHECK_SAYING(is_like(&schedule, "schedule", plain ? "constant" : part[2]), "%s: not %s",
                     text, plain ? "constant" : part[2]);
    gd_caffe_rule_free(&optimizer);
    gd_caffe_rule_free(&schedule);
    gd_pb_free(doc);
}

CLEAN_TEST(records_say_which_optimizer_and_schedule_a_solver_has) {
    char line[LINE];
    int count = 0;
    FILE *f = fopen(GRADUS_GOLDEN "/caffe_optim_cases.txt", "r");
    while (f && fgets(line, LINE, f)) {
        line[strcspn(line, "\n")] = 0;
        if (*line == 0 || *line == '#') continue;
        check_case(line);
        count++;
    }
    CHECK(count > 20);
    if (f) fclose(f);
}

/* Every optimizer and schedule that names one of Caffe's can be reached. */
CLEAN_TEST(every_line_of_a_record_is_used) {
    static const char *const kinds[] = {"optimizer", "schedule"};
    int count = 0;
    for (int k = 0; k < 2; k++) {
        const gd_factory *f;
        for (int i = 0; (f = gd_factory_at(kinds[k], i)); i++) {
            if (!f->record.caffe.name || !*f->record.caffe.name) continue;
            char text[200];
            const gd_factory *found = NULL;
            char options[GD_CAFFE_RULE_TEXT];
            gd_pb_doc *doc = NULL;
            snprintf(text, sizeof text, "%s: '%s'", k ? "lr_policy" : "type", f->record.caffe.name);
            gd_pb_read_text(&doc, &gd_caffe_solver_schema, "s", text, strlen(text));
            CHECK((k ? gd_caffe_print_schedule : gd_caffe_print_optimizer)(gd_pb_root(doc), &found,
                                                                           options) == GD_OK);
            CHECK_SAYING(found == f, "%s", f->record.name);
            gd_pb_free(doc);
            count++;
        }
    }
    CHECK_SAYING(count == 5 + 7, "%d", count);
}

TEST_MAIN
