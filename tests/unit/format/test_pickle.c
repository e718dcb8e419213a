/* test_pickle.c - pickles are read as data (format/pickle.h): values, calls as names, and pickles that
 * would do something if they were executed. */
#include "fuzz/damage.h"
#include "fuzz/fuzz_pickle.c"

#include "clean_test.h"
#include "core/alloc.h"
#include "core/error.h"

static gd_pickle pickle;

/* Reads a literal with zero bytes in it. */
#define READ(bytes) gd_pickle_read(&pickle, "p.pkl", bytes, sizeof bytes - 1, 0, NULL)

static bool fails(const char *part) { return strstr(gd_latest_failure(), part) != NULL; }

static gd_pickle_value *item(const gd_pickle_value *v, size_t i) { return v->items[i]; }

CLEAN_TEST(numbers_and_texts_of_every_opcode_are_read) {
    /* [None, True, False, 5, 258, -1, -129, 2**33, 2**72, 1.5, "a", "bc", "d", "e", b"f", b"g",
     *  b"h", bytearray(b"i"), 0] */
    CHECK(READ("\x80\x05\x95\x00\x00\x00\x00\x00\x00\x00\x00](N\x88\x89K\x05M\x02\x01J\xff\xff\xff"
               "\xff\x8a\x02\x7f\xff\x8a\x05\x00\x00\x00\x00\x02\x8a\x0a\x00\x00\x00\x00\x00\x00"
               "\x00\x00\x00\x01G\x3f\xf8\x00\x00\x00\x00\x00\x00X\x01\x00\x00\x00"
               "a\x8c\x02"
               "bc\x8d\x01\x00\x00\x00\x00\x00\x00\x00"
               "dU\x01"
               "eB\x01\x00\x00\x00"
               "fC\x01g\x8e\x01\x00\x00\x00\x00\x00\x00\x00h\x96\x01\x00\x00\x00\x00\x00\x00\x00i"
               "\x8a\x00"
               "e.") == GD_OK);
    const gd_pickle_value *v = pickle.root;
    static const int64_t numbers[] = {5, 258, -1, -129, 1ll << 33};
    static const char *const texts[] = {"a", "bc", "d", "e"};
    CHECK(v->type == GD_PICKLE_LIST && v->count == 19 && item(v, 0)->type == GD_PICKLE_NONE &&
          item(v, 1)->integer == 1 && item(v, 2)->integer == 0);
    for (size_t i = 0; i < 5; i++)
        CHECK(item(v, 3 + i)->type == GD_PICKLE_INT && item(v, 3 + i)->integer == numbers[i]);
    CHECK(item(v, 8)->type == GD_PICKLE_BIGINT && item(v, 9)->number == 1.5);
    for (size_t i = 0; i < 4; i++) CHECK(gd_pickle_is_text(item(v, 10 + i), texts[i]));
    for (size_t i = 0; i < 4; i++)
        CHECK(item(v, 14 + i)->type == GD_PICKLE_BYTES && item(v, 14 + i)->text.length == 1 &&
              item(v, 14 + i)->text.at[0] == "fghi"[i]);
    CHECK(item(v, 18)->type == GD_PICKLE_INT && item(v, 18)->integer == 0);
    gd_pickle_free(&pickle);
}

CLEAN_TEST(containers_and_the_memo_are_read) {
    /* x = ("k", 1, 2); {"k": x, "l": [x, (), (1,), (1, 2)], "s": {1}, "f": frozenset({2})} */
    CHECK(READ("\x80\x04}q\x00(\x8c\x01k\x94h\x01K\x01K\x02\x87q\x02\x8c\x01l](h\x02)K\x01\x85K\x01"
               "K\x02\x86"
               "e\x8c\x01s\x8f(K\x01\x90\x8c\x01"
               "f(K\x02\x91u.") == GD_OK);
    const gd_pickle_value *d = pickle.root, *x = gd_pickle_get(d, "k"), *l = gd_pickle_get(d, "l");
    CHECK(d->type == GD_PICKLE_DICT && d->count == 8 && x && x->count == 3 && l && l->count == 4);
    CHECK(item(l, 0) == x && item(x, 0) == d->items[0] && item(l, 1)->count == 0 &&
          item(l, 2)->count == 1 && item(l, 3)->count == 2);
    CHECK(gd_pickle_get(d, "s")->type == GD_PICKLE_SET && gd_pickle_get(d, "s")->count == 1 &&
          gd_pickle_get(d, "f")->type == GD_PICKLE_SET && !gd_pickle_get(d, "x"));
    gd_pickle_free(&pickle);
}

CLEAN_TEST(calls_are_names_with_arguments_and_state) {
    /* os.system("rm -rf /"); object of a.B with state; a persistent id */
    CHECK(READ("\x80\x02(cos\nsystem\nX\x08\x00\x00\x00rm -rf /\x85R"
               "ca\nB.C\n)\x81}X\x01\x00\x00\x00wK\x03sb"
               "X\x02\x00\x00\x00idQt.") == GD_OK);
    const gd_pickle_value *v = pickle.root, *call = item(v, 0), *made = item(v, 1);
    CHECK(v->count == 3 && call->type == GD_PICKLE_OBJECT &&
          gd_pickle_is_global(call->of, "os", "system") &&
          gd_pickle_is_text(item(call->arguments, 0), "rm -rf /"));
    CHECK(gd_pickle_is_global(made->of, "a", "B.C") && gd_pickle_get(made->state, "w") &&
          gd_pickle_get(made->state, "w")->integer == 3);
    CHECK(item(v, 2)->type == GD_PICKLE_PERSISTENT && gd_pickle_is_text(item(v, 2)->of, "id") &&
          pickle.n_persistent == 1 && pickle.persistent[0] == item(v, 2));
    gd_pickle_free(&pickle);
}

CLEAN_TEST(values_that_contain_themselves_are_read) {
    CHECK(READ("\x80\x02]q\x00h\x00"
               "a.") == GD_OK);
    CHECK(pickle.root->count == 1 && item(pickle.root, 0) == pickle.root);
    gd_pickle_free(&pickle);
}

CLEAN_TEST(other_opcodes_are_refused_by_name_and_position) {
    static const struct {
        const char *bytes, *says;
    } cases[] = {
        {"I1\n.", "p.pkl: the pickle has the opcode INT (0x49) at byte 0"},
        {"N(ios\nsystem\n.", "the opcode INST (0x69) at byte 2"},
        {"(co\nx\no.", "the opcode OBJ"},
        {"S'a'\n.", "the opcode STRING"},
        {"F1.5\n.", "the opcode FLOAT"},
        {"L1L\n.", "the opcode LONG"},
        {"N2.", "the opcode DUP"},
        {"Nh", "ends inside a pickle"},
        {"\x82x.", "the opcode EXT1"},
        {"\x97.", "the opcode NEXT_BUFFER"},
        {"\xff", "the opcode unknown (0xff)"},
        {"\x80\x06.", "is a pickle of protocol 6"},
        {".", "wrong at byte 0 (STOP): there is no value"},
        {"(.", "there is no value"},
        {"Nt.", "wrong at byte 1 (TUPLE): there is no mark"},
        {"N\x86.", "too few values"},
        {"N(\x86.", "a mark among the values"},
        {"NNa.", "cannot hold others"},
        {"}Ns.", "there is no value|cannot hold others"},
        {"}(Nu.", "a key has no value"},
        {"NNR.", "the arguments are no tuple"},
        {"NN\x93.", "is no str"},
        {"NNb.", "has no state"},
        {"h\x07.", "nothing was remembered"},
        {"q\x01.", "no value to remember"},
        {"X\xff\xff\xff\x7f.", "ends inside a pickle, at byte 6"},
        {"cos\nsystem", "ends inside a pickle"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const gd_status status =
            gd_pickle_read(&pickle, "p.pkl", cases[i].bytes, strlen(cases[i].bytes), 0, NULL);
        CHECK_SAYING(status != GD_OK, "case %zu was read", i);
        if (!strchr(cases[i].says, '|'))
            CHECK_SAYING(fails(cases[i].says), "case %zu: %s", i, gd_latest_failure());
    }
}

CLEAN_TEST(numbers_of_the_memo_and_lengths_take_no_memory_that_the_input_does_not_back) {
    CHECK(READ("Nr\xff\xff\xff\x7f.") == GD_E_FORMAT && fails("larger than the pickle"));
    CHECK(READ("\x8d\xff\xff\xff\xff\xff\xff\xff\xff.") == GD_E_FORMAT);
    CHECK(READ("\x8b\xff\xff\xff\xff.") == GD_E_FORMAT);
    CHECK(READ("\x95\xff\xff\xff\xff\xff\xff\xff\xffN.") == GD_OK); /* a frame is a hint */
    gd_pickle_free(&pickle);
}

/* Each level is twice the one before: 2^40 values if they were copied. */
CLEAN_TEST(a_memo_bomb_takes_memory_for_its_bytes_only) {
    char bytes[400] = "]q\x00";
    size_t n = 3;
    bytes[2] = 0;
    for (int i = 0; i < 40; i++) {
        memcpy(bytes + n, "](h\0h\0eq\0", 9);
        bytes[n + 3] = bytes[n + 5] = (char)i;
        bytes[n + 8] = (char)(i + 1);
        n += 9;
    }
    bytes[n++] = '.';
    CHECK(gd_pickle_read(&pickle, "bomb", bytes, n, 0, NULL) == GD_OK && pickle.memory < 64 * 1024);
    gd_pickle_free(&pickle);
}

CLEAN_TEST(any_depth_is_read) {
    enum { DEPTH = 1000000 };
    char *bytes = malloc(2 * DEPTH + 2);
    memset(bytes, ']', DEPTH + 1);
    memset(bytes + DEPTH + 1, 'a', DEPTH);
    bytes[2 * DEPTH + 1] = '.';
    CHECK(gd_pickle_read(&pickle, "deep", bytes, 2 * DEPTH + 2, 0, NULL) == GD_OK &&
          pickle.root->count == 1);
    gd_pickle_free(&pickle);
    free(bytes);
}

/* --- short form of fuzz/fuzz_pickle.c ----------------------------------------------------------- */

TEST(damaged_pickles_fail_or_are_read_completely) {
    static const char sample[] =
        "\x80\x05\x95\x40\x00\x00\x00\x00\x00\x00\x00}q\x00("
        "\x8c\x01k\x94h\x01K\x01K\x02\x87q\x02\x8c"
        "\x01l](h\x02)K\x01\x85K\x01K\x02\x86"
        "e\x8c\x01s\x8f(K\x01\x90\x8c\x01"
        "f(K\x02\x91X\x01\x00\x00\x00nca\nB.C\n)\x81}X\x01\x00\x00\x00wK\x03sbX\x01\x00\x00\x00pX"
        "\x02\x00\x00\x00idQG\x3f\xf8\x00\x00\x00\x00\x00\x00\x8a\x02\x7f\xffu.";
    run_cut(LLVMFuzzerTestOneInput, sample, sizeof sample - 1);
    run_damaged(LLVMFuzzerTestOneInput, sample, sizeof sample - 1, 100000);
}

TEST_MAIN
