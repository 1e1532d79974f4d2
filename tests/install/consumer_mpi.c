/* A job of one rank, as a user of the installed hyscale_mpi would make it. */
#include <hyscale/hyscale.h>
#include <hyscale/mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	struct hys_error error = {0};
	struct hys_cp *cp = NULL;
	hys_status status;

	MPI_Init(&argc, &argv);
	status = hys_cp_create(MPI_COMM_SELF, NULL, &cp, &error);
	printf("hyscale %s, rank %d of %d: %s\n", hys_version_string(), hys_cp_rank(cp),
	       hys_cp_ranks(cp), hys_status_name(status));
	hys_cp_destroy(cp);
	MPI_Finalize();
	return status != HYS_OK;
}
