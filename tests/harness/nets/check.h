/* check.h - runs random training steps (step.h) eagerly and as plans, on the CPU and on another
 * device, and compares the results.
 *
 * GRADUS_TEST_NETS=FROM,COUNT runs other seeds than the usual ones. A net whose results differ is
 * reduced: layers and options are left out while they still differ. The check prints what is left,
 * and the plan. GRADUS_TEST_NETS=SEED,1,LAYERS,OPTIONS runs the reduced net again; the last two are
 * the bits of what was left out.
 */
#ifndef GRADUS_TESTS_HARNESS_NETS_CHECK_H
#define GRADUS_TESTS_HARNESS_NETS_CHECK_H

/* The device that is compared with the CPU; NULL: none. */
extern const char *net_device;

/* Checks `count` seeds from `from` on, or those of GRADUS_TEST_NETS. */
void check_seeds(long from, long count);

#endif
