/* flash_backward_blocks.cl - gradients of attention over blocks and windows: the row pass by
 * mma.sync over the tiles that rows read, the key pass by wgmma over the rows that read a
 * tile. Where rows read by lists alone, the key pass comes first, and the row pass takes its slopes. Sums
 * grow in a fixed order, as in flash_backward_wgmma.cl.
 * Options: ELEMENT_TYPE, HEAD_DIM, VALUE_DIM, SOFTCAP, TILE_KEYS, PLACES, ROWS_LOCAL,
 * KEYS_LOCAL, HAND_OVER. */
#define HEAD_PANELS ((HEAD_DIM + 63) / 64)
#define VALUE_PANELS ((VALUE_DIM + 63) / 64)
#define EIGHTS
#include "flash_tiles.clh"
#include "flash_gradient.clh"
#include "flash_lists.clh"
#include "flash_backward_rows_mma.clh"
#define LISTS
#define KEY_TILE 64
/* Even: two groups take turns, and one that does not see all that a place holds could take a phase of its barrier
 * for the one before the last. */
#define ROW_PLACES 4
#include "flash_backward_keys.clh"
#include "flash_backward_slopes.clh"
