/* layout.c - writes gradus/layout.h: a hash of the layouts of all option structs, for backends.
 *
 * A backend reads option structs from memory. If its hash equals that of the library, both were
 * built with the same records.
 */
#include "codegen/opgen/opgen.h"

static uint64_t hash;

static void hash_text(const char *text) {
    do hash = (hash ^ (unsigned char)*text) * 1099511628211u;
    while (*text++);
}

static void hash_number(int number) {
    char text[16];
    snprintf(text, sizeof text, "%d", number);
    hash_text(text);
}

void write_layout(void) {
    hash = 14695981039346656037u;
    for (int i = 0; i < n_ops; i++) {
        const gd_record *r = &ops[i]->record;
        hash_text(r->name);
        if (has_options(ops[i])) hash_text(BY_NAME);
        for (int k = 0; k < r->n_inputs; k++) hash_text(r->inputs[k].name);
        for (int k = 0; k < r->n_outputs; k++) hash_text(r->outputs[k].name);
        for (int k = 0; k < r->n_attrs; k++) {
            hash_text(r->attrs[k].name);
            hash_number(r->attrs[k].type);
            hash_number(r->attrs[k].count);
        }
    }
    FILE *out = begin_output("gradus/layout.h");
    fprintf(out,
            "/* layout.h - written by the build: what a backend and the library must agree on. */\n"
            "#ifndef GRADUS_LAYOUT_H\n#define GRADUS_LAYOUT_H\n\n"
            "#define GD_VERSION_TEXT \"%s\"\n"
            "#define GD_OPTIONS_HASH 0x%016llxull /* of all option structs of ops */\n\n#endif\n",
            GRADUS_VERSION, (unsigned long long)hash);
    finish_output();
}
