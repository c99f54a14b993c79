/* A rank that joins its job and ends in the way its argument says; the other ranks return from
 * main.
 *
 * Rule 72: a forked child has no Portals, and its end is not the rank's. */
#include "check.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cnos_mpi_os.h>

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "";
	ptl_handle_ni_t ni;

	if (strcmp(how, "never") == 0)
		return 0;
	ni = open_default();
	cnos_barrier();
	if (cnos_get_rank() != 0)
		return 0;
	if (strcmp(how, "fini") == 0) {
		OK(PtlNIFini(ni));
		PtlFini();
	}
	if (strcmp(how, "status") == 0)
		exit(3);
	if (strcmp(how, "crash") == 0)
		raise(SIGSEGV);
	if (strcmp(how, "_exit") == 0)
		_exit(0);
	if (strcmp(how, "fork") == 0) {
		/* The child is nobody's rank: it cannot start the library, and its end is not that of
		 * the rank. */
		int status, max_interfaces;
		pid_t child = fork();

		if (child == 0) {
			ptl_process_id_t id;

			GIVES(PTL_FAIL, PtlInit(&max_interfaces));
			GIVES(PTL_NO_INIT, PtlGetId(ni, &id));
			exit(0);
		}
		CHECK(waitpid(child, &status, 0) == child && status == 0);
		OK(PtlNIEqDump(ni));
	}
	return 0;
}
