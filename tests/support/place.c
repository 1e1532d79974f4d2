#include "place.h"

#include <stdio.h>

#include "oracle_internal.h"
#include "rng.h"

/* ---- elements ---- */

double element_get(hys_dtype dtype, const void *memory, int64_t i)
{
	switch (dtype) {
	case HYS_F32:
		return (double)((const float *)memory)[i];
	case HYS_F16:
		return decode_f16(((const uint16_t *)memory)[i]);
	case HYS_BF16:
		return decode_bf16(((const uint16_t *)memory)[i]);
	case HYS_F8E4M3:
		return decode_e4m3(((const uint8_t *)memory)[i]);
	default:
		return ((const int32_t *)memory)[i];
	}
}

void element_put(hys_dtype dtype, void *memory, int64_t i, double value)
{
	switch (dtype) {
	case HYS_F32:
		((float *)memory)[i] = (float)value;
		break;
	case HYS_F16:
		((uint16_t *)memory)[i] = encode_f16(value);
		break;
	case HYS_BF16:
		((uint16_t *)memory)[i] = encode_bf16(value);
		break;
	case HYS_F8E4M3:
		((uint8_t *)memory)[i] = encode_e4m3(value);
		break;
	default:
		((int32_t *)memory)[i] = (int32_t)value;
	}
}

double element_round(hys_dtype dtype, double value)
{
	switch (dtype) {
	case HYS_F32:
		return round_f32(value);
	case HYS_F16:
		return round_f16(value);
	case HYS_BF16:
		return round_bf16(value);
	case HYS_F8E4M3:
		return round_e4m3(value);
	default:
		return value;
	}
}

/* ---- layout ---- */

static int64_t elements_of(const struct hys_tensor *tensor)
{
	int64_t count = 1;

	for (int32_t d = 0; d < tensor->rank; d++)
		count *= tensor->shape[d];
	return count;
}

/* Fills in offset and strides; answers the elements of memory that it takes. */
static int64_t lay_out(struct hys_tensor *tensor, unsigned flags)
{
	const int64_t gap = flags & PLACE_PITCHED ? 3 : 0;
	const int32_t last = tensor->rank - 1;
	int64_t spanned;

	tensor->offset = gap > 0 ? 5 : 0;
	tensor->stride[last] = gap > 0 ? 1 : 0;
	spanned = tensor->shape[last] + gap;
	if (tensor->rank == 3 && (flags & PLACE_SWAPPED)) {
		tensor->stride[0] = spanned;
		tensor->stride[1] = spanned * ora_max(tensor->shape[0], 1) + gap;
		spanned = tensor->stride[1] * tensor->shape[1];
	} else {
		for (int32_t d = last - 1; d >= 0; d--) {
			tensor->stride[d] = gap > 0 ? ora_max(spanned, 1) : 0;
			spanned = ora_max(spanned, 1) * tensor->shape[d] + gap;
		}
	}
	return tensor->offset + spanned + gap;
}

/* Elements of the last dimension: they lie beside each other. */
static int64_t length_of(const struct hys_tensor *tensor)
{
	return tensor->rank > 0 ? tensor->shape[tensor->rank - 1] : 1;
}

static int64_t vectors_of(const struct hys_tensor *tensor)
{
	const int64_t length = length_of(tensor);

	return length > 0 ? elements_of(tensor) / length : 0;
}

/* Where element i of the contiguous order lies in the image. */
static int64_t position_of(const struct hys_tensor *tensor, int64_t i)
{
	int64_t position = tensor->offset, stride = 1;

	for (int32_t d = tensor->rank - 1; d >= 0; d--) {
		const int64_t n = tensor->shape[d];

		if (tensor->stride[d] > 0)
			stride = tensor->stride[d];
		position += i % n * stride;
		i /= n;
		stride *= n;
	}
	return position;
}

static void put_buffer(struct place *place, struct placed *item)
{
	if (item->bytes == 0)
		item->bytes = (int64_t)hys_dtype_size(item->tensor.dtype);
	place->status = hys_buffer_create(place->context, place->device, item->bytes,
					  &item->tensor.buffer, &place->error);
	if (place->status == HYS_OK)
		place->status = hys_buffer_write(place->exec, item->tensor.buffer, 0, item->image,
						 item->bytes, &place->error);
}

static struct placed *add(struct place *place, const char *name, hys_dtype dtype, int32_t rank,
			  const int64_t shape[3])
{
	struct placed *item = &place->items[place->count];

	if (place->count == PLACE_MAX) {
		fputs("place: too many tensors\n", stderr);
		abort();
	}
	place->count++;
	*item = (struct placed){.name = name};
	item->tensor.dtype = dtype;
	item->tensor.rank = rank;
	for (int32_t d = 0; d < rank; d++)
		item->tensor.shape[d] = shape[d];
	item->written_count = rank > 0 ? shape[0] : 0;
	item->bytes = lay_out(&item->tensor, place->flags) * (int64_t)hys_dtype_size(dtype);
	item->image = ora_alloc(item->bytes + 8, 1);
	item->before = ora_alloc(item->bytes + 8, 1);
	memset(item->image, 0xff, (size_t)item->bytes + 8);
	return item;
}

/* Once the image is filled. */
static struct hys_tensor settle(struct place *place, struct placed *item)
{
	memcpy(item->before, item->image, (size_t)item->bytes);
	if (!(place->flags & PLACE_BUFFER))
		item->tensor.host = elements_of(&item->tensor) > 0 ? item->image : NULL;
	else if (place->status == HYS_OK)
		put_buffer(place, item);
	return item->tensor;
}

static void fill_image(struct placed *item, const double *values)
{
	const int64_t vectors = vectors_of(&item->tensor), length = length_of(&item->tensor);

	for (int64_t v = 0; v < vectors; v++) {
		const int64_t position = position_of(&item->tensor, v * length);

		for (int64_t i = 0; i < length; i++)
			element_put(item->tensor.dtype, item->image, position + i,
				    values[v * length + i]);
	}
}

struct hys_tensor place_in(struct place *place, const char *name, hys_dtype dtype,
			   const double *values, int32_t rank, int64_t n0, int64_t n1, int64_t n2)
{
	struct placed *item = add(place, name, dtype, rank, (const int64_t[]){n0, n1, n2});

	fill_image(item, values);
	return settle(place, item);
}

struct hys_tensor place_in_i32(struct place *place, const char *name, const int32_t *values,
			       int32_t rank, int64_t n0, int64_t n1, int64_t n2)
{
	struct placed *item = add(place, name, HYS_I32, rank, (const int64_t[]){n0, n1, n2});
	const int64_t count = elements_of(&item->tensor);

	for (int64_t i = 0; i < count; i++)
		((int32_t *)(void *)item->image)[position_of(&item->tensor, i)] = values[i];
	return settle(place, item);
}

struct hys_tensor place_out(struct place *place, const char *name, hys_dtype dtype,
			    const double *values, int32_t rank, int64_t n0, int64_t n1, int64_t n2)
{
	struct placed *item = add(place, name, dtype, rank, (const int64_t[]){n0, n1, n2});

	item->output = true;
	if (values)
		fill_image(item, values);
	return settle(place, item);
}

void place_only_rows(struct place *place, int64_t first, int64_t count)
{
	place->items[place->count - 1].written_first = first;
	place->items[place->count - 1].written_count = count;
}

/* ---- afterwards ---- */

/* The image with what was there before wherever the library may not write. */
static unsigned char *allowed_image(const struct placed *item)
{
	const int64_t size = (int64_t)hys_dtype_size(item->tensor.dtype);
	const int64_t length = item->tensor.rank > 1 ? length_of(&item->tensor) : 1;
	const int64_t vectors = elements_of(&item->tensor) / ora_max(length, 1);
	const int64_t per_row = ora_max(vectors / ora_max(item->tensor.shape[0], 1), 1);
	unsigned char *allowed = ora_alloc(item->bytes, 1);

	memcpy(allowed, item->before, (size_t)item->bytes);
	for (int64_t v = 0; item->output && v < vectors; v++) {
		const int64_t row = v / per_row;
		const int64_t at = position_of(&item->tensor, v * length) * size;

		if (row >= item->written_first && row < item->written_first + item->written_count)
			memcpy(allowed + at, item->image + at, (size_t)(length * size));
	}
	return allowed;
}

static bool check_surroundings(const struct placed *item, char *message, size_t size)
{
	const int64_t element = (int64_t)hys_dtype_size(item->tensor.dtype);
	unsigned char *allowed = allowed_image(item);
	const bool well = memcmp(allowed, item->image, (size_t)item->bytes) == 0;
	int64_t i = 0;

	while (!well && allowed[i] == item->image[i])
		i++;
	if (!well)
		snprintf(message, size, "%s: %s at element %lld of memory was written", item->name,
			 item->output ? "what surrounds the output" : "the input",
			 (long long)(i / element));
	free(allowed);
	return well;
}

bool place_collect(struct place *place, char *message, size_t size)
{
	hys_status status = place->status;

	for (int32_t i = 0; status == HYS_OK && i < place->count; i++) {
		const struct placed *item = &place->items[i];

		if (item->tensor.buffer)
			status = hys_buffer_read(place->exec, item->tensor.buffer, 0, item->image,
						 item->bytes, &place->error);
	}
	if (status == HYS_OK && place->exec)
		status = hys_exec_finish(place->exec, &place->error);
	if (status != HYS_OK) {
		snprintf(message, size, "%s: %s", hys_status_name(status), place->error.message);
		return false;
	}
	for (int32_t i = 0; i < place->count; i++)
		if (!check_surroundings(&place->items[i], message, size))
			return false;
	return true;
}

static const struct placed *find(const struct place *place, const char *name)
{
	for (int32_t i = 0; i < place->count; i++)
		if (strcmp(place->items[i].name, name) == 0)
			return &place->items[i];
	return NULL;
}

bool place_untouched(const struct place *place, const char *name)
{
	const struct placed *item = find(place, name);

	return item && memcmp(item->image, item->before, (size_t)item->bytes) == 0;
}

double *place_values(const struct place *place, const char *name)
{
	const struct placed *item = find(place, name);
	int64_t vectors, length;
	double *values;

	if (!item)
		return NULL;
	vectors = vectors_of(&item->tensor);
	length = length_of(&item->tensor);
	values = ora_doubles(vectors * length);
	for (int64_t v = 0; v < vectors; v++) {
		const int64_t position = position_of(&item->tensor, v * length);

		for (int64_t i = 0; i < length; i++)
			values[v * length + i] =
				element_get(item->tensor.dtype, item->image, position + i);
	}
	return values;
}

int32_t *place_values_i32(const struct place *place, const char *name)
{
	int64_t bytes;

	return place_bytes(place, name, &bytes);
}

void *place_bytes(const struct place *place, const char *name, int64_t *bytes)
{
	const struct placed *item = find(place, name);
	int64_t vectors, length, size;
	char *copy;

	if (!item)
		return NULL;
	vectors = vectors_of(&item->tensor);
	length = length_of(&item->tensor);
	size = (int64_t)hys_dtype_size(item->tensor.dtype);
	*bytes = vectors * length * size;
	copy = ora_alloc(*bytes, 1);
	for (int64_t v = 0; v < vectors; v++)
		memcpy(copy + v * length * size,
		       item->image + position_of(&item->tensor, v * length) * size,
		       (size_t)(length * size));
	return copy;
}

void place_clear(struct place *place)
{
	for (int32_t i = 0; i < place->count; i++) {
		hys_buffer_destroy(place->items[i].tensor.buffer);
		free(place->items[i].image);
		free(place->items[i].before);
	}
	place->count = 0;
}
