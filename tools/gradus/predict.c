/* predict.c - gradus predict: runs a saved model on images, rows of tables, or a text. */
#include <string.h>

#include "tool.h"

static predict_options o = {.top = 5, .invert = "auto", .length = 200, .temperature = 1};
static caffe_predict_options caffe = {.scale = 1};

static const option options[] = {
    {"top", INTEGER, &o.top, "N", "in [1, inf): number of classes to show (default 5)"},
    {"models of images", HEADING, NULL, NULL, NULL},
    {"invert", TEXT, &o.invert, "auto|yes|no",
     "invert images; auto: if the background is white and that of the training images was black, "
     "or the reverse"},
    {"models of texts", HEADING, NULL, NULL, NULL},
    {"text", TEXT, &o.text, "TEXT", "the text to continue; \"\" begins a new one"},
    {"length", INTEGER, &o.length, "N", "in [1, 1000000]: characters to write (default 200)"},
    {"temperature", NUMBER, &o.temperature, "T",
     "in [0, inf): below 1: likelier texts; above 1: more varied ones; 0: always the likeliest "
     "character "
     "(default 1)"},
    {"nets of Caffe", HEADING, NULL, NULL, NULL},
    {"model", TEXT, &caffe.model, "FILE", "the net as text: deploy.prototxt"},
    {"weights", TEXT, &caffe.weights, "FILE", "its weights: .caffemodel or .caffemodel.h5"},
    {"mean", TEXT, &caffe.mean, "FILE",
     "a mean image (.binaryproto) to subtract; if its size differs, the means of its channels"},
    {"mean-values", TEXT, &caffe.mean_values, "LIST",
     "a number to subtract, or one for each channel in the order blue, green, red: 104,117,123"},
    {"scale", NUMBER, &caffe.scale, "FACTOR",
     "of the pixels, from 0 to 255, after that (default 1)"},
    {"classes", TEXT, &caffe.classes, "FILE", "the names of the classes, one in a line"},
    {"output", TEXT, &caffe.output, "BLOB", "the blob to show (default: the first output)"},
    {0}};

/* What the arguments must be, by what the model was trained on; NULL: the model can be used. */
static const char *wrong_use(const model_info *a, int files) {
    if (a->length)
        return files ? "it is a model of texts, and continues the one of --text; it takes no files"
               : o.text ? NULL
                        : "it is a model of texts: --text TEXT lets it continue one";
    if (!a->channels && !a->layout)
        return "it has no metadata about images, tables or texts; models that gradus train has "
               "trained on such data (--data) have them";
    if (o.text) return "--text is for models of texts";
    if (files) return NULL;
    return a->layout ? "it needs at least one CSV file with rows" : "it needs at least one image";
}

static int run_predict(int count, const char **words) {
    model_info a;
    int code = DONE;
    caffe.top = o.top;
    if (caffe.model) return predict_caffe(&caffe, count, words);
    if (count < 1)
        return usage_error(&predict_command,
                           "it needs a model, and images, CSV files or --text TEXT");
    if (strcmp(o.invert, "auto") && strcmp(o.invert, "yes") && strcmp(o.invert, "no"))
        return usage_error(&predict_command, "--invert must be auto, yes or no");
    gd_module *net = load_model(words[0], &a);
    if (!net) return failed();
    const char *wrong = wrong_use(&a, count - 1);
    if (wrong) code = usage_error(&predict_command, "%s: %s", words[0], wrong);
    else if (a.length) code = predict_text(net, &a, &o);
    for (int i = 1; i < count && !wrong; i++) {
        GD_SCOPE;
        const int result = a.layout ? predict_table(net, &a, words[i], &o, count > 2)
                                    : predict_image(net, &a, words[i], &o, count > 2);
        if (result != DONE) code = result;
        gd_clear_error();
    }
    free_model_info(&a);
    return code;
}

const command predict_command = {
    .name = "predict",
    .usage = "gradus predict MODEL.onnx IMAGE... | ROWS.csv... | --text TEXT\n"
             "       gradus predict --model NET.prototxt --weights FILE.caffemodel IMAGE...",
    .summary = "classify images, predict rows of a table, continue a text",
    .about =
        "What it takes depends on the data that the model was trained on. Images are PNG, JPEG or\n"
        "PPM files of any size; they are resized to the size of the training images, and the most\n"
        "likely classes are printed. Tables are CSV files with the columns of the training data;\n"
        "the target may be absent. They are converted as in the training, and each row gives a\n"
        "line: the prediction, and for classes its probability. A net of Caffe gets images as\n"
        "Caffe reads them, blue, green, red from 0 to 255; one that finds objects prints a line\n"
        "for each of them.\n",
    .examples = "  gradus predict m.onnx digit.png\n"
                "  gradus predict cats.onnx *.jpg --top 1 --json\n"
                "  gradus predict price.onnx new_houses.csv > prices.csv\n"
                "  gradus predict --model deploy.prototxt --weights plates.caffemodel \\\n"
                "      --mean mean.binaryproto --classes names.txt plate.jpg\n"
                "  gradus predict gpt.onnx --text \"To be\" --length 500 --temperature 0.8\n",
    .options = options,
    .run = run_predict};
