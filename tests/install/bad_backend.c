/* bad_backend.c - backends that must fail to load. The build defines KIND and the macro of the
 * fault. */
#include <gradus/backend.h>

#ifndef OTHER
GD_API const gd_backend_info gradus_backend_info = {
#ifdef OLDER
    GD_BACKEND_MAGIC, "0.0.1", GD_LAYOUT, KIND};
#elif defined LAYOUT
    GD_BACKEND_MAGIC, GD_VERSION_TEXT, GD_LAYOUT + 1, KIND};
#else
    GD_BACKEND_MAGIC, GD_VERSION_TEXT, GD_LAYOUT, KIND};
#endif
#endif

GD_API gd_status gradus_backend_open(const gd_host *host, gd_backend *backend);
gd_status gradus_backend_open(const gd_host *host, gd_backend *backend) {
    (void)backend;
    return host->fail(GD_E_DEVICE, "there is no such processor here");
}
