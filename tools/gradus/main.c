/* main.c - the gradus command: finds the subcommand and applies the common options. */
#include <locale.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "tool.h"

static const command *const commands[] = {
    &demo_command,         &train_command, &eval_command,          &predict_command,
    &summary_command,      &list_command,  &ops_command,           &info_command,
    &time_command,         &test_command,  &convert_mnist_command, &convert_images_command,
    &compute_mean_command, &draw_command,  &upgrade_net_command,   &upgrade_solver_command,
    &extract_command};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

settings common;
const char *program = "gradus";

const option common_options[] = {
    {"common options", HEADING, NULL, NULL, NULL},
    {"device", TEXT, &common.device, "NAME", "device that runs the net (default: cpu)"},
    {"gpu", TEXT, &common.gpu, "N",
     "the same as Caffe writes it: the number of a GPU, or -1 for the CPU"},
    {"seed", INTEGER, &common.seed, "N", "seed of all random numbers (default 0)"},
    {"threads", INTEGER, &common.threads, "N",
     "in [1, 256]: number of CPU threads (default: one for each core)"},
    {"json", FLAG, &common.json, NULL, "print results as JSON to stdout"},
    {"quiet", FLAG, &common.quiet, NULL, "show no progress"},
    {"help", FLAG, NULL, NULL, "show this text"},
    {0}};

size_t utf8_length(const char *text) {
    const unsigned char *p = (const unsigned char *)text;
    if (*p < 0x80) return 1;
    const size_t length = *p < 0xC2 ? 0 : *p < 0xE0 ? 2 : *p < 0xF0 ? 3 : *p < 0xF5 ? 4 : 0;
    for (size_t i = 1; i < length; i++)
        if ((p[i] & 0xC0) != 0x80) return 0;
    /* longer than needed, half of a pair, or too large */
    if ((*p == 0xE0 && p[1] < 0xA0) || (*p == 0xED && p[1] >= 0xA0) ||
        (*p == 0xF0 && p[1] < 0x90) || (*p == 0xF4 && p[1] >= 0x90))
        return 0;
    return length;
}

void print_safely(FILE *out, const char *text) {
    for (size_t length; *text; text += length) {
        const unsigned char c = (unsigned char)*text, next = (unsigned char)text[1];
        length = utf8_length(text);
        const bool control = (c < 0x20 && c != '\n' && c != '\t') || c == 0x7F ||
                             (c == 0xC2 && next < 0xA0); /* U+0080 to U+009F */
        if (length && !control) {
            fprintf(out, "%.*s", (int)length, text);
            continue;
        }
        if (!length) length = 1;
        for (size_t i = 0; i < length; i++) fprintf(out, "\\x%02x", (unsigned char)text[i]);
    }
}

void print_wrapped(const char *text, int indent, int width) {
    int column = indent;
    while (*text) {
        const int length = (int)strcspn(text, " \n");
        if (column > indent && column + 1 + length > width) {
            printf("\n%*s", indent, "");
            column = indent;
        }
        if (column > indent) putchar(' '), column++;
        printf("%.*s", length, text);
        column += length;
        text += length;
        text += strspn(text, " \n");
    }
    putchar('\n');
}

static int print_failure(const char *message, gd_status status) {
    if (common.json) {
        json_begin(NULL);
        json_text("error", message);
        json_text("status", gd_status_name(status));
        json_end();
        json_line();
    }
    fputs("gradus: ", stderr);
    print_safely(stderr, message);
    fputc('\n', stderr);
    return FAILED;
}

int failed(void) {
    return gd_failed() ? print_failure(gd_error_message(), gd_error_status())
                       : print_failure("unknown failure", GD_E_STATE);
}

int fail(const char *format, ...) {
    char message[2000];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    return print_failure(message, GD_E_ARGUMENT);
}

void note(const char *format, ...) {
    char message[2000];
    va_list args;
    if (common.quiet) return;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    fputs("gradus: ", stderr);
    print_safely(stderr, message);
    fputc('\n', stderr);
}

/* Whether the progress of a training shows the message, too. */
static bool is_shown(const char *message) {
    static const char *const beginnings[] = {"gd_fit: stopped", "resumed from step"},
                             *const parts[] = {" is not saved, and training continues: ",
                                               " are lost, and training continues: ",
                                               " of an earlier run to its folder '"};
    bool shown = false;
    for (int i = 0; i < 2; i++)
        shown |= strncmp(message, beginnings[i], strlen(beginnings[i])) == 0;
    for (int i = 0; i < 3 && !common.quiet; i++) shown |= strstr(message, parts[i]) != NULL;
    return shown;
}

/* Prints the log of the library: warnings always, notices unless --quiet. */
static void log_line(gd_log_level level, const char *message, void *user) {
    (void)user;
    if (is_shown(message)) return;
    if (level < GD_LOG_INFO || (level == GD_LOG_INFO && common.quiet)) return;
    fputs(level >= GD_LOG_WARNING ? "gradus: warning: " : "gradus: ", stderr);
    print_safely(stderr, message);
    fputc('\n', stderr);
}

static void print_overview(FILE *out) {
    fputs(
        "gradus trains and runs neural networks.\n\nusage: gradus COMMAND [options]\n\ncommands:\n",
        out);
    for (int i = 0; i < N_COMMANDS; i++)
        fprintf(out, "  %-16s  %s\n", commands[i]->name, commands[i]->summary);
    fputs("\nTo begin:\n"
          "  gradus demo                         train a net that reads digits; takes a minute\n"
          "  gradus train --help                 the same with your own data\n"
          "\nEvery command has --help. Exit codes: 0 success, 1 failure, 2 wrong usage, "
          "130 interrupted.\n",
          out);
}

/* --gpu as the name of a device. One process runs on one device. */
static int read_gpu(void) {
    static char name[40];
    char *end;
    if (!common.gpu) return DONE;
    if (common.device) return usage_error(NULL, "--device and --gpu are two devices; give one");
    if (strchr(common.gpu, ',') || strcmp(common.gpu, "all") == 0)
        return usage_error(NULL, "--gpu %s: a run uses one device; give one number", common.gpu);
    const long number = strtol(common.gpu, &end, 10);
    if (!*common.gpu || *end || number < -1 || number > 1000)
        return usage_error(NULL, "--gpu %s: it must be the number of a GPU, or -1 for the CPU",
                           common.gpu);
    if (number < 0) snprintf(name, sizeof name, "cpu");
    else snprintf(name, sizeof name, "cuda:%ld", number);
    common.device = name;
    return DONE;
}

static int apply_common_options(const command *c) {
    gd_set_log(log_line, NULL);
    const int code = read_gpu();
    if (code != DONE) return code;
    if (common.threads > 0 && gd_set_num_threads((int)common.threads) != GD_OK) return failed();
    gd_seed((uint64_t)common.seed);
    if (!common.device) return DONE;
    gd_device *device = gd_device_get(common.device);
    if (!device && c->any_device) gd_clear_error(); /* its kind may have kernels without a device */
    if (!device) return c->any_device ? DONE : failed();
    gd_set_default_device(device);
    return DONE;
}

int main(int argc, char **argv) {
    setlocale(LC_CTYPE, "");
    if (argc > 0 && argv[0][0]) program = argv[0];
    if (argc < 2) {
        print_overview(stderr);
        return USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "help") == 0 && argc > 2) {
        name = argv[2];
        argv[2] = (char *)"--help";
        argc = 3;
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        print_overview(stdout);
        return DONE;
    }
    if (strcmp(name, "--version") == 0) {
        printf("gradus %s\n", gd_version());
        return DONE;
    }
    for (int i = 0; i < N_COMMANDS; i++) {
        const command *c = commands[i];
        const char *words[MAX_WORDS];
        int count, code;
        if (strcmp(c->name, name) != 0) continue;
        if (!read_args(c, argc - 2, argv + 2, words, &count, &code)) return code;
        GD_SCOPE;
        code = apply_common_options(c);
        if (code == DONE) code = c->run(count, words);
        if (fflush(stdout) != 0 || ferror(stdout)) {
            fputs("gradus: cannot write to stdout\n", stderr);
            if (code == DONE) code = FAILED;
        }
        return code;
    }
    fprintf(stderr, "gradus: there is no command '%s'\n\n", name);
    print_overview(stderr);
    return USAGE;
}
