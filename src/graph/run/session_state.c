/* session_state.c - saving and loading a session: its variables and its number of runs. */
#include "core/alloc.h"
#include "graph/run/session.h"

/* The lock of the variables, held from put_session_state or take_session_state to the end of the
 * save or load. */
typedef struct state_lock {
    gd_rwlock_hold lock;
    gd_session *session;
    uint64_t runs; /* the number of runs in the loaded state */
} state_lock;

static void unlock_variables(void *user, bool loaded) {
    state_lock *hold = user;
    if (loaded && hold->lock.writes) atomic_store(&hold->session->runs, hold->runs);
    gd_rwlock_release(&hold->lock);
    gd_free(hold);
}

static gd_status lock_variables(gd_session *s, bool writes, state_lock **out) {
    const gd_tracing tracing = gd_tracing_off();
    gd_status status = gd_session_initialize(s);
    gd_tracing_on(tracing);
    GD_TRY(status);
    *out = gd_calloc(1, sizeof **out);
    if (!*out) return gd_no_memory(NULL, "for the state of a session");
    (*out)->session = s;
    (*out)->runs = atomic_load(&s->runs);
    status = gd_rwlock_take(&s->lock, writes, &(*out)->lock);
    if (status != GD_OK) gd_free(*out);
    return status;
}

static gd_status put_session_state(gd_object *object, gd_state *state) {
    gd_session *s = (gd_session *)object;
    state_lock *hold;
    GD_TRY(gd_device_synchronize(s->device)); /* a failed run resets `runs` */
    GD_TRY(lock_variables(s, false, &hold));
    GD_TRY(gd_state_when_done(state, unlock_variables, hold));
    for (int i = 0; i < s->n_variables; i++)
        GD_TRY(gd_state_put_tensor(state, s->graph->variables[i]->origin->name, s->variables[i]));
    return gd_state_put_unsigned(state, "runs", atomic_load(&s->runs));
}

static gd_status take_session_state(gd_object *object, gd_loading *in) {
    gd_session *s = (gd_session *)object;
    state_lock *hold;
    GD_TRY(lock_variables(s, true, &hold));
    GD_TRY(gd_loading_when_done(in, unlock_variables, hold));
    for (int i = 0; i < s->n_variables; i++)
        GD_TRY(gd_loading_tensor(in, s->graph->variables[i]->origin->name, s->variables[i]));
    return gd_loading_unsigned(in, "runs", &hold->runs);
}

const gd_state_rules gd_session_state_rules = {put_session_state, take_session_state};
