/* crash.h - checks that saved files are the old ones or the new ones, never a mixture: after saves
 * that were killed, in several processes that save at once, and on a full disk.
 *
 * A test gives the rules of what it saves. The checks call them in children only, so that each of
 * them starts with an uninitialized library.
 */
#ifndef GRADUS_TESTS_HARNESS_CRASH_H
#define GRADUS_TESTS_HARNESS_CRASH_H

typedef struct crash_rules {
    const char *folder;      /* has the saved files and nothing else */
    int (*save)(int value);  /* saves files full of this number, 1 to 99; returns a gd_status */
    int (*load)(void);       /* returns the number; -1: loading failed, -2: a mixture */
    int (*count)(int value); /* how many files a save of this number leaves */
    int bytes;               /* of the largest file, at most */
} crash_rules;

/* Kills a save at each of its system calls. At least `old` of them must leave the old files, and
 * `new` the new ones. */
void crash_at_every_call(const crash_rules *r, int old, int new);
/* Kills processes that save again and again, at random times. The folder never has more than
 * `most` files. */
void crash_at_any_time(const crash_rules *r, int kills, int most);
/* Four processes save at once, `saves` times each, while this one loads. */
void crash_save_at_once(const crash_rules *r, int saves);
/* Saves with limits on the size of files, which act as a full disk. */
void crash_fill_disk(const crash_rules *r);

#endif
