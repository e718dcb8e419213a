/* draw.c - gradus draw: the picture of a net. */
#include <string.h>

#include "gradus/caffe.h"
#include "tool.h"

static struct {
    const char *input, *phase, *stage, *dummy, *rank_dir;
    int64_t level;
} o = {.phase = "TEST", .rank_dir = "TB"};

static const option options[] = {
    {"input", TEXT, &o.input, "SIZES",
     "shape of the input with its batch axis: 1,3,224,224 (default: the usual one of the net)"},
    {"rank-dir", TEXT, &o.rank_dir, "TB|LR",
     "from top to bottom, or from left to right (default TB)"},
    {"phase", TEXT, &o.phase, "TRAIN|TEST", "layers of a net of Caffe (default TEST)"},
    {"level", INTEGER, &o.level, "N", "level of a net of Caffe (default 0)"},
    {"stage", TEXT, &o.stage, "NAMES", "stages of a net of Caffe, with commas between them"},
    {"dummy", TEXT, &o.dummy, "SHAPES",
     "shapes of data layers whose data are not there: \"data=3,227,227 label=1000\""},
    {0}};

static int draw_module(const char *model, const char *file, bool left_to_right) {
    model_info a;
    gd_shape dims;
    gd_module *net = make_model(model, NULL, &a);
    if (!net) return FAILED;
    if (o.input && !read_sizes(o.input, &dims))
        return usage_error(&draw_command, "--input needs sizes such as 1,3,224,224; it is '%s'",
                           o.input);
    gd_tensor *x = o.input ? gd_zeros(dims) : usual_input(model, &a);
    free_model_info(&a);
    gd_module_eval(net);
    const char *slash = strrchr(model, '/');
    const gd_status status = gd_module_draw(net, file, gd_list(x), .left_to_right = left_to_right,
                                            .title = slash ? slash + 1 : model);
    return status == GD_OK ? DONE : failed();
}

static int run_draw(int count, const char **words) {
    char stages[400];
    if (count != 2)
        return usage_error(&draw_command,
                           "it needs a net and a file: gradus draw net.prototxt net.svg");
    if (!ends_with(words[1], ".svg") && !ends_with(words[1], ".dot") && !ends_with(words[1], ".gv"))
        return usage_error(&draw_command, "%s: the picture must end in .svg or .dot", words[1]);
    if (strcmp(o.phase, "TRAIN") && strcmp(o.phase, "TEST"))
        return usage_error(&draw_command, "--phase must be TRAIN or TEST");
    if (strcmp(o.rank_dir, "TB") && strcmp(o.rank_dir, "LR"))
        return usage_error(&draw_command, "--rank-dir must be TB or LR");
    const bool left_to_right = strcmp(o.rank_dir, "LR") == 0;
    if (!ends_with(words[0], ".prototxt") && !ends_with(words[0], ".caffemodel"))
        return draw_module(words[0], words[1], left_to_right);
    if (o.input) return usage_error(&draw_command, "--input is for nets that are not of Caffe");
    const gd_status status = gd_caffe_draw_net(
        words[0], words[1], .train = strcmp(o.phase, "TRAIN") == 0, .level = (int)o.level,
        .stages = stage_names(o.stage, stages, sizeof stages), .dummy = o.dummy,
        .left_to_right = left_to_right);
    return status == GD_OK ? DONE : failed();
}

const command draw_command = {
    .name = "draw",
    .usage = "gradus draw NET FILE.svg [options]",
    .summary = "draw the layers of a net",
    .about = "Draws a net of Caffe (net.prototxt), a saved model.onnx, or a net of the zoo: a box "
             "for each\n"
             "layer, with its options and the shape of its output. Layers in place, and "
             "activations and\n"
             "norms behind a layer, are in the box of that layer. FILE.dot is text for Graphviz.\n",
    .examples = "  gradus draw deploy.prototxt net.svg\n"
                "  gradus draw train_val.prototxt net.svg --phase TRAIN \\\n"
                "      --dummy \"data=3,227,227 label=1000\"\n"
                "  gradus draw resnet18 net.svg --input 1,3,224,224\n",
    .options = options,
    .run = run_draw};
