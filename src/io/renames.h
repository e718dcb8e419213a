/* renames.h - names of tensors replaced by rules: "encoder.*=*, fc.*=head.*, decoder.*=". */
#ifndef GRADUS_IO_RENAMES_H
#define GRADUS_IO_RENAMES_H

#include "gradus/status.h"

typedef struct gd_renames gd_renames;

/* GD_E_ARGUMENT, with the rule, if the text is none. */
gd_status gd_renames_parse(gd_renames **out, const char *text);
void gd_renames_free(gd_renames *renames); /* NULL is fine */

/* The new name, from gd_malloc; NULL if a rule skips it. */
gd_status gd_renames_apply(const gd_renames *renames, const char *from, char **to);

#endif
