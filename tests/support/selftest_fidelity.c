/* Fidelity and comparison. */
#include "selftest.h"

#include "oracle.h"
#include "oracle_internal.h"

static void check_mass(void)
{
	/* Head 0 sees logits 0, log 3 and head 1 the other way round. */
	const double q[] = {1.0, -1.0}, k[] = {0.0, log(3.0)};
	const int32_t picks[] = {1, 1}, zero_end[] = {0};
	double mass[2];
	struct ora_attention a = {.rows = 1,
				  .keys = 2,
				  .heads = 2,
				  .kv_heads = 1,
				  .head_dim = 1,
				  .groups = 2,
				  .topk = 1,
				  .scale = 1.0,
				  .q = q,
				  .k = k,
				  .indices = picks};
	CHECK(fabs(ora_row_mass(&a, 0, 0) - 0.75) < 1e-15);
	CHECK(fabs(ora_row_mass(&a, 0, 1) - 0.25) < 1e-15);
	CHECK(ora_row_keys_needed(&a, 0, 0, 0.74) == 1 && ora_row_keys_needed(&a, 0, 1, 0.76) == 2);
	CHECK(ora_row_keys_needed(&a, 0, 0, 0.0) == 0 && ora_row_keys_needed(&a, 0, 0, 1.1) == 2);
	a.groups = 1;
	CHECK(fabs(ora_row_mass(&a, 0, 0) - 0.5) < 1e-15);
	a.window = 2;
	CHECK(fabs(ora_row_mass(&a, 0, 0) - 1.0) < 1e-15);
	a.row_end = zero_end;
	CHECK(ora_row_mass(&a, 0, 0) == 1.0 && ora_row_keys_needed(&a, 0, 0, 0.5) == 0);
	ora_fidelity_mass(&a, 0, 0, mass);
	CHECK(mass[0] == 1.0);
}

/* Uniform shares: the mean over the sampled rows that see anything. */
static void check_mean_mass(void)
{
	const double q[4] = {0.0}, k[4] = {0.0};
	const int32_t row_end[] = {1, 0, 4, 2}, picks[] = {0, 0, 0, 0};
	double mass;
	struct ora_attention a = {.rows = 4,
				  .keys = 4,
				  .heads = 1,
				  .kv_heads = 1,
				  .head_dim = 1,
				  .topk = 1,
				  .scale = 1.0,
				  .q = q,
				  .k = k,
				  .indices = picks,
				  .row_end = row_end};
	ora_fidelity_mass(&a, 1, 0, &mass);
	CHECK(fabs(mass - (1.0 + 0.25 + 0.5) / 3.0) < 1e-15);
	ora_fidelity_mass(&a, 2, 1, &mass);
	CHECK(fabs(mass - 0.5) < 1e-15);
}

static void check_recall(void)
{
	const int32_t exact[] = {0, 1, 2, 5}, picks[] = {1, 2, 3}, none[] = {-1, -1};
	CHECK(fabs(ora_row_recall(picks, 3, exact, 3) - 2.0 / 3.0) < 1e-15);
	CHECK(ora_row_recall(picks, 3, exact, 4) == 0.5 &&
	      ora_row_recall(none, 2, exact, 4) == 0.0);
	CHECK(ora_row_recall(picks, 3, none, 2) == 1.0);
}

static void check_comparison(void)
{
	const double infinity = (double)INFINITY, nan = (double)NAN;
	const double want[] = {3.0, 4.0, 0.0, 0.0, infinity, nan},
		     got[] = {3.0, 4.5, 0.0, 0.0, infinity, nan};
	CHECK(fabs(ora_relative_error(got, want, 6) - 0.1) < 1e-15);
	CHECK(ora_worst_vector_error(got, want, 3, 2, 0.0) == 0.125);
	CHECK(ora_worst_vector_error(got, want, 3, 2, 5.0) == 0.1);
	const double bad[] = {3.0, nan, 0.0, 1e-9, infinity, nan};
	CHECK(isnan(ora_relative_error(bad, want, 6)) &&
	      isnan(ora_worst_vector_error(bad, want, 1, 2, 0.0)));
	CHECK(isinf(ora_worst_vector_error(bad + 2, want + 2, 1, 2, 0.0)));
	CHECK(fabs(ora_worst_vector_error(bad + 2, want + 2, 1, 2, 1.0) - 1e-9) < 1e-20);
}

void selftest_fidelity(void)
{
	check_mass();
	check_recall();
	check_mean_mass();
	check_comparison();
}
