/* Signals that a node blocks once the library is started, to take them by a descriptor or a wait: no thread of the library
 * takes them. */
#include "gasnet_check.h"

#include <pthread.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

int main(void)
{
	sigset_t taken;
	struct signalfd_siginfo told;
	int fd, number;

	OK(gasnet_init(NULL, NULL));
	OK(gasnet_attach(NULL, 0, 0, 0));
	sigemptyset(&taken);
	sigaddset(&taken, SIGUSR1);
	sigaddset(&taken, SIGALRM);
	CHECK(pthread_sigmask(SIG_BLOCK, &taken, NULL) == 0);
	fd = signalfd(-1, &taken, SFD_CLOEXEC);
	CHECK(fd >= 0);
	for (int i = 0; i < 20; i++) {
		CHECK(kill(getpid(), SIGUSR1) == 0);
		CHECK(read(fd, &told, sizeof told) == sizeof told && told.ssi_signo == SIGUSR1);
		OK(gasnet_AMPoll());
	}
	CHECK(kill(getpid(), SIGALRM) == 0);
	CHECK(sigwait(&taken, &number) == 0 && number == SIGALRM);
	printf("node %d: all right\n", (int)gasnet_mynode());
	fflush(stdout);
	gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
	OK(gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS));
	gasnet_exit(0);
}
