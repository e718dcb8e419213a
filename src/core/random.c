/* random.c - the generator's state, a seed and a call number: that of the process, or of a run. */
#include "core/random.h"

#include "core/alloc.h"
#include "core/fork.h"
#include "core/state.h"
#include "core/tensor.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
GD_MUTEX_AT_FORK(lock)
static gd_rng state = {.seed = 0, .call = 0};

/* Fails while a function is traced: later calls of the plan would not set the state. */
static void set_state(gd_rng new_state, const char *what) {
    gd_status status = gd_check_traced_access(NULL, what, true);
    if (status == GD_OK) gd_rng_restore(new_state);
    else gd_error_record(status);
}

void gd_seed(uint64_t seed) { set_state((gd_rng){seed, 0}, "gd_seed"); }
void gd_rng_set_state(gd_rng new_state) { set_state(new_state, "gd_rng_set_state"); }

void gd_rng_restore(gd_rng new_state) {
    gd_rng *own = gd_this_thread.rng;
    if (own) {
        *own = new_state;
        return;
    }
    pthread_mutex_lock(&lock);
    state = new_state;
    pthread_mutex_unlock(&lock);
}

gd_rng gd_rng_state(void) {
    const gd_rng *own = gd_this_thread.rng;
    if (own) return *own;
    pthread_mutex_lock(&lock);
    gd_rng copy = state;
    pthread_mutex_unlock(&lock);
    return copy;
}

gd_rng gd_rng_take(void) { return gd_rng_take_many(1); }

gd_rng gd_rng_take_many(uint64_t count) {
    gd_rng *own = gd_this_thread.rng;
    if (own) {
        const gd_rng taken = *own;
        own->call += count;
        return taken;
    }
    pthread_mutex_lock(&lock);
    gd_rng taken = state;
    state.call += count;
    pthread_mutex_unlock(&lock);
    return taken;
}

/* --- the generator of a run ------------------------------------------------------------------- */

/* A seed of a run, unlike one that the program gives gd_seed: equal numbers mean nothing. */
static uint64_t mix_seed(uint64_t seed) {
    uint32_t word[4];
    gd_philox((gd_rng){seed, 0x72756E}, 0, word);
    return (uint64_t)word[0] << 32 | word[1];
}

void gd_own_rng_begin(gd_own_rng *own, uint64_t seed) {
    own->started = gd_rng_state();
    own->seeded = seed != 0;
    own->state = own->seeded ? (gd_rng){mix_seed(seed), 0} : own->started;
    own->before = gd_this_thread.rng;
    gd_this_thread.rng = &own->state;
}

/* What the outer generator continues with: the new state, unless it has moved meanwhile. */
static gd_rng merge_states(const gd_own_rng *own, gd_rng now) {
    const bool same = now.seed == own->started.seed && now.call == own->started.call;
    if (same) return own->state;
    return now.seed == own->state.seed && own->state.call > now.call ? own->state : now;
}

void gd_own_rng_end(gd_own_rng *own) {
    gd_this_thread.rng = own->before;
    if (own->seeded) return;
    if (own->before) {
        *own->before = merge_states(own, *own->before);
        return;
    }
    pthread_mutex_lock(&lock);
    state = merge_states(own, state);
    pthread_mutex_unlock(&lock);
}

/* --- saving and loading the state ------------------------------------------------------------- */

struct gd_random_generator {
    gd_object object;
};

static gd_status give_generator(gd_object *object, gd_state *out) {
    const gd_rng now = gd_rng_state();
    (void)object;
    GD_TRY(gd_state_put_unsigned(out, "seed", now.seed));
    return gd_state_put_unsigned(out, "call", now.call);
}

static void finish_load(void *user, bool loaded) {
    if (loaded) gd_rng_restore(*(gd_rng *)user);
    gd_free(user);
}

/* Both numbers change together, at the end of the load. */
static gd_status take_generator(gd_object *object, gd_loading *in) {
    gd_rng *next = gd_malloc(sizeof *next);
    (void)object;
    if (!next) return gd_no_memory(NULL, "to load the random generator");
    *next = gd_rng_state();
    GD_TRY(gd_loading_when_done(in, finish_load, next));
    GD_TRY(gd_loading_unsigned(in, "seed", &next->seed));
    return gd_loading_unsigned(in, "call", &next->call);
}

static const gd_state_rules generator_rules = {give_generator, take_generator};
static const gd_class generator_class = {.name = "random generator", .state = &generator_rules};

gd_random_generator *gd_generator(void) {
    static gd_random_generator generator = {
        .object = {.refs = GD_IMMORTAL, .class = &generator_class}};
    return &generator;
}
