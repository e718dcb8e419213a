/* test_progress.c - progress output in terminals of any width, files and pipes. */
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "child.h"
#include "clean_test.h"
#include "fit_things.h"
#include "gradus/gradus.h"
#include "train/progress.h"

static const gd_progress_value values[] = {
    {"loss", 0.12345}, {"accuracy", 0.9712}, {"val_loss", 0.31}, {"val_accuracy", 0.95}};

static gd_progress_numbers half_done(void) {
    return (gd_progress_numbers){.what = "epoch",
                                 .epoch = 2,
                                 .epochs = 5,
                                 .batch = 844,
                                 .batches = 1875,
                                 .rate = 21312,
                                 .left = 12,
                                 .seconds = 4.2,
                                 .values = values,
                                 .n_values = 2};
}

static int column_count(const char *text) {
    int n = 0;
    for (; *text; text++) n += ((unsigned char)*text & 0xC0) != 0x80;
    return n;
}

TEST(bars_fit_the_terminal_width) {
    static const struct {
        int width;
        const char *text;
    } cases[] = {
        {100, "epoch 2/5 ===========>----------------  45%   844/1875  21.3k/s  0:12  loss 0.1235  "
              "accuracy 0.9712"},
        {80, "epoch 2/5 =======>-----------  45%  21.3k/s  0:12  loss 0.1235  accuracy 0.9712"},
        {40, "epoch 2/5 =>---  45%  0:12  loss 0.1235"},
        {20, "2/5  loss 0.1235"},
        {8, "2/5"},
        {1, "2"},
    };
    char text[GD_PROGRESS_TEXT];
    const gd_progress_numbers n = half_done();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gd_progress_bar(&n, cases[i].width, (gd_progress_style){false, false}, text);
        CHECK_SAYING(strcmp(text, cases[i].text) == 0, "width %d: '%s'", cases[i].width, text);
    }
    for (int width = 1; width < 200; width++)
        for (int batch = 0; batch <= 1875; batch += 125) {
            gd_progress_numbers any = n;
            any.batch = batch;
            any.left = batch ? 1e5 / batch : NAN;
            gd_progress_bar(&any, width, (gd_progress_style){true, false}, text);
            CHECK_SAYING(column_count(text) < (width > 2 ? width : 2), "width %d: '%s'", width,
                         text);
            any.batches = any.epochs = 0;
            gd_progress_bar(&any, width, (gd_progress_style){true, false}, text);
            CHECK_SAYING(column_count(text) < (width > 2 ? width : 2), "width %d: '%s'", width,
                         text);
        }
}

TEST(permanent_lines_end_with_a_newline) {
    char text[GD_PROGRESS_TEXT];
    gd_progress_numbers n = half_done();
    n.n_values = 4;
    gd_progress_result(&n, 0, text);
    CHECK_SAYING(strcmp(text, "epoch 2/5  4.2s  21.3k/s  loss 0.1235  accuracy 0.9712  val_loss "
                              "0.3100  val_accuracy 0.9500") == 0,
                 "%s", text);
    gd_progress_result(&n, 80, text);
    CHECK_SAYING(strcmp(text, "epoch 2/5  4.2s  21.3k/s  loss 0.1235  accuracy 0.9712  val_loss "
                              "0.3100\n  val_accuracy 0.9500") == 0,
                 "%s", text);
    gd_progress_middle(&n, text);
    CHECK_SAYING(strncmp(text, "epoch 2/5  45%   844/1875  21.3k/s  0:12 left  loss 0.1235", 58) ==
                     0,
                 "%s", text);
}

TEST(numbers_are_printed_short) {
    static const struct {
        double value;
        const char *number;
    } numbers[] = {{0.12345, "0.1235"}, {0, "0.0000"},       {-1.5, "-1.5000"},
                   {12.3456, "12.346"}, {123.456, "123.46"}, {4321.5, "4321.5"},
                   {123456, "123456"},  {1e7, "1.00e+07"},   {1.2e-5, "1.20e-05"},
                   {NAN, "nan"},        {INFINITY, "inf"},   {-INFINITY, "-inf"}};
    char text[32];
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        gd_progress_number(numbers[i].value, text);
        CHECK_SAYING(strcmp(text, numbers[i].number) == 0, "'%s', not '%s'", text,
                     numbers[i].number);
    }
    static const struct {
        double seconds;
        const char *time;
    } times[] = {{0, "0:00"},         {12.4, "0:12"}, {59.6, "1:00"}, {3725, "1:02:05"},
                 {90061, "1d 01:01"}, {-1, "?"},      {NAN, "?"},     {1e30, "?"}};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        gd_progress_time(times[i].seconds, text);
        CHECK_SAYING(strcmp(text, times[i].time) == 0, "'%s', not '%s'", text, times[i].time);
    }
    static const struct {
        double rate;
        const char *text;
    } rates[] = {{0.25, "0.25/s"},   {3.44, "3.4/s"},   {812, "812/s"},
                 {21312, "21.3k/s"}, {999.7, "1.0k/s"}, {3.2e6, "3.2M/s"}};
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        gd_progress_rate(rates[i].rate, text);
        CHECK_SAYING(strcmp(text, rates[i].text) == 0, "'%s', not '%s'", text, rates[i].text);
    }
}

/* --- runs ------------------------------------------------------------------------------------- */

static gd_status wait_a_little(gd_event *event, void *self) {
    (void)event, (void)self;
    usleep(10000);
    return GD_OK;
}

static void run_training(gd_progress mode) {
    GD_SCOPE;
    gd_tensor *x, *y;
    make_data(&x, &y);
    gd_module *net = make_net();
    gd_compile(net, .optimizer = "sgd", .loss = "cross_entropy", .metrics = "accuracy");
    gd_fit(net, gd_list(x, y), .epochs = 2, .batch = 2, .progress = mode,
           .validation_tensors = gd_list(x, y),
           .callbacks = gd_callbacks(gd_callback_from(NULL, .batch_end = wait_a_little)));
}

/* Reads what a child writes to its stderr, which is connected to `mine`. */
static void read_child(int theirs, int mine, gd_progress mode, char *text, size_t size) {
    const pid_t child = fork();
    if (child == 0) {
        dup2(theirs, STDERR_FILENO);
        close(mine);
        run_training(mode);
        _exit(0);
    }
    close(theirs);
    size_t used = 0;
    for (ssize_t n; (n = read(mine, text + used, size - 1 - used)) > 0;) used += (size_t)n;
    text[used] = '\0';
    close(mine);
    child_wait(child);
}

static void read_terminal(int width, const char *term, gd_progress mode, char *text, size_t size) {
    const int mine = posix_openpt(O_RDWR | O_NOCTTY);
    char name[100];
    CHECK(mine >= 0 && grantpt(mine) == 0 && unlockpt(mine) == 0 &&
          ptsname_r(mine, name, sizeof name) == 0);
    const int theirs = open(name, O_RDWR | O_NOCTTY);
    const struct winsize window = {.ws_row = 24, .ws_col = (unsigned short)width};
    CHECK(theirs >= 0 && ioctl(theirs, TIOCSWINSZ, &window) == 0);
    setenv("TERM", term, 1);
    read_child(theirs, mine, mode, text, size);
}

static int count_occurrences(const char *text, const char *part) {
    int n = 0;
    for (; (text = strstr(text, part)); text += strlen(part)) n++;
    return n;
}

static char seen[1 << 18];

/* Returns the width of the widest line. Lines end at \r and
 * ; escape sequences have no width. */
static int widest_line(const char *text) {
    int widest = 0, width = 0;
    for (; *text; text++) {
        if (*text == '\x1b') {
            while (*text && !(*text >= 'A' && *text <= 'Z') && !(*text >= 'a' && *text <= 'z'))
                text++;
            continue;
        }
        if (*text == '\r' || *text == '\n') width = 0;
        else width += ((unsigned char)*text & 0xC0) != 0x80;
        if (width > widest) widest = width;
    }
    return widest;
}

TEST(a_terminal_gets_a_bar) {
    static const int widths[] = {80, 40, 22};
    setenv("LC_ALL", "C.UTF-8", 1);
    unsetenv("NO_COLOR");
    for (int i = 0; i < 3; i++) {
        read_terminal(widths[i], "xterm", GD_PROGRESS_AUTO, seen, sizeof seen);
        CHECK_SAYING(widest_line(seen) < widths[i], "width %d: %d columns\n%s", widths[i],
                     widest_line(seen), seen);
        CHECK_SAYING(count_occurrences(seen, "\r") >= 4 && strstr(seen, "epoch 2/2  ") &&
                         strstr(seen, "val_accuracy"),
                     "%s", seen);
        /* updates at most ten times a second: 60 batches of 10 ms take longer than half a second */
        CHECK_SAYING(count_occurrences(seen, "\x1b[K") < 30, "%d redraws",
                     count_occurrences(seen, "\x1b[K"));
    }
    CHECK(strstr(seen, "━") == NULL);
    read_terminal(80, "xterm", GD_PROGRESS_AUTO, seen, sizeof seen);
    CHECK(strstr(seen, "━") && strstr(seen, "\x1b[32m"));
    setenv("NO_COLOR", "1", 1);
    setenv("LC_ALL", "C", 1);
    read_terminal(80, "xterm", GD_PROGRESS_AUTO, seen, sizeof seen);
    CHECK(!strstr(seen, "━") && !strstr(seen, "\x1b[32m") && strstr(seen, "=>"));
    unsetenv("NO_COLOR");
}

static void check_lines(const char *text) {
    CHECK_SAYING(!strchr(text, '\x1b') && count_occurrences(text, "epoch 1/2") == 1 &&
                     count_occurrences(text, "epoch 2/2") == 1,
                 "%s", text);
    CHECK(strstr(text, "val_accuracy 0."));
}

TEST(a_pipe_and_a_dumb_terminal_get_lines) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    read_child(ends[1], ends[0], GD_PROGRESS_AUTO, seen, sizeof seen);
    check_lines(seen);
    CHECK_SAYING(!strchr(seen, '\r') && count_occurrences(seen, "\n") == 2, "%s", seen);
    read_terminal(80, "dumb", GD_PROGRESS_AUTO, seen, sizeof seen);
    check_lines(seen);
    CHECK(pipe(ends) == 0);
    read_child(ends[1], ends[0], GD_PROGRESS_NONE, seen, sizeof seen);
    CHECK(seen[0] == '\0');
}

TEST_MAIN
