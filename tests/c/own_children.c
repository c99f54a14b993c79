/* A rank waits for all its children, as for those of a shell: the library has none, and no signal tells of the end of one. */
#include "check.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cnos_mpi_os.h>

static volatile sig_atomic_t ended;

static void on_end(int number)
{
	(void)number;
	ended++;
}

int main(void)
{
	ptl_handle_ni_t ni;
	pid_t child;

	CHECK(signal(SIGCHLD, on_end) != SIG_ERR);
	ni = open_default();
	CHECK(ended == 0);
	CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
	child = fork();
	CHECK(child >= 0);
	if (child == 0)
		_exit(0);
	CHECK(waitpid(-1, NULL, 0) == child);
	CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
	CHECK(cnos_barrier() == 0);
	OK(PtlNIFini(ni));
	PtlFini();
	CHECK(ended == 1);
	return 0;
}
