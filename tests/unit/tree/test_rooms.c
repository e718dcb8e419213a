/* test_rooms.c - the order of the folders of src/: each uses only those above it in the table of
 * ARCHITECTURE.md, which is the only list of them (rooms.h); and the names and contents of files that
 * the build finds by their folder. This test reads the sources, test_objects.c what the compiler makes
 * of them.
 */
#include "rooms.h"

/* --- files ------------------------------------------------------------------------------------ */

enum { MAX_FILES = 4096 };
typedef struct source {
    char *path; /* below src/ */
    char *text;
    place place;
} source;
static source sources[MAX_FILES];
static int n_sources;

static void add_source(const char *path, const char *text, void *user) {
    (void)user;
    const char *below = path + strlen(GRADUS_SOURCE "/src/");
    const place p = place_of(below);
    CHECK_SAYING(p.room >= 0, "%s: its folder is not in the table of ARCHITECTURE.md", path);
    if (p.room < 0 || n_sources == MAX_FILES) return;
    CHECK_SAYING(stages[p.room].count == 0 || p.stage >= 0,
                 "%s: it is in no stage that the table of ARCHITECTURE.md names", path);
    CHECK_SAYING(!is_room(p.room, "ops") || p.family >= 0, "%s: it is in no family's folder", path);
    sources[n_sources++] = (source){strdup(below), strdup(text), p};
}

static void read_sources(void) {
    static const char *const endings[] = {".c", ".h", ".cu", ".cuh", ".cpp", NULL};
    read_table();
    if (n_sources == 0) each_file(GRADUS_SOURCE "/src", endings, add_source, NULL);
    CHECK(n_sources > 300 && n_sources < MAX_FILES);
}

/* The file of an #include as a place; room -1: a file of the same folder, a public header, or
 * one that the build writes. */
static place included_place(token header) {
    char path[256];
    snprintf(path, sizeof path, "%.*s", (int)header.length - 2, header.at + 1);
    return place_of(path);
}

typedef void include_visitor(const source *s, token header, place to);

/* The header of #include "..." or <...> behind the word `include`; kind END: it is a macro. */
static token header_at(token t) {
    const size_t length = strcspn(t.at, ">\n");
    if (token_is(t, "<") && t.at[length] == '>') t = (token){STRING, t.at, length + 1, t.line};
    if (t.kind != STRING) t.kind = END;
    return t;
}

static void each_include(include_visitor *visit) {
    for (int i = 0; i < n_sources; i++) {
        const char *at = sources[i].text;
        int line = 1;
        token before = {.kind = END}, hash = before;
        for (token t; (t = next_token(&at, &line)).kind != END; hash = before, before = t) {
            if (!token_is(before, "include") || !token_is(hash, "#")) continue;
            const token header = header_at(t);
            if (header.kind == END) continue;
            CHECK_SAYING(header.length < 4 || memcmp(header.at + 1, "../", 3) != 0,
                         "src/%s:%d: includes %.*s, which is no path below src", sources[i].path,
                         t.line, (int)header.length, header.at);
            const place to = included_place(header);
            if (to.room >= 0) visit(&sources[i], header, to);
        }
    }
}

/* --- includes --------------------------------------------------------------------------------- */

static void check_include(const source *s, token header, place to) {
    char a[200], b[200];
    CHECK_SAYING(!is_later(to, s->place), "src/%s:%d: includes %.*s, but %s comes before %s",
                 s->path, header.line, (int)header.length, header.at, place_text(s->place, a),
                 place_text(to, b));
    CHECK_SAYING(to.kind < 0 || to.kind == s->place.kind,
                 "src/%s:%d: includes %.*s of %s, which only files for %s may do", s->path,
                 header.line, (int)header.length, header.at, place_text(to, b), kinds.at[to.kind]);
}

TEST(no_file_includes_a_header_of_a_later_folder) {
    read_sources();
    each_include(check_include);
}

/* --- families --------------------------------------------------------------------------------- */

static void add_edge(const source *s, token header, place to) {
    (void)header;
    if (s->place.family >= 0 && to.family >= 0) reaches[s->place.family][to.family] = true;
}

static void check_edge(const source *s, token header, place to) {
    const int from = s->place.family;
    if (from < 0 || to.family < 0 || from == to.family) return;
    CHECK_SAYING(!reaches[to.family][from],
                 "src/%s:%d: src/ops/%s includes %.*s, and src/ops/%s needs src/ops/%s: a cycle",
                 s->path, header.line, families.at[from], (int)header.length, header.at,
                 families.at[to.family], families.at[from]);
}

TEST(families_of_ops_include_each_other_without_cycles) {
    read_sources();
    each_include(add_edge);
    close_families();
    each_include(check_edge);
}

/* --- functions and variables ------------------------------------------------------------------ */

/* A function or variable of the library, and the earliest place that defines it. */
typedef struct definition {
    const char *at;
    size_t length;
    const source *source;
} definition;

enum { MAX_DEFINITIONS = 1 << 16 };
static definition definitions[MAX_DEFINITIONS];
static int n_definitions;

static int compare_names(const char *a, size_t a_length, const char *b, size_t b_length) {
    const int order = memcmp(a, b, a_length < b_length ? a_length : b_length);
    return order ? order : (a_length > b_length) - (a_length < b_length);
}

static int compare_definitions(const void *a, const void *b) {
    const definition *x = a, *y = b;
    const int order = compare_names(x->at, x->length, y->at, y->length);
    if (order) return order;
    return is_later(x->source->place, y->source->place) -
           is_later(y->source->place, x->source->place);
}

static bool is_ours(token t) { return t.kind == NAME && t.length > 3 && !memcmp(t.at, "gd_", 3); }

static void add_definition(const source *s, token t) {
    if (is_ours(t) && n_definitions < MAX_DEFINITIONS)
        definitions[n_definitions++] = (definition){t.at, t.length, s};
}

/* Adds what the statement at the beginning of a line defines: NAME( ... ) {, (*NAME)( ... );, or NAME
 * and one of , ; = [. */
static void add_definitions(const source *s, const char *at) {
    static const char *const not_global[] = {"static", "extern", "typedef", "struct",
                                             "enum",   "union",  "inline",  NULL},
                             *const ends[] = {"{", "=", "[", ";", ",", NULL};
    token t = {.kind = END}, last[3] = {t, t, t}, function = t, pointer = t; /* last[0]: before t */
    int line = 1, depth = 0;
    while ((t = next_token(&at, &line)).kind != END) {
        if (depth == 0 && is_one_of(t, not_global)) return;
        if (depth == 0 && token_is(t, "(") && function.kind == END) function = last[0];
        if (depth == 0 && token_is(t, "(") && token_is(last[0], ")") && is_ours(last[1]))
            *(token_is(last[2], "*") ? &pointer : &function) = last[1]; /* (NAME)( */
        depth += token_is(t, "(") - token_is(t, ")");
        if (depth == 0 && is_one_of(t, ends)) {
            const bool is_function = function.kind != END && pointer.kind == END;
            if (!is_function) add_definition(s, pointer.kind == END ? last[0] : pointer);
            else if (token_is(t, "{")) add_definition(s, function);
            if (is_function || !token_is(t, ",")) return;
        }
        last[2] = last[1], last[1] = last[0], last[0] = t;
    }
}

static void find_definitions(void) {
    for (int i = 0; i < n_sources; i++) {
        if (!has_ending(sources[i].path, (const char *const[]){".c", NULL})) continue;
        for (const char *at = sources[i].text; at; at = strchr(at, '\n')) {
            at += *at == '\n';
            if (isalpha((unsigned char)*at) || *at == '_') add_definitions(&sources[i], at);
        }
    }
    qsort(definitions, (size_t)n_definitions, sizeof *definitions, compare_definitions);
}

static const definition *find_definition(token t) {
    int low = 0, high = n_definitions;
    while (low < high) { /* the first that is not less */
        const int middle = (low + high) / 2;
        const definition *d = &definitions[middle];
        if (compare_names(d->at, d->length, t.at, t.length) < 0) low = middle + 1;
        else high = middle;
    }
    const definition *d = &definitions[low];
    return low < n_definitions && compare_names(d->at, d->length, t.at, t.length) == 0 ? d : NULL;
}

/* Also finds what a file declares itself in place of an include. */
TEST(no_file_names_a_function_or_variable_of_a_later_folder) {
    char a[200], b[200];
    read_sources();
    find_definitions();
    CHECK(n_definitions > 1500 && n_definitions < MAX_DEFINITIONS);
    for (int i = 0; i < n_sources; i++) {
        const char *at = sources[i].text;
        int line = 1;
        for (token t; (t = next_token(&at, &line)).kind != END;) {
            const definition *d = is_ours(t) ? find_definition(t) : NULL;
            CHECK_SAYING(!d || !is_later(d->source->place, sources[i].place),
                         "src/%s:%d: names %.*s of src/%s, but %s comes before %s", sources[i].path,
                         t.line, (int)t.length, t.at, d->source->path,
                         place_text(sources[i].place, a), place_text(d->source->place, b));
        }
    }
}

/* --- device code ------------------------------------------------------------------------------ */

/* "FAMILY/FILE", the image of src/ops/FAMILY/cuda/FILE.cu. */
typedef struct image {
    char name[160];
    const char *file; /* in `name` */
} image;
static image images[256];
static int n_images;

static const char *file_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void find_images(void) {
    static const char *const cu[] = {".cu", NULL};
    for (int i = 0; i < n_sources && n_images < 256; i++) {
        const source *s = &sources[i];
        if (s->place.family < 0 || !has_ending(s->path, cu)) continue;
        image *to = &images[n_images++];
        const char *file = file_of(s->path);
        snprintf(to->name, sizeof to->name, "%s/%.*s", families.at[s->place.family],
                 (int)strcspn(file, "."), file);
        to->file = strchr(to->name, '/') + 1;
    }
    CHECK(n_images > 15 && n_images < 256);
}

/* Whether X.c launches X.cu or X_PART.cu. */
static bool is_launcher(const char *path, const image *of) {
    const size_t family = strcspn(of->name, "/"), length = strcspn(file_of(path), ".");
    return strncmp(path, "ops/", 4) == 0 && strncmp(path + 4, of->name, family + 1) == 0 &&
           strcmp(file_of(path) + length, ".c") == 0 &&
           strncmp(file_of(path), of->file, length) == 0 &&
           (of->file[length] == 0 || of->file[length] == '_');
}

static void check_images_of(const source *s) {
    const char *at = s->text;
    int line = 1;
    for (token t; (t = next_token(&at, &line)).kind != END;)
        for (int k = 0; k < n_images; k++) {
            const size_t length = strlen(images[k].name);
            if (t.kind != STRING || t.length != length + 2 ||
                memcmp(t.at + 1, images[k].name, length) != 0)
                continue;
            CHECK_SAYING(is_launcher(s->path, &images[k]),
                         "src/%s:%d: launches kernels of %s.cu, which has another name", s->path,
                         t.line, images[k].name);
        }
}

TEST(device_code_has_the_name_of_the_file_that_launches_it) {
    read_sources();
    find_images();
    for (int k = 0; k < n_images; k++) {
        int i = 0;
        while (i < n_sources && !is_launcher(sources[i].path, &images[k])) i++;
        CHECK_SAYING(i < n_sources, "src/ops: no file launches %s.cu by its name", images[k].name);
    }
    for (int i = 0; i < n_sources; i++)
        if (has_ending(sources[i].path, (const char *const[]){".c", NULL}))
            check_images_of(&sources[i]);
}

/* --- files that the build finds by their folder ----------------------------------------------- */

static bool is_for(place p, const char *kind) {
    return p.kind >= 0 && strcmp(kinds.at[p.kind], kind) == 0;
}

/* The build compiles *.isa.c files for each instruction set, and *.cu files by nvcc, in these folders
 * only. */
TEST(files_are_where_the_build_finds_them) {
    static const char *const isa[] = {".isa.c", NULL}, *const cuda[] = {".cu", ".cuh", NULL};
    read_sources();
    for (int i = 0; i < n_sources; i++) {
        const source *s = &sources[i];
        const char *at;
        CHECK_SAYING(is_for(s->place, "cpu") || !has_ending(s->path, isa),
                     "src/%s: vector code is in a folder cpu/", s->path);
        CHECK_SAYING(is_for(s->place, "cuda") || !has_ending(s->path, cuda),
                     "src/%s: device code is in a folder cuda/", s->path);
        CHECK_SAYING(s->place.kind < 0 || folder_at(s->path, s->place.family < 0 ? 2 : 3, &at) == 0,
                     "src/%s: a folder for a kind of device has no folders", s->path);
    }
}

/* tests/unit/FOLDER/ has the tests of src/FOLDER/, and `tree` those of all folders. */
static void check_test(const char *path, const char *text, void *user) {
    char folder[4096];
    (void)text, (void)user;
    const char *below = path + strlen(GRADUS_TESTS "/unit/"), *slash = strrchr(below, '/');
    const int length = slash ? (int)(slash - below) : 0;
    if (length == 4 && strncmp(below, "tree", 4) == 0) return;
    snprintf(folder, sizeof folder, GRADUS_SOURCE "/src/%.*s", length, below);
    DIR *d = length ? opendir(folder) : NULL;
    CHECK_SAYING(d, "tests/unit/%s: there is no folder src/%.*s", below, length, below);
    if (d) closedir(d);
}

TEST(tests_are_in_folders_as_what_they_test) {
    static const char *const endings[] = {".c", ".h", ".py", NULL};
    CHECK(each_file(GRADUS_TESTS "/unit", endings, check_test, NULL) > 150);
}

/* --- names of files --------------------------------------------------------------------------- */

/* Whether `file` begins with this word: "gemm" begins gemm.h and gemm_pack.h. */
static bool begins_with_word(const char *file, const char *word) {
    const size_t length = strlen(word);
    return strncmp(file, word, length) == 0 && (file[length] == '.' || file[length] == '_');
}

/* Whether FAMILY/OP.c has the record of the op that it is named after, as matmul/einsum.c. */
static bool is_named_after_op(const source *s) {
    const char *file = file_of(s->path);
    char record[100];
    snprintf(record, sizeof record, "/*op %.*s(", (int)strcspn(file, "."), file);
    return s->place.kind < 0 && has_ending(file, (const char *const[]){".c", NULL}) &&
           strstr(s->text, record);
}

TEST(files_of_a_family_of_ops_begin_with_its_name) {
    static const char *const other[][2] = {
        {"conv", "space_to_depth"}, {"elementwise", "activation"}, {"matmul", "gemm"}};
    int count = 0;
    read_sources();
    for (int i = 0; i < n_sources; i++) {
        const source *s = &sources[i];
        if (s->place.family < 0) continue;
        const char *file = file_of(s->path), *family = families.at[s->place.family];
        bool fits = begins_with_word(file, family) || is_named_after_op(s);
        for (size_t k = 0; k < sizeof other / sizeof *other; k++)
            fits =
                fits || (strcmp(family, other[k][0]) == 0 && begins_with_word(file, other[k][1]));
        CHECK_SAYING(fits, "src/%s: its name does not begin with %s_", s->path, family);
        count++;
    }
    CHECK(count > 150);
}

/* --- the page --------------------------------------------------------------------------------- */

TEST(the_map_of_the_tree_can_be_read_in_one_sitting) {
    char *page = read_file(GRADUS_SOURCE "/ARCHITECTURE.md");
    CHECK_SAYING(page && strlen(page) < 30000, "ARCHITECTURE.md has %zu bytes",
                 page ? strlen(page) : 0);
    free(page);
}

TEST_MAIN
