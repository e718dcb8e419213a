/* files_caffe.c - gradus upgrade-net, upgrade-solver and extract-features: new files from those of Caffe. */
#include <string.h>

#include "gradus/caffe.h"
#include "tool.h"

/* --- upgrades --------------------------------------------------------------------------------- */

static int upgrade(const command *c, int count, const char **words, bool solver) {
    if (count != 2) return usage_error(c, "it needs two files, the old one and the new one");
    if (gd_caffe_upgrade(words[0], words[1], .solver = solver) != GD_OK) return failed();
    note("wrote %s", words[1]);
    return DONE;
}
static int run_upgrade_net(int count, const char **words) {
    return upgrade(&upgrade_net_command, count, words, false);
}
static int run_upgrade_solver(int count, const char **words) {
    return upgrade(&upgrade_solver_command, count, words, true);
}

const command upgrade_net_command = {.name = "upgrade-net",
                                     .usage = "gradus upgrade-net OLD NEW",
                                     .summary = "write an old net of Caffe with today's fields",
                                     .about = "NEW is text if it ends in .prototxt, and binary if "
                                              "it ends in .caffemodel. gradus reads old\n"
                                              "nets as they are; this is for other programs.\n",
                                     .examples =
                                         "  gradus upgrade-net old.prototxt new.prototxt\n"
                                         "  gradus upgrade-net old.caffemodel new.caffemodel\n",
                                     .run = run_upgrade_net};

const command upgrade_solver_command = {
    .name = "upgrade-solver",
    .usage = "gradus upgrade-solver OLD NEW",
    .summary = "write an old solver of Caffe with today's fields",
    .about = "NEW is text if it ends in .prototxt, and binary if it ends in .binaryproto.\n",
    .examples = "  gradus upgrade-solver old_solver.prototxt solver.prototxt\n",
    .run = run_upgrade_solver};

/* --- features --------------------------------------------------------------------------------- */

static struct {
    const char *model, *weights, *blobs, *out, *stage, *dummy;
    int64_t iterations, level, workers;
} o = {.iterations = 1};

static const option options[] = {
    {"model", TEXT, &o.model, "FILE", "the net as text, with data layers: train_val.prototxt"},
    {"weights", TEXT, &o.weights, "FILE", "its weights: .caffemodel; several with commas"},
    {"blobs", TEXT, &o.blobs, "NAMES",
     "the blobs, with commas or spaces between them: \"fc7 pool5\""},
    {"out", TEXT, &o.out, "FILE", "the new file: features.npz"},
    {"iterations", INTEGER, &o.iterations, "N", "in [1, 1000000000]: batches (default 1)"},
    {"level", INTEGER, &o.level, "N", "level of the net (default 0)"},
    {"stage", TEXT, &o.stage, "NAMES", "stages of the net, with commas between them"},
    {"workers", INTEGER, &o.workers, "N", "in [0, 64]: threads that prepare batches (default 0)"},
    {"dummy", TEXT, &o.dummy, "SHAPES",
     "random data in place of data layers: \"data=3,227,227 label=1000\""},
    {0}};

static int run_extract(int count, const char **words) {
    char stages[400], blobs[2000];
    const struct {
        const char *name, *value, *example;
    } needed[] = {{"model", o.model, "net.prototxt"},
                  {"blobs", o.blobs, "fc7"},
                  {"out", o.out, "features.npz"}};
    if (count) return usage_error(&extract_command, "unexpected argument '%s'", words[0]);
    for (int i = 0; i < 3; i++)
        if (!needed[i].value)
            return usage_error(&extract_command, "--%s is missing; for example --%s %s",
                               needed[i].name, needed[i].name, needed[i].example);
    if (!ends_with(o.out, ".npz"))
        return usage_error(&extract_command, "--out %s: it must end in .npz", o.out);
    if (strlen(o.blobs) >= sizeof blobs)
        return usage_error(&extract_command, "--blobs has more than %d characters",
                           (int)sizeof blobs);
    if (!o.weights) note("--weights is missing: the net has the values of its fillers");
    const gd_status status =
        gd_caffe_extract(o.model, stage_names(o.blobs, blobs, sizeof blobs), o.out,
                         .weights = o.weights, .iterations = o.iterations, .level = (int)o.level,
                         .stages = stage_names(o.stage, stages, sizeof stages), .dummy = o.dummy,
                         .workers = (int)o.workers);
    if (status != GD_OK) return failed();
    note("wrote %s", o.out);
    return DONE;
}

const command extract_command = {
    .name = "extract-features",
    .usage = "gradus extract-features --model NET --weights FILE --blobs NAMES --out FILE.npz",
    .summary = "write blobs of a net of Caffe to a .npz file",
    .about = "Runs the net of the phase TEST on batches of its data layers, and writes an array "
             "for each\n"
             "blob, with all batches one after the other: np.load(\"features.npz\")[\"fc7\"].\n",
    .examples = "  gradus extract-features --model train_val.prototxt --weights net.caffemodel \\\n"
                "      --blobs \"fc7 pool5\" --iterations 10 --out features.npz\n",
    .options = options,
    .run = run_extract};
