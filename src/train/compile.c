/* compile.c - gd_compile: checks the options of a training and attaches them to a net. */
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/ascii.h"
#include "core/freed.h"
#include "nn/layer.h"
#include "optim/schedule.h"
#include "train/training.h"

/* --- the object ------------------------------------------------------------------------------- */

static void destroy_training(gd_object *object) {
    gd_training *t = (gd_training *)object;
    gd_free(t->optimizer_recipe.options);
    gd_free(t->schedule_recipe.options);
    gd_release(t->schedule);
    gd_release(t->optimizer);
    gd_release(t->scale);
    gd_release(t->loss);
    gd_release(t->loss_each);
    for (int i = 0; i < t->n_metrics; i++) gd_release(t->metrics[i]);
    gd_free(t->metrics);
    gd_free(t);
    gd_object_count(-1);
}
static const gd_class training_class = {.name = "training", .destroy = destroy_training};

static gd_training *new_training(void) {
    gd_training *t = gd_calloc(1, sizeof *t);
    if (!t) {
        gd_no_memory(NULL, "to compile a net");
        return NULL;
    }
    gd_object_init(&t->object, &training_class);
    gd_object_count(1);
    t->accumulate = 1;
    t->precision = GD_DTYPE_NONE;
    return t;
}

gd_training *gd_training_of(const gd_module *net) {
    return net && net->attached && net->attached->class == &training_class
               ? (gd_training *)net->attached
               : NULL;
}

static void attach_training(gd_module *net, gd_training *t) {
    gd_object *old = net->attached;
    net->attached = &t->object;
    gd_object_release(old);
}

gd_status gd_training_get(gd_module *net, const char *what, gd_training **training) {
    if (!net)
        return gd_failed() ? gd_failure() : gd_fail(GD_E_ARGUMENT, "%s: the net is NULL", what);
    *training = gd_training_of(net);
    if (*training) return GD_OK;
    return gd_fail(GD_E_STATE,
                   "%s: the net is not compiled; call gd_compile(net, .optimizer = \"adam\", .loss "
                   "= ...) first",
                   what);
}

/* --- names with options ----------------------------------------------------------------------- */

gd_status gd_split_name(const char *text, char name[GD_SPLIT_NAME], const char **options) {
    while (gd_is_space(*text)) text++;
    size_t length = 0;
    while (text[length] && !gd_is_space(text[length])) length++;
    if (length >= GD_SPLIT_NAME)
        return gd_fail(GD_E_ARGUMENT, "'%.40s...' is longer than any name", text);
    memcpy(name, text, length);
    name[length] = '\0';
    *options = text + length;
    while (gd_is_space(**options)) ++*options;
    return GD_OK;
}

typedef gd_status (*check_fn)(const void *options);

/* `kind` is "optimizer" or "schedule"; `prefix` that of its constructors, for messages. `complete`:
 * all options are known, so that their combinations can be checked. */
static gd_status read_recipe(const char *kind, const char *prefix, const char *text, bool complete,
                             gd_recipe *recipe) {
    char name[GD_SPLIT_NAME];
    const char *options;
    GD_TRY(gd_split_name(text, name, &options));
    GD_TRY(gd_factory_read(kind, name, options, &recipe->factory, &recipe->options));
    GD_TRY(gd_check_ranges(recipe->factory, recipe->options, prefix));
    const bool schedule = strcmp(kind, "schedule") == 0;
    const check_fn check = schedule ? ((const gd_schedule_rules *)recipe->factory->rules)->check
                                    : ((const gd_optimizer_rules *)recipe->factory->rules)->check;
    return check && complete ? check(recipe->options) : GD_OK;
}

/* Whether options as text set one of this name. */
static bool sets_option(const char *options, const char *name) {
    const size_t length = strlen(name);
    for (const char *at = options; (at = strstr(at, name)); at += length) {
        const char *end = at + length;
        while (gd_is_space(*end)) end++;
        if ((at == options || gd_is_space(at[-1])) && *end == '=') return true;
    }
    return false;
}

/* Whether a schedule has a length: an option `steps` that is required, or at least 1 by default.
 * (0 steps of `constant` are not a length.) */
static bool has_length(const gd_factory *factory) {
    const gd_op_attr *attr = NULL;
    const int64_t *steps =
        factory && factory->record.attrs_size
            ? gd_factory_option(factory, (void *)factory->record.defaults, "steps", &attr)
            : NULL;
    return steps && attr->type == GD_ATTR_INT && (attr->required || *steps >= 1);
}

/* If the schedule has a length and the text does not give it, the first run sets it: the schedule
 * is open. Until then there is a placeholder, and the rules of the schedule are not checked. */
static gd_status read_schedule(gd_training *t, const char *text) {
    char name[GD_SPLIT_NAME];
    const char *options;
    GD_TRY(gd_split_name(text, name, &options));
    t->schedule_is_open =
        has_length(gd_factory_find("schedule", name)) && !sets_option(options, "steps");
    if (!t->schedule_is_open)
        return read_recipe("schedule", "gd_lr_", text, true, &t->schedule_recipe);
    const size_t size = strlen(text) + 12;
    char *with_steps = gd_malloc(size);
    if (!with_steps) return gd_no_memory(NULL, "for a schedule");
    snprintf(with_steps, size, "%s steps=1", text);
    const gd_status status =
        read_recipe("schedule", "gd_lr_", with_steps, false, &t->schedule_recipe);
    gd_free(with_steps);
    return status;
}

/* --- the loss --------------------------------------------------------------------------------- */

static bool ends_with(const char *text, const char *end) {
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* Lists the layers whose name ends in "_loss", without that ending. */
static gd_status fail_unknown_loss(const char *name) {
    char known[700] = "";
    const gd_factory *m;
    for (int i = 0; (m = gd_factory_at("layer", i)); i++) {
        const char *own = m->record.name;
        if (!ends_with(own, "_loss")) continue;
        const size_t used = strlen(known);
        if (used + strlen(own) + 8 > sizeof known) {
            strcat(known, " ...");
            break;
        }
        snprintf(known + used, sizeof known - used, "%s%.*s", used ? ", " : "",
                 (int)strlen(own) - 5, own);
    }
    return gd_fail(GD_E_ARGUMENT, "there is no loss '%s'; there are %s", name, known);
}

/* "mse" and "mse_loss" both find the layer mse_loss. */
static gd_status find_loss(const char *name, const gd_factory **factory) {
    char full[90];
    snprintf(full, sizeof full, "%s_loss", name);
    *factory = gd_factory_find("layer", full);
    if (!*factory && (*factory = gd_factory_find("layer", name)) && !ends_with(name, "_loss")) {
        /* a layer of another name is a loss if it takes two inputs or more */
        if ((*factory)->record.n_inputs < 2) *factory = NULL;
    }
    return *factory ? GD_OK : fail_unknown_loss(name);
}

static gd_status make_layer(const gd_factory *factory, const void *options, gd_module **layer) {
    gd_scope *scope = gd_scope_open();
    *layer = gd_retain(gd_layer_make(NULL, factory, options));
    gd_scope_close(&scope);
    return *layer ? GD_OK : gd_failure();
}

/* Creates the loss layer, and the same layer with reduction=none, which weights need. */
static gd_status make_losses(gd_training *t, const gd_factory *factory, void *options) {
    const gd_op_attr *attr = NULL;
    GD_TRY(make_layer(factory, options, &t->loss));
    gd_word *reduction = options ? gd_factory_option(factory, options, "reduction", &attr) : NULL;
    if (!reduction || attr->type != GD_ATTR_WORD) return GD_OK;
    if (*reduction == GD_NONE)
        return gd_fail(
            GD_E_ARGUMENT,
            "reduction=none gives more than one number; training needs one: mean or sum");
    *reduction = GD_NONE;
    return make_layer(factory, options, &t->loss_each);
}

static gd_status make_loss(gd_training *t, const char *text) {
    char name[GD_SPLIT_NAME];
    const char *given;
    const gd_factory *factory;
    void *options = NULL;
    GD_TRY(gd_split_name(text, name, &given));
    GD_TRY(find_loss(name, &factory));
    gd_status status = gd_factory_parse_options(factory, given, &options);
    if (status == GD_OK) status = make_losses(t, factory, options);
    gd_free(options);
    return status;
}

/* A loss module of the program. Weights need its layer with reduction=none: a layer whose function
 * the program has overridden has none. */
static gd_status take_loss(gd_training *t, gd_module *loss) {
    t->loss = gd_retain(loss);
    const gd_op_attr *attr = NULL;
    const gd_word *reduction =
        loss->factory && loss->options
            ? gd_factory_option(loss->factory, loss->options, "reduction", &attr)
            : NULL;
    if (!reduction || attr->type != GD_ATTR_WORD || loss->forward) return GD_OK;
    if (*reduction == GD_NONE)
        return gd_fail(
            GD_E_ARGUMENT,
            "reduction=none gives more than one number; training needs one: mean or sum");
    void *options = NULL;
    GD_TRY(gd_factory_take_options(loss->factory, loss->options, &options));
    *(gd_word *)gd_factory_option(loss->factory, options, "reduction", NULL) = GD_NONE;
    const gd_status status = make_layer(loss->factory, options, &t->loss_each);
    gd_free(options);
    return status;
}

/* --- metrics ---------------------------------------------------------------------------------- */

gd_metric *gd_metric_like(const gd_metric *metric) {
    gd_scope *scope = gd_scope_open();
    gd_metric *copy = gd_retain(gd_metric_make(NULL, metric->factory, metric->options));
    gd_scope_close(&scope);
    return copy;
}

static gd_status add_metric(gd_training *t, gd_metric *metric) {
    gd_metric **list = gd_realloc(t->metrics, (size_t)(t->n_metrics + 1) * sizeof *list);
    if (!list) return gd_no_memory(NULL, "for a metric");
    t->metrics = list;
    list[t->n_metrics++] = gd_retain(metric);
    return GD_OK;
}

/* The end of the metric that begins at `text`: a comma before a name. Other commas separate the
 * numbers of a list. */
static const char *metric_end(const char *text) {
    for (; *text; text++) {
        if (*text != ',') continue;
        const char *next = text + 1;
        while (gd_is_space(*next)) next++;
        if (!*next || gd_is_alpha(*next) || *next == '_') break;
    }
    return text;
}

static gd_status make_metric(gd_training *t, char *text) {
    char name[GD_SPLIT_NAME];
    const char *options;
    GD_TRY(gd_split_name(text, name, &options));
    if (!*name) return gd_fail(GD_E_ARGUMENT, "there is a comma without a metric");
    gd_scope *scope = gd_scope_open();
    gd_metric *metric = gd_metric_new_at(NULL, name, options);
    const gd_status status = metric ? add_metric(t, metric) : gd_failure();
    gd_scope_close(&scope);
    return status;
}

static gd_status make_metrics(gd_training *t, const char *text) {
    while (gd_is_space(*text)) text++;
    while (*text) {
        const char *end = metric_end(text);
        char *one = gd_malloc((size_t)(end - text) + 1);
        if (!one) return gd_no_memory(NULL, "for a metric");
        memcpy(one, text, (size_t)(end - text));
        one[end - text] = '\0';
        const gd_status status = make_metric(t, one);
        gd_free(one);
        GD_TRY(status);
        text = *end ? end + 1 : end;
        if (*end && !*text) return gd_fail(GD_E_ARGUMENT, "there is a comma without a metric");
    }
    return GD_OK;
}

/* --- numbers ---------------------------------------------------------------------------------- */

static gd_status read_precision(const char *text, gd_dtype *precision) {
    *precision = GD_DTYPE_NONE;
    if (!text || strcmp(text, "f32") == 0) return GD_OK;
    if (strcmp(text, "bf16") == 0) return *precision = GD_BF16, GD_OK;
    if (strcmp(text, "f16") == 0) return *precision = GD_F16, GD_OK;
    return gd_fail(GD_E_ARGUMENT, "there is no precision '%.20s'; there are f32, bf16, f16", text);
}

static gd_status check_numbers(const gd_compile_options *o) {
    if (o->accumulate < 1)
        return gd_fail(GD_E_ARGUMENT, "accumulate is %d; it must be in [1, inf)", o->accumulate);
    if (!(o->clip_norm >= 0))
        return gd_fail(GD_E_ARGUMENT, "clip_norm is %g; it must be in [0, inf)", o->clip_norm);
    if (!(o->clip_eps >= 0))
        return gd_fail(GD_E_ARGUMENT, "clip_eps is %g; it must be in [0, inf)", o->clip_eps);
    if (!(o->clip_value >= 0))
        return gd_fail(GD_E_ARGUMENT, "clip_value is %g; it must be in [0, inf)", o->clip_value);
    return GD_OK;
}

/* The default optimizer is one that nobody has asked for. */
static bool is_default(const char *optimizer) {
    return optimizer && strcmp(optimizer, "adam") == 0;
}

static gd_status check_together(const gd_compile_options *o) {
    GD_TRY_LIVE(o->optimizer_object, ".optimizer_object");
    GD_TRY_LIVE(o->schedule_object, ".schedule_object");
    if (o->optimizer_object && o->optimizer && !is_default(o->optimizer))
        return gd_fail(GD_E_ARGUMENT,
                       "there is an .optimizer and an .optimizer_object; give one of them");
    const bool optimizer = o->optimizer || o->optimizer_object;
    if (o->schedule && o->schedule_object)
        return gd_fail(GD_E_ARGUMENT,
                       "there is a .schedule and a .schedule_object; give one of them");
    if ((o->schedule || o->schedule_object) && !optimizer)
        return gd_fail(GD_E_ARGUMENT, "there is a schedule without an optimizer");
    if (o->schedule_object && gd_schedule_optimizer(o->schedule_object) != o->optimizer_object)
        return gd_fail(GD_E_ARGUMENT,
                       "the .schedule_object is that of another optimizer; give its optimizer as "
                       ".optimizer_object");
    GD_TRY_LIVE(o->loss_module, ".loss_module");
    if (!!o->loss + !!o->loss_module + !!o->loss_function > 1)
        return gd_fail(GD_E_ARGUMENT, "there is a %s and a %s; give one of them",
                       o->loss ? ".loss" : ".loss_module",
                       o->loss_function ? ".loss_function" : ".loss_module");
    if (!optimizer && (o->clip_norm > 0 || o->clip_value > 0 || o->accumulate > 1))
        return gd_fail(
            GD_E_ARGUMENT,
            "clip_norm, clip_value and accumulate belong to an optimizer, and there is none");
    return GD_OK;
}

/* --- optimizer and schedule ------------------------------------------------------------------- */

static gd_status check_built(gd_tree_walk *w, gd_module *m) {
    *(bool *)w->user &= m->built;
    return GD_OK;
}

gd_status gd_module_is_built(gd_module *net, bool *built) {
    *built = true;
    return gd_module_walk(net, &(gd_tree_walk){.module = check_built, .user = built});
}

static gd_status make_optimizer(gd_training *t, gd_module *net) {
    gd_tensors parameters = gd_module_parameters_so_far(net);
    if (parameters.count > 0 && parameters.at[0] && parameters.at[0]->kind == GD_FAILED)
        return gd_failure();
    if (parameters.count == 0)
        return gd_fail(GD_E_ARGUMENT, "gd_fit: the net has no parameters to train; .optimizer = "
                                      "NULL is for nets that a .step "
                                      "trains by itself");
    t->optimizer = gd_retain(
        gd_optimizer_make_of(NULL, t->optimizer_recipe.factory, net, t->optimizer_recipe.options));
    return t->optimizer ? GD_OK : gd_failure();
}

/* Sets the steps of an open schedule, those of the run after the warm-up, and returns them. */
static int64_t set_open_steps(gd_recipe *recipe, int64_t steps) {
    int64_t *own = gd_factory_option(recipe->factory, recipe->options, "steps", NULL);
    const int64_t *warmup = gd_factory_option(recipe->factory, recipe->options, "warmup", NULL);
    *own = steps - (warmup ? *warmup : 0);
    if (*own < 1) *own = 1;
    return *own;
}

static void show_long_warmup(const gd_recipe *recipe, int64_t steps) {
    const int64_t *warmup = gd_factory_option(recipe->factory, recipe->options, "warmup", NULL);
    if (warmup && *warmup >= steps)
        gd_notice(GD_LOG_WARNING,
                  "gd_fit: the warm-up of the schedule %s has %lld steps, and the run %lld: the "
                  "learning rate only rises",
                  recipe->factory->record.name, (long long)*warmup, (long long)steps);
}

static gd_status make_schedule(gd_training *t, int64_t steps) {
    const gd_recipe *r = &t->schedule_recipe;
    const int64_t last = t->schedule_is_open ? set_open_steps(&t->schedule_recipe, steps) : 0;
    t->schedule = gd_retain(gd_schedule_make(NULL, r->factory, t->optimizer, r->options));
    if (t->schedule) {
        gd_schedule_stay(t->schedule, last);
        if (t->schedule_is_open) show_long_warmup(r, steps);
        return GD_OK;
    }
    const gd_status status = gd_failure();
    if (t->schedule_is_open)
        gd_error_prefix(
            "gd_fit: the schedule takes its steps from the run, which has %lld step%s of "
            "the optimizer: ",
            (long long)steps, steps == 1 ? "" : "s");
    return status;
}

/* `steps` is 0 while the length of the run is unknown; an open schedule is then created later. */
static gd_status make_optimizer_and_schedule(gd_training *t, gd_module *net, int64_t steps) {
    if (!t->optimizer && t->optimizer_recipe.factory) GD_TRY(make_optimizer(t, net));
    if (t->schedule || !t->schedule_recipe.factory) return GD_OK;
    return t->schedule_is_open && steps == 0 ? GD_OK : make_schedule(t, steps);
}

gd_status gd_training_prepare(gd_training *t, gd_module *net, gd_tensors inputs, int64_t steps) {
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_scope *scope = gd_scope_open();
    bool built = false;
    gd_status status = gd_module_is_built(net, &built);
    if (status == GD_OK && !built) status = gd_module_build_at(NULL, net, inputs);
    if (status == GD_OK) status = make_optimizer_and_schedule(t, net, steps);
    if (status == GD_OK && t->optimizer) status = gd_optimizer_check_within(t->optimizer, net);
    gd_scope_close(&scope);
    return gd_attempt_end(&attempt, status);
}

/* --- gd_compile ------------------------------------------------------------------------------- */

static gd_status read_options(gd_training *t, gd_module *net, const gd_compile_options *o) {
    GD_TRY(check_together(o));
    GD_TRY(check_numbers(o));
    GD_TRY(read_precision(o->precision, &t->precision));
    if (o->optimizer_object) {
        t->optimizer = gd_retain(o->optimizer_object);
        GD_TRY(gd_optimizer_check_within(t->optimizer, net));
    } else if (o->optimizer)
        GD_TRY(read_recipe("optimizer", "gd_optim_", o->optimizer, true, &t->optimizer_recipe));
    if (o->schedule_object) t->schedule = gd_retain(o->schedule_object);
    else if (o->schedule) GD_TRY(read_schedule(t, o->schedule));
    if (t->precision == GD_F16 && (o->optimizer || o->optimizer_object) &&
        !(t->scale = gd_retain(gd_loss_scale_new())))
        return gd_failure();
    if (o->loss) GD_TRY(make_loss(t, o->loss));
    if (o->loss_module) GD_TRY(take_loss(t, o->loss_module));
    t->loss_function = o->loss_function;
    t->loss_user = o->loss_user;
    if (o->metrics) GD_TRY(make_metrics(t, o->metrics));
    GD_TRY(gd_check_list_option(o->metric_objects.at, o->metric_objects.count, ".metric_objects",
                                "gd_metrics(a, b), or ((gd_metric_list){array, 2})"));
    for (int64_t i = 0; i < o->metric_objects.count; i++) {
        GD_TRY_LIVE(o->metric_objects.at[i], ".metric_objects");
        if (!o->metric_objects.at[i])
            return gd_fail(GD_E_ARGUMENT, "metric %lld is NULL", (long long)i);
        GD_TRY(add_metric(t, o->metric_objects.at[i]));
    }
    t->accumulate = o->accumulate;
    t->clip_norm = o->clip_norm;
    t->clip_eps = o->clip_eps;
    t->clip_value = o->clip_value;
    bool built;
    GD_TRY(gd_module_is_built(net, &built));
    return built && gd_module_parameter_count(net) > 0 ? make_optimizer_and_schedule(t, net, 0)
                                                       : GD_OK;
}

static gd_status compile_net(gd_module *net, const gd_compile_options *o) {
    if (!net) return gd_failed() ? gd_failure() : gd_fail(GD_E_ARGUMENT, "the net is NULL");
    if (atomic_load(&net->fits))
        return gd_fail(GD_E_STATE,
                       "a gd_fit of this net is running, which trains with what it was compiled "
                       "with; compile the net before or after");
    gd_training *t = new_training();
    if (!t) return GD_E_MEMORY;
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_scope *scope = gd_scope_open();
    gd_status status = read_options(t, net, o);
    gd_scope_close(&scope);
    status = gd_attempt_end(&attempt, status);
    if (status == GD_OK) attach_training(net, t);
    else gd_object_release(&t->object);
    return status;
}

gd_status gd_compile_at(const char *site, gd_module *net, const gd_compile_options *options) {
    GD_LIVE_AT(site, net);
    options = options ? options : GD_COMPILE_OPTIONS_();
    GD_CALLED_FROM(site);
    const gd_status status = compile_net(net, options);
    if (status != GD_OK) gd_error_prefix("gd_compile: ");
    return gd_report(site, status);
}

gd_optimizer *gd_compiled_optimizer(gd_module *net) {
    GD_LIVE(net);
    gd_training *t = gd_training_of(net);
    return t ? t->optimizer : NULL;
}

gd_schedule *gd_compiled_schedule(gd_module *net) {
    GD_LIVE(net);
    gd_training *t = gd_training_of(net);
    return t ? t->schedule : NULL;
}

gd_metric *gd_compiled_metric(gd_module *net, int index) {
    GD_LIVE(net);
    gd_training *t = gd_training_of(net);
    return t && index >= 0 && index < t->n_metrics ? t->metrics[index] : NULL;
}
