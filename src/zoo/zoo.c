/* zoo.c - builds networks from their records. */
#include "zoo/zoo.h"

#include "core/alloc.h"
#include "core/thread.h"

gd_status gd_net_at_least(const char *option, int64_t value, int64_t least) {
    if (value >= least) return GD_OK;
    return gd_fail(GD_E_ARGUMENT, "%s is %lld; it must be at least %lld", option, (long long)value,
                   (long long)least);
}

static gd_status check_options(const gd_factory *factory, const void *options) {
    const gd_net_rules *rules = factory->rules;
    GD_TRY(gd_check_ranges(factory, options, "gd_zoo_"));
    const gd_status status = rules->check ? rules->check(options) : GD_OK;
    if (status != GD_OK) gd_error_prefix("%s: ", factory->record.name);
    return status;
}

/* Builds a network and frees `options`. */
static gd_module *make_net(const char *site, const gd_factory *factory, void *options) {
    GD_CALLED_FROM(site);
    const gd_net_rules *rules = factory->rules;
    gd_status status = check_options(factory, options);
    gd_module *net = NULL;
    if (status == GD_OK) {
        gd_attempt attempt;
        gd_attempt_begin(&attempt);
        gd_scope *scope = gd_scope_open();
        net = rules->make(options);
        status = net && !gd_failed() ? GD_OK : gd_failure();
        if (status == GD_OK) gd_keep(net);
        gd_scope_close(&scope);
        status = gd_attempt_end(&attempt, status);
    }
    gd_free(options);
    gd_report(site, status);
    return status == GD_OK ? net : NULL;
}

gd_module *gd_net_make(const char *site, const gd_factory *factory, const void *given) {
    void *options;
    const gd_status status = gd_factory_take_options(factory, given, &options);
    if (status == GD_OK) return make_net(site, factory, options);
    gd_error_prefix("%s: ", factory->record.name);
    gd_report(site, status);
    return NULL;
}

gd_module *gd_net_new_at(const char *site, const char *name, const char *text) {
    const gd_factory *factory;
    void *options;
    gd_status status = gd_factory_read("net", name, text, &factory, &options);
    if (status == GD_OK) return make_net(site, factory, options);
    gd_report(site, status);
    return NULL;
}
