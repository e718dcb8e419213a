/* turn.h - turns at what runs read and write: those who only read go side by side, whoever writes
 * is alone, and everyone waits for those alone who came before. Threads that wait sleep.
 */
#ifndef GRADUS_GRAPH_TURN_H
#define GRADUS_GRAPH_TURN_H

#include "core/error.h"
#include "graph/run/guard.h"

typedef struct gd_turn {
    gd_guard guard;
    int readers;
    bool written;     /* somebody has it for writing: */
    pthread_t writer; /* this thread */
    bool torn;        /* the process was forked while another thread wrote */
    gd_sleepers queue;
} gd_turn;

/* A turn that this thread has; on its stack. */
typedef struct gd_turn_hold {
    struct gd_turn_hold *before;
    gd_turn *turn;
    bool writes;
} gd_turn_hold;

void gd_turn_init(gd_turn *turn);
/* Waits. Refuses a second turn of the same thread where one of the two writes, and everything where
 * a fork has torn what is written. A refused turn is not left. */
gd_status gd_turn_take(gd_turn *turn, bool writes, gd_turn_hold *hold);
void gd_turn_leave(gd_turn_hold *hold);

/* --- for forks (guard.c) ---------------------------------------------------------------------- */

/* From here on, threads that are in no run are given no turn to write. */
void gd_turns_hold_writers(bool held);
bool gd_turn_is_written(gd_turn *turn); /* by another thread */
void gd_turn_go_on(gd_turn *turn);      /* once writers are no longer held */
void gd_turns_in_child(void);
void gd_turn_in_child(gd_turn *turn); /* all guards are held */

#endif
