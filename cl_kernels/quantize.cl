/* quantize.cl - vectors to f8 e4m3, each with a power of two as its scale.
 * Options: CONVERT_F8, on NVIDIA devices that have an instruction for it. */
#include "common.clh"

#define TEAM 16 /* work-items of a vector */
#define EACH 8	/* elements of a work-item at once */
#define LOCAL 256

/* Elements of a work-item's turn: beside each other where `close`, which is when rows start at
 * multiples of 16 bytes and hold multiples of EACH, else every TEAM-th; those from `dim` on are 0. */
static inline int place_of(int first, int lane, int i, int close)
{
	return close ? first + lane * EACH + i : first + lane + i * TEAM;
}

INLINE void read_turn(const __global void *x, long from, int first, int lane, int dim, int close,
		      int type, float *values)
{
	if (close && type == TYPE_BF16) {
		const int at = first + lane * EACH;
		const uint4 words =
			at < dim ? *(const __global uint4 *)((const __global ushort *)x + from + at)
				 : (uint4)(0);
		const uint word[4] = {words.x, words.y, words.z, words.w};
		for (int i = 0; i < EACH; i++)
			values[i] = as_float(i % 2 ? word[i / 2] & 0xffff0000u : word[i / 2] << 16);
		return;
	}
	for (int i = 0; i < EACH; i++) {
		const int at = place_of(first, lane, i, close);
		values[i] = at < dim ? load(x, from + at, type) : 0.0f;
	}
}

/* The magnitude's bits, which ascend with it; 0 of what is not finite. */
static inline uint finite_bits(float value)
{
	const uint bits = as_uint(value) & 0x7fffffffu;
	return bits < 0x7f800000u ? bits : 0u;
}

/* The exponent of the scale for a vector whose largest magnitude has these bits: 448 is 2^8 * 1.75. */
static inline int exponent_of(uint most)
{
	const int exponent = (int)(most >> 23) - 127 - 8 + ((most & 0x7fffffu) > 0x600000u);
	return most == 0u ? 0 : max(exponent, -100);
}

static inline float power_of_two(int exponent)
{
	return as_float((uint)(exponent + 127) << 23);
}

/* To nearest, ties to even; values are at most 448, infinite or NaN. The first in the low byte. */
#ifdef CONVERT_F8
static inline uint round_two(float first, float second)
{
	uint both;
	__asm__("{.reg .b16 h; cvt.rn.satfinite.e4m3x2.f32 h, %1, %2; cvt.u32.u16 %0, h;}"
		: "=r"(both)
		: "f"(second), "f"(first));
	return both;
}
#else
static inline uint round_f8(float value)
{
	const uint bits = as_uint(value), sign = bits >> 24 & 0x80u, size = bits & 0x7fffffffu;
	const uint normal = ((size + 0x7ffffu + (size >> 20 & 1u)) >> 20) - 960u;
	const uint small = (uint)rint(as_float(size) * 512.0f); /* below 2^-6: in steps of 2^-9 */
	uint code = size < 0x3c800000u ? small : min(normal, 0x7eu);
	if (size > 0x7f800000u)
		code = 0x7fu;
	return code | sign;
}

static inline uint round_two(float first, float second)
{
	return round_f8(first) | round_f8(second) << 8;
}
#endif

INLINE void write_turn(__global uchar *f8, long to, int first, int lane, int dim, int close,
		       const float *values, float inverse)
{
	uint pairs[EACH / 2];
	for (int i = 0; i < EACH; i += 2)
		pairs[i / 2] = round_two(values[i] * inverse, values[i + 1] * inverse);
	if (close && first + lane * EACH < dim) {
		*(__global uint2 *)(f8 + to + first + lane * EACH) =
			(uint2)(pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16);
	} else if (!close) {
		for (int i = 0; i < EACH; i++) {
			const int at = place_of(first, lane, i, 0);
			if (at < dim)
				f8[to + at] = (uchar)(pairs[i / 2] >> i % 2 * 8);
		}
	}
}

/* `vectors` vectors of `dim` elements, `heads` of them a row; fewer than 2^31. */
INLINE void quantize(__local uint *most, const __global void *x, long4 x_at, __global uchar *f8,
		     long4 f8_at, __global float *scale, long4 scale_at, uint vectors, uint heads,
		     int dim, int close, int type)
{
	const int thread = (int)get_local_id(0), lane = thread % TEAM;
	const uint vector = (uint)get_group_id(0) * (LOCAL / TEAM) + (uint)(thread / TEAM);
	const long row = vector / heads, head = vector % heads;
	const long from = x_at.s0 + row * x_at.s1 + head * x_at.s2;
	const long to = f8_at.s0 + row * f8_at.s1 + head * f8_at.s2;
	const int mine = vector < vectors ? dim : 0;
	float values[EACH];
	uint own = 0u;
	int exponent;
	for (int first = 0; first < mine; first += TEAM * EACH) {
		read_turn(x, from, first, lane, dim, close, type, values);
		for (int i = 0; i < EACH; i++)
			own = max(own, finite_bits(values[i]));
	}
	most[thread] = own;
	for (int step = TEAM / 2; step > 0; step /= 2) {
		barrier(CLK_LOCAL_MEM_FENCE);
		if (lane < step)
			most[thread] = max(most[thread], most[thread + step]);
	}
	barrier(CLK_LOCAL_MEM_FENCE);
	exponent = exponent_of(most[thread - lane]);
	for (int first = 0; first < mine; first += TEAM * EACH) {
		if (mine > TEAM * EACH)
			read_turn(x, from, first, lane, dim, close, type, values);
		write_turn(f8, to, first, lane, dim, close, values, power_of_two(-exponent));
	}
	if (mine > 0 && lane == 0)
		scale[scale_at.s0 + row * scale_at.s1 + head * scale_at.s2] =
			power_of_two(exponent);
}

#define PARAMETERS                                                                        \
	const __global void *x, long4 x_at, __global uchar *f8, long4 f8_at,              \
		__global float *scale, long4 scale_at, uint vectors, uint heads, int dim, \
		int close

__kernel __attribute__((reqd_work_group_size(LOCAL, 1, 1))) void quantize_f32(PARAMETERS)
{
	__local uint most[LOCAL];
	quantize(most, x, x_at, f8, f8_at, scale, scale_at, vectors, heads, dim, close, TYPE_F32);
}

__kernel __attribute__((reqd_work_group_size(LOCAL, 1, 1))) void quantize_f16(PARAMETERS)
{
	__local uint most[LOCAL];
	quantize(most, x, x_at, f8, f8_at, scale, scale_at, vectors, heads, dim, close, TYPE_F16);
}

__kernel __attribute__((reqd_work_group_size(LOCAL, 1, 1))) void quantize_bf16(PARAMETERS)
{
	__local uint most[LOCAL];
	quantize(most, x, x_at, f8, f8_at, scale, scale_at, vectors, heads, dim, close, TYPE_BF16);
}
