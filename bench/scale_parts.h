/* scale_parts.h - everything whose cost grows with the size of a net, in programs of size n.
 *
 * `bench scale` times the parts of each program; tests/unit/tree/test_growth.c counts their steps.
 */
#ifndef GRADUS_BENCH_SCALE_PARTS_H
#define GRADUS_BENCH_SCALE_PARTS_H

/* Each program calls these around each of its parts. The program that runs them defines both. */
void scale_begin(void);
void scale_end(const char *part);

typedef struct scale_program {
    const char *name; /* what has n of something */
    void (*run)(int n);
    int n; /* the smallest size in the benchmark */
} scale_program;
extern const scale_program scale_programs[]; /* ends with a name of NULL */

#endif
