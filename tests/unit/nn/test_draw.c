/* test_draw.c - pictures of modules: boxes, their texts, the order in layers, bad input. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "clean_test.h"
#include "core/alloc.h"
#include "format/file.h"
#include "gradus/gradus.h"
#include "nn/draw.h"
#include "temp.h"

/* --- what is in an SVG file ------------------------------------------------------------------- */

typedef struct rectangle {
    double x, y, width, height;
} rectangle;

typedef struct image {
    char *text;
    rectangle boxes[2000], texts[4000];
    int n_boxes, n_texts, n_lines;
    double width, height;
} image;

static double attribute(const char *element, const char *name) {
    char key[40];
    snprintf(key, sizeof key, " %s=\"", name);
    const char *at = strstr(element, key);
    return at ? strtod(at + strlen(key), NULL) : NAN;
}

static void read_image(image *m, const char *path) {
    size_t bytes;
    m->n_boxes = m->n_texts = m->n_lines = 0;
    m->text = NULL;
    CHECK(gd_file_read_all(path, &m->text, &bytes) == GD_OK);
    if (!m->text) return;
    m->width = attribute(m->text, "width");
    m->height = attribute(m->text, "height");
    for (const char *s = m->text; (s = strchr(s, '<')); s++) {
        if (strncmp(s, "<path class=\"l", 14) == 0) m->n_lines++;
        if (strncmp(s, "<rect class=\"b\"", 15) == 0 && m->n_boxes < 2000)
            m->boxes[m->n_boxes++] = (rectangle){attribute(s, "x"), attribute(s, "y"),
                                                 attribute(s, "width"), attribute(s, "height")};
        if (strncmp(s, "<text class=\"h\"", 15) != 0 && strncmp(s, "<text", 5) == 0 &&
            m->n_texts < 4000)
            m->texts[m->n_texts++] = (rectangle){attribute(s, "x"), attribute(s, "y") - 9,
                                                 attribute(s, "textLength"), 11};
    }
}

static bool overlap(const rectangle *a, const rectangle *b) {
    return a->x < b->x + b->width - 0.2 && b->x < a->x + a->width - 0.2 &&
           a->y < b->y + b->height - 0.2 && b->y < a->y + a->height - 0.2;
}

static bool is_inside(const rectangle *a, const rectangle *b) {
    return a->x >= b->x && a->x + a->width <= b->x + b->width && a->y >= b->y &&
           a->y + a->height <= b->y + b->height;
}

/* Boxes do not overlap, each text is in a box and overlaps no other text, and all is in the image. */
static void check_image(const image *m, const char *what) {
    const rectangle all = {0, 0, m->width, m->height};
    int wrong = 0;
    for (int i = 0; i < m->n_boxes; i++) {
        wrong += !is_inside(&m->boxes[i], &all);
        for (int k = 0; k < i; k++) wrong += overlap(&m->boxes[i], &m->boxes[k]);
    }
    CHECK_SAYING(wrong == 0, "%s: %d boxes overlap or are outside", what, wrong);
    wrong = 0;
    for (int i = 0; i < m->n_texts; i++) {
        int boxes = 0;
        for (int k = 0; k < m->n_boxes; k++) boxes += is_inside(&m->texts[i], &m->boxes[k]);
        wrong += boxes != 1;
        for (int k = 0; k < i; k++) wrong += overlap(&m->texts[i], &m->texts[k]);
    }
    CHECK_SAYING(wrong == 0, "%s: %d texts overlap or leave their boxes", what, wrong);
}

static image picture;

/* --- modules ---------------------------------------------------------------------------------- */

TEST(a_picture_has_the_layers_with_their_options_and_shapes) {
    GD_SCOPE;
    gd_module *net = gd_nn_sequential(gd_nn_conv2d(1, 6, 5, .padding = {2, 2}), gd_nn_relu(),
                                      gd_nn_flatten(.start_axis = 1), gd_nn_linear(6 * 64, 10));
    gd_tensor *x = gd_randn(gd_dims(2, 1, 8, 8));
    CHECK(gd_module_draw(net, temp_path("net.svg"), gd_list(x), .title = "a <b> & c") == GD_OK);
    read_image(&picture, temp_path("net.svg"));
    static const char *const texts[] = {">conv2d<",    "out_channels=6",     "padding=[2,2]",
                                        ">relu<",      ">linear<",           "out_features=10",
                                        ">[2,384]<",   ">[2,10]<",           ">input<",
                                        ">[2,1,8,8]<", "a &lt;b&gt; &amp; c"};
    for (size_t i = 0; picture.text && i < sizeof texts / sizeof *texts; i++)
        CHECK_SAYING(strstr(picture.text, texts[i]), "'%s' is not in the picture", texts[i]);
    CHECK(!strstr(picture.text, "in_channels")); /* the input has it */
    CHECK(picture.n_boxes == 3);                 /* the activation is in the box of its layer */
    CHECK(picture.n_lines == 2);
    check_image(&picture, "a chain");
    gd_free(picture.text);
    CHECK(gd_module_forward(net, x) && !gd_failed()); /* nothing has changed */
}

TEST(texts_and_boxes_of_nets_do_not_overlap) {
    static const struct {
        const char *net, *options;
        gd_shape input;
        int boxes;
    } nets[] = {{"resnet18", "classes=10", {{1, 3, 64, 64}, 4, 1}, 32},
                {"resnet20", "", {{1, 3, 32, 32}, 4, 1}, 0},
                {"gpt", "vocabulary=50 context=16", {{1, 16}, 2, 1}, 0},
                {"char_lstm", "vocabulary=50", {{1, 16}, 2, 1}, 0}};
    for (size_t i = 0; i < sizeof nets / sizeof *nets; i++)
        for (int right = 0; right < 2; right++) {
            GD_SCOPE;
            gd_module *net = gd_net_new(nets[i].net, nets[i].options);
            gd_tensor *x = nets[i].input.rank == 4 ? gd_zeros(nets[i].input)
                                                   : gd_zeros(nets[i].input, .dtype = GD_I64);
            CHECK_SAYING(gd_module_draw(net, temp_path("zoo.svg"), gd_list(x),
                                        .left_to_right = right) == GD_OK,
                         "%s: %s", nets[i].net, gd_error_message());
            gd_clear_error();
            read_image(&picture, temp_path("zoo.svg"));
            check_image(&picture, nets[i].net);
            CHECK_SAYING(!nets[i].boxes || picture.n_boxes == nets[i].boxes, "%s has %d boxes",
                         nets[i].net, picture.n_boxes);
            gd_free(picture.text);
        }
}

TEST(an_activation_has_its_own_box_if_others_read_its_input) {
    GD_SCOPE;
    gd_module *net = gd_nn_net("x", "y");
    gd_net_add(net, "fc", gd_nn_linear(3, 3), "x", "h");
    gd_net_add(net, "act", gd_nn_relu(), "h", "r");
    gd_net_add(net, "sum", gd_nn_op("add"), "h r", "y");
    CHECK(gd_module_draw(net, temp_path("sum.svg"), gd_list(gd_ones(gd_dims(1, 3)))) == GD_OK);
    read_image(&picture, temp_path("sum.svg"));
    CHECK(picture.n_boxes == 4 && strstr(picture.text, ">sum<"));
    gd_free(picture.text);
}

TEST(a_dot_file_has_the_boxes_and_quotes_what_it_must) {
    GD_SCOPE;
    char *text;
    size_t bytes;
    gd_module *net = gd_nn_net("x", "y");
    gd_net_add(net, "a \"b\" \\c", gd_nn_linear(3, 4), "x", "h");
    gd_net_add(net, "d", gd_nn_linear(4, 2), "h", "y");
    CHECK(gd_module_draw(net, temp_path("net.dot"), gd_list(gd_ones(gd_dims(1, 3)))) == GD_OK);
    CHECK(gd_file_read_all(temp_path("net.dot"), &text, &bytes) == GD_OK);
    CHECK(strstr(text, "a \\\"b\\\" \\\\c  linear"));
    CHECK(strstr(text, "b0 -> b1;") && strstr(text, "b1 -> b2;"));
    gd_free(text);
}

static void check_message(const char *text) {
    CHECK(gd_failed());
    CHECK_SAYING(strstr(gd_error_message(), text), "'%s' is not in '%s'", text, gd_error_message());
    gd_clear_error();
}

TEST(bad_input_gives_a_status_and_leaves_the_old_file) {
    GD_SCOPE;
    char *text;
    size_t bytes;
    gd_module *net = gd_nn_linear(3, 4);
    gd_tensor *x = gd_ones(gd_dims(1, 3));
    CHECK(gd_module_draw(net, temp_path("old.svg"), gd_list(x)) == GD_OK);
    CHECK(gd_module_draw(net, temp_path("old.svg"), gd_list(gd_ones(gd_dims(1, 5)))) != GD_OK);
    check_message("linear");
    CHECK(gd_module_draw(net, temp_path("net.png"), gd_list(x)) == GD_E_ARGUMENT);
    check_message(".svg or .dot");
    CHECK(gd_module_draw(net, "/nowhere/net.svg", gd_list(x)) == GD_E_IO);
    check_message("/nowhere/net.svg");
    CHECK(gd_module_draw(NULL, temp_path("old.svg"), gd_list(x)) == GD_E_ARGUMENT);
    check_message("the module is NULL");
    CHECK(gd_module_draw(net, NULL, gd_list(x)) == GD_E_ARGUMENT);
    check_message("the path is NULL");
    CHECK(gd_file_read_all(temp_path("old.svg"), &text, &bytes) == GD_OK);
    CHECK(strstr(text, "</svg>"));
    gd_free(text);
}

/* --- drawings --------------------------------------------------------------------------------- */

static int add_box(gd_drawing *d, const char *name) {
    const int box = gd_draw_box(d);
    gd_draw_part(d, box, name, "type", "", "conv");
    gd_draw_output(d, box, "", "[1]");
    return box;
}

/* Pairs of pieces of lines that cross. */
static int count_crossings(const gd_layers *l) {
    int count = 0;
    for (int i = 0; i < l->n_links; i++)
        for (int k = 0; k < i; k++) {
            const gd_draw_node *a = &l->nodes[l->links[i].from], *b = &l->nodes[l->links[k].from],
                               *c = &l->nodes[l->links[i].to], *d = &l->nodes[l->links[k].to];
            count += a->rank == b->rank && (a->at - b->at) * (c->at - d->at) < 0;
        }
    return count;
}

static int crossings_of(gd_drawing *d) {
    gd_layers l = {0};
    CHECK(gd_draw_rank(&l, d));
    for (int i = 0; i < l.n_nodes; i++) l.nodes[i].size = l.nodes[i].box < 0 ? 0 : 80;
    CHECK(gd_draw_order(&l) && gd_draw_place(&l, 20));
    for (int i = 0; i < l.n_nodes; i++) /* neighbours keep their distance */
        for (int k = 0; k < l.n_nodes; k++)
            if (l.nodes[i].rank == l.nodes[k].rank && l.nodes[k].at == l.nodes[i].at + 1)
                CHECK(l.nodes[k].x - l.nodes[i].x >
                      gd_draw_distance(&l.nodes[i], &l.nodes[k], 20) - 0.01);
    const int count = count_crossings(&l);
    gd_layers_free(&l);
    return count;
}

/* Blocks of parallel branches of different lengths, given in an order that crosses, with lines that pass
 * the blocks: they can be drawn without crossings. */
TEST(branches_that_need_not_cross_do_not) {
    for (unsigned seed = 1; seed <= 40; seed++) {
        gd_drawing *d = gd_drawing_new("branches");
        srand(seed);
        int last = add_box(d, "input");
        for (int block = 0; block < 6; block++) {
            int ends[6], n = 1 + rand() % 5;
            for (int b = 0; b < n; b++) ends[b] = last;
            for (int step = 0; step < 4; step++)
                for (int b = n; b-- > 0;) { /* branches grow in turn */
                    if (rand() % 3 == 0) continue;
                    const int box = add_box(d, "layer");
                    gd_draw_connect(d, ends[b], 0, box);
                    ends[b] = box;
                }
            const int joined = add_box(d, "join");
            for (int b = 0; b < n; b++) gd_draw_connect(d, ends[b], 0, joined);
            last = joined;
        }
        const int count = crossings_of(d);
        CHECK_SAYING(count == 0, "seed %u: %d crossings", seed, count);
        gd_drawing_free(d);
    }
}

TEST(a_chain_is_straight_and_labels_stand_beside_their_reader) {
    gd_drawing *d = gd_drawing_new("chain");
    gd_layers l = {0};
    const int data = add_box(d, "data"), label = add_box(d, "label");
    int last = data;
    for (int i = 0; i < 20; i++) {
        const int box = add_box(d, "layer");
        gd_draw_connect(d, last, 0, box);
        last = box;
    }
    const int loss = add_box(d, "loss");
    gd_draw_connect(d, last, 0, loss);
    gd_draw_connect(d, label, 0, loss);
    CHECK(gd_draw_rank(&l, d));
    for (int i = 0; i < l.n_nodes; i++) l.nodes[i].size = 50 + 10 * (i % 4);
    CHECK(gd_draw_order(&l) && gd_draw_place(&l, 20));
    CHECK(l.n_nodes == d->n_boxes); /* no line passes a layer */
    CHECK(l.nodes[l.node_of[label]].rank == l.nodes[l.node_of[loss]].rank - 1);
    for (int i = 2; i < d->n_boxes; i++)
        if (i != loss) CHECK(fabs(l.nodes[l.node_of[i]].x - l.nodes[l.node_of[data]].x) < 0.01);
    gd_layers_free(&l);
    gd_drawing_free(d);
}

/* Random graphs with parts, several outputs and hostile names. */
static gd_drawing *random_drawing(unsigned seed) {
    static const char *const names[] = {
        "conv1",
        "a/very/long/name/of/a/layer/that/goes/on/and/on/until/nobody/reads/it/any/more",
        "<&\">",
        "\xff\xfe bytes \x01",
        "\xE5\xB1\x82\xE5\x90\x8D",
        "",
        "inception_3a/5x5_reduce"};
    gd_drawing *d = gd_drawing_new(names[seed % 7]);
    srand(seed);
    const int n = 2 + rand() % 60;
    for (int i = 0; i < n; i++) {
        const int box = gd_draw_box(d);
        for (int k = rand() % 3; k >= 0; k--)
            gd_draw_part(d, box, names[rand() % 7], names[rand() % 7],
                         rand() % 2 ? "kernel=[3,3] stride=[2,2] a_long_option=0.123 b=1 c=2 d=3"
                                    : "",
                         rand() % 2 ? "pool" : NULL);
        for (int k = rand() % 4; k >= 0; k--)
            gd_draw_output(d, box, rand() % 2 ? names[rand() % 7] : "", "[1,64,56,56]");
        for (int k = rand() % 4; k > 0 && box > 0; k--) {
            const int from = rand() % box;
            gd_draw_connect(d, from, rand() % d->boxes[from].n_outputs, box);
        }
    }
    return d;
}

TEST(random_graphs_are_drawn_without_overlaps) {
    for (unsigned seed = 1; seed <= 150; seed++) {
        gd_drawing *d = random_drawing(seed);
        CHECK(gd_drawing_save(d, temp_path("random.svg"), seed % 2) == GD_OK);
        read_image(&picture, temp_path("random.svg"));
        check_image(&picture, "a random graph");
        gd_free(picture.text);
        gd_drawing_free(d);
    }
}

TEST(lines_that_would_be_too_long_are_named_instead) {
    enum { N = 3000 };
    gd_drawing *d = gd_drawing_new("far");
    for (int i = 0; i < N; i++) {
        char name[20];
        snprintf(name, sizeof name, "layer%d", i);
        const int box = add_box(d, name);
        if (i > 0) gd_draw_connect(d, box - 1, 0, box);
        if (i > N / 2) gd_draw_connect(d, box - N / 2, 0, box);
    }
    CHECK(gd_drawing_save(d, temp_path("far.svg"), false) == GD_OK);
    size_t bytes;
    char *text;
    CHECK(gd_file_read_all(temp_path("far.svg"), &text, &bytes) == GD_OK);
    CHECK(strstr(text, ">reads layer1<") && strstr(text, ">reads layer1499<"));
    CHECK(bytes < 5000000);
    gd_free(text);
    gd_drawing_free(d);
}

TEST_MAIN
