/* trial.h - a random net runs a few steps in one of several modes. */
#ifndef GRADUS_TESTS_HARNESS_NETS_TRIAL_H
#define GRADUS_TESTS_HARNESS_NETS_TRIAL_H

#include "step.h"

enum { STEPS = 3, MAX_RESULTS = STEPS * (MAX_FETCHES + 5) + 2 * MAX_TENSORS };

typedef enum result_kind { OUTPUT, CHANGE, BUFFER, GRADIENT } result_kind;

typedef struct net_result {
    result_kind kind;
    int step, number; /* of an output: the call and its number; otherwise the tensor's number */
    double *at, *before;
    int64_t count;
} net_result;

typedef struct net_run {
    net_result results[MAX_RESULTS];
    int count;
    char *plan; /* as text; NULL: none */
    char error[300];
} net_run;

typedef struct net_mode {
    const char *name;
    bool elsewhere; /* on net_device; otherwise on the CPU */
    int level;      /* of a plan; -1: eager */
    bool exact;     /* without autocast */
    bool session;   /* a graph; otherwise a jit */
    bool taped;     /* the jit computes the loss, and the tape its gradients */
    bool limited;   /* of the session's memory */
} net_mode;

enum {
    CPU_EXACT, /* its distance from the others measures how much a net amplifies rounding */
    CPU_EAGER,
    CPU_PLAN,
    DEVICE_EAGER,
    DEVICE_LEVEL_0,
    DEVICE_LEVEL_2,
    DEVICE_TAPED,
    SESSION_EXACT,
    SESSION_LEVEL_0,
    SESSION_LIMITED,
    MODES
};

extern const net_mode net_modes[MODES];

/* The device that is compared with the CPU; NULL: none. */
extern const char *net_device;

/* Runs a copy of the net in this mode. */
void run_net(const net *built, int mode, net_run *r);
void free_run(net_run *r);

#endif
