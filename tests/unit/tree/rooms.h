/* rooms.h - the folders of src/ and their order, which is that of the table in ARCHITECTURE.md.
 *
 *     src/ROOM/                  rooms, in the order of the table
 *     src/graph/STAGE/           stages of a room, in the order in which its row names them
 *     src/ops/FAMILY/            families, which use each other without cycles
 *     src/backend/KIND/          what is for one kind of device, and only used there
 *     src/ops/FAMILY/KIND/
 */
#ifndef GRADUS_TESTS_UNIT_TREE_ROOMS_H
#define GRADUS_TESTS_UNIT_TREE_ROOMS_H

#include "sources.h"

enum { MAX_NAMES = 64, NAME_BYTES = 48 };
typedef char name[NAME_BYTES];
typedef struct name_list {
    name at[MAX_NAMES];
    int count;
} name_list;

/* The index of a name in a list; -1: it is not there. */
int find_name(const name_list *list, const char *text, size_t length);

extern name_list rooms, stages[MAX_NAMES]; /* stages: of each room */
extern name_list families, kinds;          /* those of the places so far */

/* Reads the table, at the first call. */
void read_table(void);

/* Where a file of src/ is; -1: none. */
typedef struct place {
    int room, stage, family, kind;
    int order; /* its room's, but for the test device, which has kernels of ops in its folder */
} place;

/* The length of folder number `depth` of a path, which starts at *at; 0: it is not so deep. */
size_t folder_at(const char *path, int depth, const char **at);

/* `path` is below src/. */
place place_of(const char *path);
bool is_room(int room, const char *text);
bool is_later(place p, place than);

/* The name of a place in messages. */
const char *place_text(place p, char text[200]);

/* Which families use which: reaches[A][B], also indirectly after close_families. */
extern bool reaches[MAX_NAMES][MAX_NAMES];
void close_families(void);

#endif
