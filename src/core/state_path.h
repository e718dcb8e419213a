/* state_path.h - what giving and taking share: prefixes, texts, and what to call at the end. */
#ifndef GRADUS_CORE_STATE_PATH_H
#define GRADUS_CORE_STATE_PATH_H

#include "core/state.h"

/* An empty state that no scope owns. */
gd_status gd_state_new(gd_state **out);

/* A part's name goes in front of all names that follow, until gd_path_end. An object's name inside
 * of a part is gd_path_begin alone. */
gd_status gd_path_begin_part(gd_state_path *path, const char *name, size_t *before);
gd_status gd_path_begin(gd_state_path *path, const char *name, size_t *before);
void gd_path_end(gd_state_path *path, size_t before);

/* Prefix and name as one text from gd_malloc; an empty name is the prefix without its dot. NULL: no
 * memory. */
char *gd_path_join(const gd_state_path *path, const char *name);

/* "FIRST.SECOND" that lives as long as the path. NULL, with the failure noted: no memory. */
const char *gd_path_text(gd_state_path *path, const char *first, const char *second);

gd_status gd_path_when_done(gd_state_path *path, gd_state_done done, void *user);
void gd_path_finish(gd_state_path *path, bool loaded); /* calls what waits for the end */
void gd_path_free(gd_state_path *path);

/* The rules of an object; NULL, with the failure noted, where it has none. `name` is the part's, or
 * NULL for an object that stands alone. */
const gd_state_rules *gd_state_rules_of(const void *object, const char *name);

/* Parts must be there, have state, and differ in name and object. */
gd_status gd_check_parts(gd_state_parts parts);

/* The names of all parts' tensors, for gd_state_name_for: each part gives once, and failures to do
 * so are left to the pass that counts. Only GD_E_MEMORY is returned. */
gd_status gd_state_collect_names(gd_state_parts parts, gd_state **out);

/* The entry of a tensor with the same elements that was put first, or NULL. */
const gd_state_tensor *gd_state_entry_of(const gd_state *state, const gd_tensor *tensor);

/* Whether two tensors are the same elements of the same memory in the same order. */
bool gd_state_same(const gd_tensor *a, const gd_tensor *b);

/* Values as text, exactly: the shortest decimal for a double, "inf", "-inf", "nan". */
bool gd_value_number(const char *text, double *value);
bool gd_value_integer(const char *text, int64_t *value);
bool gd_value_unsigned(const char *text, uint64_t *value);

#endif
