/* Rows of the OpenCL table that need a matrix unit, on a device that has none: the unit is
 * matrix_emulation.clh. */
#ifndef HYS_TEST_EMULATED_UNITS_H
#define HYS_TEST_EMULATED_UNITS_H

#include "core.h"
#include "ocl_matrix.h"

/* Gives the context's OpenCL devices `unit`, and of the backend's rows only those that need it.
 * `fault` is a FAULT_ of matrix_emulation.clh, 0 for none. One unit at a time; call it before
 * anything else is done with the devices. */
void emulate_unit(struct hys_context *context, const struct hys_ocl_unit *unit, int32_t fault);

#endif
