/* The version of hyscale. CMake reads the three numbers from here: they stand nowhere else. */
#ifndef HYSCALE_VERSION_H
#define HYSCALE_VERSION_H

#include "base.h"

#define HYS_VERSION_MAJOR 0
#define HYS_VERSION_MINOR 1
#define HYS_VERSION_PATCH 0

#define HYS_VERSION_STRINGIFY_(x) #x
#define HYS_VERSION_DOTTED_(major, minor, patch) \
	HYS_VERSION_STRINGIFY_(major)            \
	"." HYS_VERSION_STRINGIFY_(minor) "." HYS_VERSION_STRINGIFY_(patch)

/* "0.1.0" */
#define HYS_VERSION_STRING \
	HYS_VERSION_DOTTED_(HYS_VERSION_MAJOR, HYS_VERSION_MINOR, HYS_VERSION_PATCH)
/* 100 = 0.1.0; for comparisons: major * 10000 + minor * 100 + patch */
#define HYS_VERSION_NUMBER (HYS_VERSION_MAJOR * 10000 + HYS_VERSION_MINOR * 100 + HYS_VERSION_PATCH)

#ifdef __cplusplus
extern "C" {
#endif

/* HYS_VERSION_STRING of the library that is loaded, which may be newer than the header that was compiled against. Never freed. */
HYS_API const char *hys_version_string(void);

/* HYS_VERSION_NUMBER of the library that is loaded. */
HYS_API int hys_version_number(void);

#ifdef __cplusplus
}
#endif

#endif
