/* intern.h - strings that live as long as the library: attribute texts, names of user ops. */
#ifndef GRADUS_OPS_INTERN_H
#define GRADUS_OPS_INTERN_H

/* The one copy of `text`; NULL when there is no memory. */
const char *gd_intern(const char *text);

/* Frees `block` when the library is unloaded. */
void gd_keep_until_exit(void *block);

#endif
