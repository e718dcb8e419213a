/* state_path.h - what saving and loading share: prefixes, texts, and callbacks for the end. */
#ifndef GRADUS_CORE_STATE_PATH_H
#define GRADUS_CORE_STATE_PATH_H

#include "core/state.h"

/* An empty state that no scope owns. */
gd_status gd_state_new(gd_state **out);

/* Push the name of a part, or of an object inside a part (gd_path_begin), as a prefix of all
 * following names. gd_path_end pops it. */
gd_status gd_path_begin_part(gd_state_path *path, const char *name, size_t *before);
gd_status gd_path_begin(gd_state_path *path, const char *name, size_t *before);
void gd_path_end(gd_state_path *path, size_t before);

/* Prefix and name as one text from gd_malloc; an empty name is the prefix without its dot. NULL if
 * out of memory. */
char *gd_path_join(const gd_state_path *path, const char *name);

/* "FIRST.SECOND", which lives as long as the path. NULL and a latest failure if out of memory. */
const char *gd_path_text(gd_state_path *path, const char *first, const char *second);

gd_status gd_path_when_done(gd_state_path *path, gd_state_done done, void *user);
void gd_path_finish(gd_state_path *path, bool loaded); /* calls the callbacks */
void gd_path_free(gd_state_path *path);

/* The rules of an object; NULL and a latest failure if it has none. `name` is the name of the part,
 * or NULL for a single object. */
const gd_state_rules *gd_state_rules_of(const void *object, const char *name);

/* Fails unless there are parts, all have state, and their names and objects are different. */
gd_status gd_check_parts(gd_state_parts parts);

/* Collects the names of the tensors of all parts, for gd_state_name_for. Only GD_E_MEMORY is
 * returned: other failures of `save` occur again, and are reported, when the state is collected. */
gd_status gd_state_collect_names(gd_state_parts parts, gd_state **out);

/* The first entry of a tensor with the same elements, or NULL. */
const gd_state_tensor *gd_state_entry_of(const gd_state *state, const gd_tensor *tensor);

/* A key for maps: that of the same elements is the same. It is not the storage alone, because many
 * tensors can be views of one, as the step counts of an optimizer. */
const void *gd_state_place(const gd_tensor *t);

/* Whether two tensors are the same elements of the same memory in the same order. */
bool gd_state_same(const gd_tensor *a, const gd_tensor *b);

/* Parse values from their text: the shortest exact decimal of a double, "inf", "-inf", "nan". False
 * if the text is not such a number. */
bool gd_value_float(const char *text, double *value);
bool gd_value_integer(const char *text, int64_t *value);
bool gd_value_unsigned(const char *text, uint64_t *value);

#endif
