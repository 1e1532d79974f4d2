/* flash_backward_wgmma.cl - gradients of dense attention with wgmma, in two passes.
 *
 * With p = exp(l - whole), dp = <v, grad_o> and ds = p * (dp - <o, grad_o>) * d logit / d dot:
 * the row pass sums dq = ds * k over tiles of keys, the key pass dk = ds^T * q and
 * dv = p^T * grad_o over tiles of packed rows (flash_rows.clh). Each sum belongs to one
 * warpgroup and grows in the order of tiles, so that the bits are the same on every run.
 * Options: ELEMENT_TYPE, HEAD_PANELS, VALUE_PANELS, SOFTCAP, ROWS_LOCAL, KEYS_LOCAL. */

/* Of the row pass, for flash_rings.clh. */
#define TILE_ROWS 128
#define KEY_STAGES 3
#define VALUE_STAGES 2
#define GRAD_AT (HEAD_PANELS * TILE_ROWS * PANEL_BYTES)
#define KEYS_AT (GRAD_AT + VALUE_PANELS * TILE_ROWS * PANEL_BYTES)
#define VALUES_AT (KEYS_AT + KEY_STAGES * KEYS_BYTES)
#define BARRIERS_AT (VALUES_AT + VALUE_STAGES * VALUES_BYTES)
#include "flash_rings.clh"
#include "flash_gradient.clh"
#include "flash_backward_rows.clh"
#define KEY_TILE 128
#define ROW_PLACES 3
#include "flash_backward_keys.clh"
