/*
 * Deterministic random numbers and number-format roundings for tests.
 *
 * The generator is xoshiro256** seeded through splitmix64: the same seed gives
 * the same sequence on every machine.  Nothing here allocates.
 */
#ifndef HYS_TEST_RNG_H
#define HYS_TEST_RNG_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct rng {
	uint64_t state[4];
};

void rng_seed(struct rng *rng, uint64_t seed);
uint64_t rng_u64(struct rng *rng);

/* Uniform in [0, 1), 53 random bits. */
double rng_uniform(struct rng *rng);

/* Uniform integer in [low, high), unbiased; low when the range is empty. */
int64_t rng_range(struct rng *rng, int64_t low, int64_t high);

/* Standard normal. */
double rng_normal(struct rng *rng);

/* exp(mu + sigma * normal). */
double rng_log_normal(struct rng *rng, double mu, double sigma);

void rng_shuffle_i32(struct rng *rng, int32_t *values, int64_t count);

/* values[i] = scale * normal. */
void rng_fill_normal(struct rng *rng, double *values, int64_t count, double scale);

/* values[i] = an integer in [low, high), so that products stay exact in f32. */
void rng_fill_integers(struct rng *rng, double *values, int64_t count, int64_t low, int64_t high);

/* `count` distinct integers of [low, high) in ascending order; high - low >= count. */
void rng_sample_sorted(struct rng *rng, int32_t *values, int64_t count, int32_t low, int32_t high);

/*
 * The value of the format nearest to x, ties to even.  f32, f16 and bf16
 * overflow to infinity; e4m3 (the "fn" kind: no infinity, largest value 448)
 * saturates, infinities included.  NaN stays NaN, zero keeps its sign.
 */
double round_f32(double x);
double round_f16(double x);
double round_bf16(double x);
double round_e4m3(double x);

/* The bit pattern of round_*(x), and the value of a bit pattern. */
uint16_t encode_f16(double x);
uint16_t encode_bf16(double x);
uint8_t encode_e4m3(double x);
double decode_f16(uint16_t bits);
double decode_bf16(uint16_t bits);
double decode_e4m3(uint8_t bits);

/* Applies a rounding to a whole array. */
void round_array(double (*round_to)(double), double *values, int64_t count);

#ifdef __cplusplus
}
#endif

#endif
