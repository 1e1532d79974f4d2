/* attention_backward_gather.cl - gradients of attention over gathered key rows, which the 16 or more
 * heads of a bundle share, by wgmma. For each tile of rows: shares and slopes of all pairs, then with
 * those the gradients of keys and of rows.
 *
 * Options: those of attention_backward.cl, whose kernels do the calls that this cannot, and of
 * attention_forward_gather.cl (ELEMENT_TYPE to VALUE_CHUNKS); STAGES_SHARED, STAGES_SEPARATE, STAGES_ROWS
 * and LOCAL_ of these and of KEYS; KEY_PARTS, PASS_CHUNKS; ORDER_FREE. */
#include "attention_backward.cl"
#include "gather_lists.clh"
#include "gather_slopes.clh"
#include "gather_key_gradients.clh"
#include "gather_row_gradients.clh"
