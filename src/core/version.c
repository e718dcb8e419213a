/* version.c - which version this is; the build defines it. */
#include "gradus/device.h"

const char *gd_version(void) { return GRADUS_VERSION; }
