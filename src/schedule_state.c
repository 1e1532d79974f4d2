/* The state of a schedule as bytes, little-endian:
 *
 *     8   "hyssched"
 *     8   version of this format
 *     8   signature of the options
 *     4*8 per layer and group: cleared, boost, recall, loss
 *     2*8 per layer: overlap, raised
 *     8   checksum of all before it
 *
 * Reals are the bits of an IEEE binary64. */
#include <math.h>
#include <string.h>

#include "schedule.h"

#define MAGIC UINT64_C(0x6465686373737968) /* "hyssched" */
#define VERSION 1
#define HEAD_WORDS ((size_t)3)
#define GROUP_WORDS 4
#define LAYER_WORDS 2

static size_t state_bytes(const struct hys_schedule *schedule)
{
	const size_t layers = (size_t)schedule->options.layers;
	const size_t groups = (size_t)schedule->options.groups;

	return 8 * (HEAD_WORDS + layers * (groups * GROUP_WORDS + LAYER_WORDS) + 1);
}

static unsigned char *put(unsigned char *at, uint64_t word)
{
	for (int32_t i = 0; i < 8; i++)
		*at++ = (unsigned char)(word >> (8 * i));
	return at;
}

static unsigned char *put_real(unsigned char *at, double value)
{
	uint64_t word;

	memcpy(&word, &value, sizeof(word));
	return put(at, word);
}

static uint64_t get(const unsigned char **at)
{
	uint64_t word = 0;

	for (int32_t i = 0; i < 8; i++)
		word |= (uint64_t) * (*at)++ << (8 * i);
	return word;
}

static double get_real(const unsigned char **at)
{
	const uint64_t word = get(at);
	double value;

	memcpy(&value, &word, sizeof(value));
	return value;
}

size_t hys_schedule_save(const struct hys_schedule *schedule, void *bytes, size_t size)
{
	unsigned char *at = bytes;
	size_t length;

	if (!schedule)
		return 0;
	length = state_bytes(schedule);
	if (!bytes || size < length)
		return length;
	at = put(at, MAGIC);
	at = put(at, VERSION);
	at = put(at, schedule->signature);
	for (int64_t i = 0; i < (int64_t)schedule->options.layers * schedule->options.groups; i++) {
		const struct hys_learned *learned = &schedule->learned[i];

		at = put(at, (uint64_t)learned->cleared);
		at = put_real(at, learned->boost);
		at = put_real(at, learned->recall);
		at = put_real(at, learned->loss);
	}
	for (int32_t l = 0; l < schedule->options.layers; l++) {
		at = put_real(at, schedule->learned_layers[l].overlap);
		at = put(at, (uint64_t)schedule->learned_layers[l].raised);
	}
	put(at, hys_hash(hys_hash_start, bytes, length - 8));
	return length;
}

static hys_status check_state(const struct hys_schedule *schedule, const unsigned char *bytes,
			      size_t size, struct hys_error *error)
{
	const unsigned char *at = bytes, *sum;
	uint64_t version, signature;

	if (size < 8 * (HEAD_WORDS + 1) || get(&at) != MAGIC)
		return hys_fail(error, HYS_FORMAT, 0, "these are not a schedule's bytes");
	version = get(&at);
	if (version != VERSION)
		return hys_fail(error, HYS_VERSION_MISMATCH, 0,
				"the schedule's state has format %llu, expected %d",
				(unsigned long long)version, VERSION);
	sum = bytes + size - 8;
	if (get(&sum) != hys_hash(hys_hash_start, bytes, size - 8))
		return hys_fail(error, HYS_FORMAT, 0,
				"the schedule's state is damaged: its checksum does not fit");
	signature = get(&at);
	if (signature != schedule->signature)
		return hys_fail(error, HYS_VERSION_MISMATCH, 0,
				"the state is of a schedule with other options");
	if (size != state_bytes(schedule))
		return hys_fail(error, HYS_FORMAT, 0, "the state has %llu bytes, expected %llu",
				(unsigned long long)size,
				(unsigned long long)state_bytes(schedule));
	return HYS_OK;
}

/* A checksum says that the bytes are whole, not that they make sense. */
static bool sensible(const struct hys_schedule *schedule, const unsigned char *at)
{
	const struct hys_schedule_options *options = &schedule->options;

	for (int64_t i = 0; i < (int64_t)options->layers * options->groups; i++) {
		const int64_t cleared = (int64_t)get(&at);
		const double boost = get_real(&at), recall = get_real(&at), loss = get_real(&at);

		if (cleared < 0 || cleared > options->steps || !(boost >= 1 && boost < HUGE_VAL) ||
		    isnan(recall) || isnan(loss))
			return false;
	}
	for (int32_t l = 0; l < options->layers; l++) {
		const double overlap = get_real(&at);
		const uint64_t raised = get(&at);

		if (isnan(overlap) || raised > HYS_PHASE_EXACT)
			return false;
	}
	return true;
}

hys_status hys_schedule_load(struct hys_schedule *schedule, const void *bytes, size_t size,
			     struct hys_error *error)
{
	const unsigned char *at = bytes;
	hys_status status;

	if (!schedule || !bytes)
		return hys_fail(error, HYS_INVALID_ARGUMENT, 0, "%s is NULL",
				schedule ? "bytes" : "schedule");
	HYS_TRY(check_state(schedule, bytes, size, error));
	at += 8 * HEAD_WORDS;
	if (!sensible(schedule, at))
		return hys_fail(error, HYS_FORMAT, 0, "the state holds numbers that none can have");
	for (int64_t i = 0; i < (int64_t)schedule->options.layers * schedule->options.groups; i++) {
		struct hys_learned *learned = &schedule->learned[i];

		learned->cleared = (int64_t)get(&at);
		learned->boost = get_real(&at);
		learned->recall = get_real(&at);
		learned->loss = get_real(&at);
	}
	for (int32_t l = 0; l < schedule->options.layers; l++) {
		schedule->learned_layers[l].overlap = get_real(&at);
		schedule->learned_layers[l].raised = (int32_t)get(&at);
	}
cleanup:
	return status;
}
