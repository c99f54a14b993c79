/* Polls out of a handler of the system's signals, which GASNet forbids, until one has interrupted a poll: that ends the job by
 * name. */
#include "gasnet_check.h"

#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

static void polls(int signal)
{
	(void)signal;
	gasnet_AMPoll();
}

int main(int argc, char **argv)
{
	struct itimerval once = { { 0, 0 }, { 0, 1 } };
	struct sigaction action;
	time_t begun = time(NULL);

	OK(gasnet_init(&argc, &argv));
	OK(gasnet_attach(NULL, 0, GASNET_PAGESIZE, 0));
	gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
	if (gasnet_mynode() == 0) {
		memset(&action, 0, sizeof action);
		action.sa_handler = polls;
		CHECK(sigaction(SIGALRM, &action, NULL) == 0);
	}
	while (time(NULL) - begun < 60) {
		/* One signal for each poll, a little later each time: signals that came by themselves would leave a slow machine
		 * no time for polls. */
		once.it_value.tv_usec = once.it_value.tv_usec % 300 + 1;
		if (gasnet_mynode() == 0) CHECK(setitimer(ITIMER_REAL, &once, NULL) == 0);
		gasnet_AMPoll();
	}
	CHECK(!"no poll was interrupted within a minute");
	return 0;
}
