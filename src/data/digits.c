/* digits.c - the dataset of synthetic handwritten digits, drawn from strokes.
 *
 * A sample chooses a style of its digit, moves the points of its strokes, draws splines through
 * them, slants, rotates and warps the polylines, fits them into a box and draws them with a pen of
 * varying width. As in MNIST the box is 20/28 of the image and the center of mass is in the middle.
 *
 * The code uses no function of the math library but sqrt, which is correctly rounded: the same seed
 * and index give the same bits on every machine.
 */
#include "data/digits.h"

#include <math.h>
#include <string.h>

#include "core/random.h"
#include "core/tensor.h"
#include "data/dataset.h"
#include "gradus/datasets.h"
#include "gradus/ops.h"

enum { LINE_POINTS = 256, MAX_SIZE = 256 };

typedef gd_dataset_digits_options digit_options;

/* The amount of each variation if the options are 1. */
static const struct hand {
    float each;      /* of each point of a stroke, as a share of the height */
    float ends;      /* of the first and last segment of a stroke, as a share of its length */
    float width;     /* of a digit, before variations */
    float top, high; /* upper half against lower half: width, height */
    float lean;      /* of the middle, to the side */
    float wide;      /* logarithm of the width */
    float rotation;  /* radians */
    float slant, slant_spread, slant_one; /* mean, spread, additional spread for the digit 1 */
    float push, tempo;                    /* amplitude and frequency of the warp */
    /* Half width for images of 28 pixels; spread of its logarithm; change along a stroke. */
    float pen, pen_spread, pen_change;
    float soft, soft_spread; /* width of the soft edge in pixels */
} hand = {
    .each = 0.031f,
    .ends = 0.12f,
    .width = 0.84f,
    .top = 0.26f,
    .high = 0.14f,
    .lean = 0.06f,
    .wide = 0.24f,
    .rotation = 0.15f,
    .slant = 0.10f,
    .slant_spread = 0.27f,
    .slant_one = 0.10f,
    .push = 0.046f,
    .tempo = 0.9f,
    .pen = 1.24f,
    .pen_spread = 0.28f,
    .pen_change = 0.14f,
    .soft = 0.9f,
    .soft_spread = 0.6f,
};

/* --- numbers ---------------------------------------------------------------------------------- */

/* Approximately normal: the scaled sum of four uniform numbers, at most 3.5. */
static float random_normal(gd_random *r) {
    const uint32_t a = gd_random_word(r), b = gd_random_word(r);
    const float sum = (float)((a & 0xffff) + (a >> 16)) + (float)((b & 0xffff) + (b >> 16));
    return (sum * (1 / 65536.0f) - 2) * 1.7320508f;
}
static float random_unit(gd_random *r) { return gd_unit_f32(gd_random_word(r)); }

/* exp for small x; always positive. */
static float small_exp(float x) {
    const float h = x / 4, e = 1 + h * (1 + h / 2 * (1 + h / 3 * (1 + h / 4)));
    return e * e * e * e;
}

/* sin(2 pi t). */
static float sine_wave(float t) {
    t -= (float)(int)t;
    if (t < 0) t += 1;
    t -= 0.5f; /* sin(2 pi t) = -sin(2 pi (t - 1/2)) */
    if (t > 0.25f) t = 0.5f - t;
    if (t < -0.25f) t = -0.5f - t;
    const float x = 6.2831853f * t, z = x * x;
    return -x * (1 - z / 6 * (1 - z / 20 * (1 - z / 42)));
}

/* --- strokes to polylines --------------------------------------------------------------------- */

typedef struct dot {
    float x, y, r;
    bool starts; /* the first of a stroke: no line leads here */
} dot;
typedef struct drawing {
    dot at[LINE_POINTS];
    int count;
} drawing;

static const gd_digit_style *choose_style(int digit, gd_random *r) {
    const gd_digit_style *styles = gd_digit_styles[digit];
    int total = 0;
    for (int i = 0; i < GD_DIGIT_STYLES; i++) total += styles[i].weight;
    int64_t at = (int64_t)(random_unit(r) * (float)total);
    int i = 0;
    while (at >= styles[i].weight) at -= styles[i++].weight;
    return &styles[i];
}

typedef struct pen {
    float x[GD_DIGIT_POINTS], y[GD_DIGIT_POINTS];
} pen;

static bool is_end(const gd_digit_style *s, int i) {
    return s->points[i].kind == GD_PEN_DOWN || i + 1 == s->count ||
           s->points[i + 1].kind == GD_PEN_DOWN;
}

/* Moves the points of the style at random: each on its own, and the upper and lower half
 * together. */
static void place_points(const gd_digit_style *s, const digit_options *o, gd_random *r, pen *p) {
    const float jitter = (float)o->jitter;
    const float wide = hand.top * jitter * random_normal(r),
                high = hand.high * jitter * random_normal(r),
                lean = hand.lean * jitter * random_normal(r);
    for (int i = 0; i < s->count; i++) {
        const float x = (float)s->points[i].x / 100 - 0.5f, y = (float)s->points[i].y / 100 - 0.5f;
        const float from_ends = 1 - 4 * y * y;
        p->x[i] = (x * (1 - wide * y) + lean * from_ends + hand.each * jitter * random_normal(r)) *
                  hand.width;
        p->y[i] = y + high * from_ends / 2 + hand.each * jitter * random_normal(r);
    }
    for (int i = 0; i < s->count; i++) {
        if (!is_end(s, i)) continue;
        const int next = s->points[i].kind == GD_PEN_DOWN ? i + 1 : i - 1;
        const float more = hand.ends * jitter * random_normal(r);
        p->x[i] += more * (p->x[i] - p->x[next]);
        p->y[i] += more * (p->y[i] - p->y[next]);
    }
}

static void add_dot(drawing *d, float x, float y, bool starts) {
    if (d->count < LINE_POINTS) d->at[d->count++] = (dot){x, y, 0, starts};
}

/* Adds a cubic curve from point i to i + 1 whose directions follow from the neighbors. */
static void add_curve(drawing *d, const pen *p, int before, int i, int after) {
    const float x0 = p->x[i], y0 = p->y[i], x1 = p->x[i + 1], y1 = p->y[i + 1];
    const float ux = (x1 - p->x[before]) / 2, uy = (y1 - p->y[before]) / 2;
    const float vx = (p->x[after] - x0) / 2, vy = (p->y[after] - y0) / 2;
    const float length = sqrtf((x1 - x0) * (x1 - x0) + (y1 - y0) * (y1 - y0));
    int steps = 2 + (int)(length * 16);
    if (steps > 10) steps = 10;
    for (int k = 1; k <= steps; k++) {
        const float t = (float)k / (float)steps, s = 1 - t;
        const float a = s * s * (1 + 2 * t), b = t * t * (3 - 2 * t), c = t * s * s, e = -t * t * s;
        add_dot(d, a * x0 + b * x1 + c * ux + e * vx, a * y0 + b * y1 + c * uy + e * vy, false);
    }
}

static void draw_strokes(const gd_digit_style *s, const pen *p, drawing *d) {
    d->count = 0;
    for (int i = 0; i < s->count; i++) {
        if (s->points[i].kind == GD_PEN_DOWN) add_dot(d, p->x[i], p->y[i], true);
        if (i + 1 == s->count || s->points[i + 1].kind == GD_PEN_DOWN) continue;
        const bool last = i + 2 >= s->count || s->points[i + 2].kind == GD_PEN_DOWN;
        const int before = s->points[i].kind == GD_PEN_CURVE ? i - 1 : i;
        const int after = last || s->points[i + 1].kind == GD_PEN_CORNER ? i + 1 : i + 2;
        add_curve(d, p, before, i, after);
    }
}

/* --- handwriting ------------------------------------------------------------------------------ */

static void bend_drawing(drawing *d, int digit, const digit_options *o, gd_random *r) {
    const float angle = hand.rotation * (float)o->rotation * random_normal(r);
    float slant = (hand.slant + hand.slant_spread * random_normal(r)) * (float)o->slant;
    if (digit == 1) slant += hand.slant_one * (float)o->slant * random_normal(r);
    const float wide = small_exp(hand.wide * (float)o->jitter * random_normal(r));
    const float c = 1 - angle * angle / 2, s = angle * (1 - angle * angle / 6);
    float push[2][4], amount = hand.push * (float)o->warp;
    for (int k = 0; k < 2; k++) {
        push[k][0] = hand.tempo * random_normal(r);
        push[k][1] = hand.tempo * random_normal(r);
        push[k][2] = random_unit(r);
        push[k][3] = amount * (0.5f + random_unit(r));
    }
    for (int i = 0; i < d->count; i++) {
        dot *p = &d->at[i];
        const float x = p->x * wide - slant * p->y, y = p->y;
        const float u = c * x - s * y, v = s * x + c * y;
        p->x = u + push[0][3] * sine_wave(push[0][0] * u + push[0][1] * v + push[0][2]);
        p->y = v + push[1][3] * sine_wave(push[1][0] * u + push[1][1] * v + push[1][2]);
    }
}

/* Sets half widths along the strokes, in pixels of an image of size 28. */
static float set_widths(drawing *d, const digit_options *o, gd_random *r) {
    const float width =
        hand.pen * small_exp(hand.pen_spread * random_normal(r)) * (float)o->thickness;
    const float change = hand.pen_change * random_normal(r), tempo = 1 + 2 * random_unit(r),
                phase = random_unit(r);
    float most = 0;
    for (int i = 0; i < d->count; i++) {
        float f = 1 + change * sine_wave(tempo * (float)i / 64 + phase);
        d->at[i].r = width * f;
        if (d->at[i].r > most) most = d->at[i].r;
    }
    return most;
}

/* Scales the drawing so that its longer side fills the box, to pixels from the upper left
 * corner. */
static void fit_drawing(drawing *d, float box, float pixel) {
    float low_x = 1e9f, high_x = -1e9f, low_y = 1e9f, high_y = -1e9f, r = 0;
    for (int i = 0; i < d->count; i++) {
        const dot *p = &d->at[i];
        low_x = p->x < low_x ? p->x : low_x;
        high_x = p->x > high_x ? p->x : high_x;
        low_y = p->y < low_y ? p->y : low_y;
        high_y = p->y > high_y ? p->y : high_y;
        r += p->r;
    }
    r = r / (float)d->count * pixel;
    const float w = high_x - low_x, h = high_y - low_y, longer = w > h ? w : h;
    float scale = (box - 2 * r) / (longer > 0.1f ? longer : 0.1f);
    if (scale < 1) scale = 1;
    for (int i = 0; i < d->count; i++) {
        dot *p = &d->at[i];
        p->x = (p->x - (low_x + high_x) / 2) * scale + box / 2;
        p->y = (p->y - (low_y + high_y) / 2) * scale + box / 2;
        p->r *= pixel;
    }
}

/* --- pixels ----------------------------------------------------------------------------------- */

/* Draws a line segment from a to b on an image of n by n. `soft` is the width of its edge. */
static void paint_line(float *image, int n, const dot *a, const dot *b, float soft) {
    const float reach = (a->r > b->r ? a->r : b->r) + soft;
    const float dx = b->x - a->x, dy = b->y - a->y, length = dx * dx + dy * dy;
    const float per = length > 1e-9f ? 1 / length : 0, dr = b->r - a->r, sharp = 1 / soft;
    float x0 = (a->x < b->x ? a->x : b->x) - reach, x1 = (a->x > b->x ? a->x : b->x) + reach;
    float y0 = (a->y < b->y ? a->y : b->y) - reach, y1 = (a->y > b->y ? a->y : b->y) + reach;
    if (x0 < 0) x0 = 0;
    if (y0 < 0) y0 = 0;
    const int left = (int)x0, top = (int)y0;
    const int right = x1 >= (float)n ? n : (int)x1 + 1, bottom = y1 >= (float)n ? n : (int)y1 + 1;
    for (int i = top; i < bottom; i++) {
        const float py = (float)i + 0.5f - a->y;
        for (int j = left; j < right; j++) {
            const float px = (float)j + 0.5f - a->x;
            float t = (px * dx + py * dy) * per;
            t = t < 0 ? 0 : t > 1 ? 1 : t;
            const float ex = px - t * dx, ey = py - t * dy;
            float ink = (a->r + t * dr - sqrtf(ex * ex + ey * ey)) * sharp + 0.5f;
            ink = ink < 0 ? 0 : ink > 1 ? 1 : ink;
            float *to = &image[i * n + j];
            *to = ink > *to ? ink : *to;
        }
    }
}

/* Copies `from`, n by n, so that its center of mass is in the middle of `to`, size by size. */
static void center_image(const float *from, int n, float *to, int size) {
    float mass = 1e-9f, x = 0, y = 0;
    for (int i = 0; i < n; i++) {
        float row = 0, across = 0;
        for (int j = 0; j < n; j++) {
            row += from[i * n + j];
            across += from[i * n + j] * ((float)j + 0.5f);
        }
        mass += row;
        x += across;
        y += row * ((float)i + 0.5f);
    }
    const float half = (float)size / 2 + 0.5f + 1024; /* rounds, for positive numbers */
    const int dx = (int)(half - x / mass) - 1024, dy = (int)(half - y / mass) - 1024;
    memset(to, 0, (size_t)size * (size_t)size * sizeof *to);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            if (i + dy >= 0 && i + dy < size && j + dx >= 0 && j + dx < size)
                to[(i + dy) * size + j + dx] = from[i * n + j];
}

static void add_noise(float *image, int count, float sigma, gd_random *r) {
    for (int i = 0; i < count; i++) {
        if (image[i] == 0) continue;
        const float v = image[i] + sigma * random_normal(r);
        image[i] = v < 0 ? 0 : v > 1 ? 1 : v;
    }
}

/* --- the dataset ------------------------------------------------------------------------------ */

/* Each ten samples have each digit once, in a random order. */
static int choose_digit(const digit_options *o, int64_t index) {
    gd_random r = gd_random_of((uint64_t)o->seed ^ 0x6469676974730000u, (uint64_t)(index / 10));
    int order[10];
    for (int i = 0; i < 10; i++) {
        const int k = (int)gd_random_below(&r, i + 1);
        order[i] = order[k];
        order[k] = i;
    }
    return order[index % 10];
}

static void draw_digit(const digit_options *o, int digit, gd_random *r, float *scratch,
                       float *image) {
    const int size = (int)o->size;
    const float pixel = (float)size / 28, box = 20 * pixel;
    const int n = (int)(box + 0.999f) + 2; /* a pixel more at each side, for soft edges */
    pen p;
    drawing d;
    const gd_digit_style *style = choose_style(digit, r);
    place_points(style, o, r, &p);
    draw_strokes(style, &p, &d);
    bend_drawing(&d, digit, o, r);
    set_widths(&d, o, r);
    fit_drawing(&d, box, pixel);
    const float soft = (hand.soft + hand.soft_spread * random_unit(r)) * (pixel > 1 ? pixel : 1);
    memset(scratch, 0, (size_t)n * (size_t)n * sizeof *scratch);
    for (int i = 0; i < d.count; i++) d.at[i].x += 1, d.at[i].y += 1;
    for (int i = 0; i + 1 < d.count; i++)
        if (!d.at[i + 1].starts) paint_line(scratch, n, &d.at[i], &d.at[i + 1], soft);
    if (o->noise > 0) add_noise(scratch, n * n, (float)o->noise, r);
    center_image(scratch, n, image, size);
}

/*dataset digits
 * Synthetic handwritten digits, any number of them: f32 (1, size, size) in [0, 1], white on black
 * as in MNIST, and the digit as i64. Sample i depends only on the seed and i.
 *   count int = 10000       in [0, inf): samples
 *   seed int = 0            another seed gives other digits
 *   size int = 28           in [8, 256]: height and width
 *   jitter float = 1        in [0, 4]: how much shapes differ; 0: not at all, within a style
 *   slant float = 1         in [0, 4]: how much digits lean
 *   rotation float = 1      in [0, 4]: how much they are rotated
 *   warp float = 1          in [0, 4]: how much strokes are warped
 *   thickness float = 1     in [0.25, 4]: of strokes
 *   noise float = 0.03      in [0, 1]: standard deviation of noise that is added to strokes
 */
static gd_status digits_open(gd_dataset *d) {
    const digit_options *o = d->options;
    d->count = o->count;
    return gd_dataset_set_classes(d, NULL, 10);
}

static gd_status digits_get(const gd_dataset *d, int64_t index, gd_random *unused,
                            gd_sample *sample) {
    const digit_options *o = d->options;
    const int digit = choose_digit(o, index);
    gd_random r = gd_random_of((uint64_t)o->seed, (uint64_t)index);
    (void)unused;
    gd_tensor *image = gd_empty(gd_dims(1, o->size, o->size), GD_F32);
    gd_tensor *scratch = gd_empty(gd_dims(o->size + 4, o->size + 4), GD_F32);
    gd_tensor *target = gd_scalar_int(digit);
    if (!gd_data(image) || !gd_data(scratch) || !gd_data(target)) return gd_failure();
    draw_digit(o, digit, &r, gd_data(scratch), gd_data(image));
    return gd_sample_from_list(sample, gd_list(image, target));
}

#include "data/digits.gen.h"
