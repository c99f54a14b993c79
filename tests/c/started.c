/* A program that never calls PtlInit, as those for Cray's systems, where start-up had done it. "started" with
 * PORTOLAN_CRAY_START, "refused" without. */
#include <portals3.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

int main(int argc, char **argv)
{
	const int started = argc > 1 && strcmp(argv[1], "started") == 0;
	ptl_handle_ni_t ni = PTL_INVALID_HANDLE;
	ptl_handle_eq_t eq;
	ptl_process_id_t id;
	int max = 0, status = 0;
	pid_t child;

	/* Nothing else starts the library. */
	GIVES(PTL_NO_INIT, PtlGetId(ni, &id));
	if (!started) {
		GIVES(PTL_NO_INIT, PtlNIInit(PTL_IFACE_DEFAULT, PTL_PID_ANY, NULL, NULL, &ni));
		return 0;
	}
	GIVES(PTL_SEGV, PtlNIInit(PTL_IFACE_DEFAULT, PTL_PID_ANY, NULL, NULL, NULL));
	GIVES(PTL_OK, PtlNIInit(PTL_IFACE_DEFAULT, PTL_PID_ANY, NULL, NULL, &ni));
	/* In a child nothing does. */
	child = fork();
	if (child == 0) {
		_exit(PtlNIInit(PTL_IFACE_SELF, PTL_PID_ANY, NULL, NULL, &ni) != PTL_NO_INIT);
	}
	CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
	GIVES(PTL_OK, PtlEQAlloc(ni, 8, PTL_EQ_HANDLER_NONE, &eq));
	GIVES(PTL_OK, PtlInit(&max));
	GIVES(PTL_OK, PtlGetId(ni, &id));
	GIVES(PTL_OK, PtlNIFini(ni));
	PtlFini();
	return 0;
}
