/* indexer_loss_gather.cl - the indexer loss over gathered key rows, by wgmma: sets of single key rows of one
 * group and one kv head. Its order is that of indexer_loss.cl, whose kernels judge, and do the calls that this
 * cannot.
 *
 * Options: those of indexer_loss.cl; ELEMENT_TYPE, SCALE, SOFTCAP, KEY_CHUNKS of the teacher; INDEX_SCALE,
 * INDEX_RELU, INDEX_CHUNKS; TEACHER_STAGES, INDEX_STAGES (tiles in flight), LOCAL_SHARES, LOCAL_LEARN (bytes). */
#include "indexer_loss.cl"
#include "loss_learn.clh"
#include "loss_shares.clh"
