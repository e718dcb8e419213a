/* test_objects.c - the order of the folders of src/ (rooms.h), as the compiled files have it: which
 * functions and variables of other files a file uses, whatever macro or header has brought them there.
 * nm lists them.
 */
#include <unistd.h>

#include "rooms.h"

/* --- what files define and use ---------------------------------------------------------------- */

typedef struct symbol {
    char *name;
    const char *file; /* below src/, or a name that the build writes */
    place place;
} symbol;

typedef struct symbol_list {
    symbol *at;
    int count, capacity;
} symbol_list;
static symbol_list definitions, uses;

static void add_symbol(symbol_list *list, symbol s) {
    if (list->count == list->capacity) {
        list->capacity = list->capacity ? 2 * list->capacity : 1 << 14;
        list->at = realloc(list->at, (size_t)list->capacity * sizeof *list->at);
    }
    if (list->at) list->at[list->count++] = s;
}

/* Where the functions and variables of a file that the build writes belong; what it uses does not
 * count, because it has entries for all folders. */
static place written_place(const char *file, bool is_function) {
    if (strcmp(file, "factory_calls.c") == 0 && is_function) return place_of("nn/");
    if (strncmp(file, "ew_", 3) == 0) return place_of("backend/");
    if (strstr(file, "kernel_headers.c") || strstr(file, "scalar_prelude.c"))
        return place_of("codegen/");
    return place_of("dispatch/");
}

/* The part of an object's path, .../TARGET.dir/src/PATH or .../TARGET.dir/gen/NAME, behind this folder;
 * NULL: it is in another one. */
static const char *below(const char *path, const char *folder) {
    const char *at = strstr(path, ".dir/");
    if (at) at += strlen(".dir/");
    if (at && strncmp(at, "./", 2) == 0) at += 2;
    return at && strncmp(at, folder, strlen(folder)) == 0 ? at + strlen(folder) : NULL;
}

/* A line of nm: "OBJECT: NAME TYPE VALUE SIZE". */
static void read_line(char *line) {
    static char *last_file; /* lines of one file follow each other */
    char *end = strstr(line, ".o: "), symbol_name[512], type;
    const char *source = below(line, "src/"), *written = below(line, "gen/");
    if (!end || (!source && !written) || sscanf(end + 4, "%511s %c", symbol_name, &type) != 2)
        return;
    *end = 0;
    const char *file = source ? source : written;
    if (!last_file || strcmp(last_file, file) != 0) last_file = strdup(file);
    const bool uses_it = type == 'U', defines_it = !uses_it && isupper((unsigned char)type);
    symbol s = {.file = last_file,
                .place = source ? place_of(file) : written_place(file, type == 'T')};
    CHECK_SAYING(s.place.room >= 0, "src/%s: its folder is not in the table", file);
    CHECK_SAYING(s.place.kind < 0 || strcmp(kinds.at[s.place.kind], "cpu") == 0,
                 "src/%s is part of the library, not of the backend for %s", file,
                 s.place.kind < 0 ? "" : kinds.at[s.place.kind]);
    if (s.place.room < 0 || !(defines_it || (uses_it && source))) return;
    s.name = strdup(symbol_name);
    add_symbol(uses_it ? &uses : &definitions, s);
}

/* Without the list of objects there is nothing to read: the archive has no folders. */
static bool read_objects(void) {
    if (definitions.count) return true;
    if (!*GRADUS_NM || access(GRADUS_NM, X_OK) != 0) return false;
    read_table();
    FILE *nm = popen("'" GRADUS_NM "' -A -P '@" GRADUS_OBJECT_LIST "'", "r");
    size_t size = 0;
    char *line = NULL;
    while (nm && getline(&line, &size, nm) > 0) read_line(line);
    free(line);
    CHECK(nm && pclose(nm) == 0);
    return true;
}

/* By name; of several definitions the earliest folder comes first. */
static int compare_symbols(const void *a, const void *b) {
    const symbol *x = a, *y = b;
    const int order = strcmp(x->name, y->name);
    return order ? order : is_later(x->place, y->place) - is_later(y->place, x->place);
}

static const symbol *find_definition(const char *wanted) {
    int low = 0, high = definitions.count;
    while (low < high) { /* the first that is not less */
        const int middle = (low + high) / 2;
        if (strcmp(definitions.at[middle].name, wanted) < 0) low = middle + 1;
        else high = middle;
    }
    const bool found = low < definitions.count && strcmp(definitions.at[low].name, wanted) == 0;
    return found ? &definitions.at[low] : NULL;
}

typedef void use_visitor(const symbol *use, const symbol *definition);

static void each_use(use_visitor *visit) {
    for (int i = 0; i < uses.count; i++) {
        const symbol *definition = find_definition(uses.at[i].name);
        if (definition) visit(&uses.at[i], definition);
    }
}

/* Reads everything; false: nm is missing. */
static bool begin_test(void) {
    if (!read_objects()) return false;
    qsort(definitions.at, (size_t)definitions.count, sizeof *definitions.at, compare_symbols);
    CHECK(definitions.count > 3000 && uses.count > 5000);
    return true;
}

/* --- the order -------------------------------------------------------------------------------- */

static void check_order(const symbol *use, const symbol *definition) {
    char a[200], b[200];
    CHECK_SAYING(!is_later(definition->place, use->place),
                 "src/%s uses %s of %s, but %s comes before %s", use->file, use->name,
                 definition->file, place_text(use->place, a), place_text(definition->place, b));
}

TEST(no_file_uses_a_function_or_variable_of_a_later_folder) {
    if (!begin_test()) SKIP("nm was not found");
    each_use(check_order);
}

static void check_kind(const symbol *use, const symbol *definition) {
    const int kind = definition->place.kind;
    CHECK_SAYING(kind < 0 || kind == use->place.kind,
                 "src/%s uses %s of src/%s, which only files for %s may do", use->file, use->name,
                 definition->file, kind < 0 ? "" : kinds.at[kind]);
}

TEST(no_file_uses_what_is_for_a_kind_of_device_it_is_not_for) {
    if (!begin_test()) SKIP("nm was not found");
    each_use(check_kind);
}

static void add_edge(const symbol *use, const symbol *definition) {
    const int from = use->place.family, to = definition->place.family;
    if (from >= 0 && to >= 0 && from != to) reaches[from][to] = true;
}

static void check_edge(const symbol *use, const symbol *definition) {
    const int from = use->place.family, to = definition->place.family;
    if (from < 0 || to < 0 || from == to) return;
    CHECK_SAYING(!reaches[to][from],
                 "src/%s uses %s of src/%s, and src/ops/%s needs src/ops/%s: a cycle", use->file,
                 use->name, definition->file, families.at[to], families.at[from]);
}

TEST(families_of_ops_use_each_other_without_cycles) {
    if (!begin_test()) SKIP("nm was not found");
    each_use(add_edge);
    close_families();
    each_use(check_edge);
}

TEST_MAIN
