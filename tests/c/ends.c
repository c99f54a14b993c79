/* A rank that joins its job and ends in the way its argument says; the other ranks return from
 * main. Where it ends by `_exit`, another rank first takes what it was owed: 1 MiB that was put just before.
 *
 * Rule 72: a forked child has no Portals, and its end is not the rank's. */
#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cnos_mpi_os.h>

enum { PORTAL = 5, SIZE = 1 << 20 };

static unsigned char memory[SIZE];

static void expose(ptl_handle_ni_t ni, ptl_handle_eq_t *eq)
{
	ptl_handle_me_t me;
	ptl_handle_md_t md;

	OK(PtlEQAlloc(ni, 8, PTL_EQ_HANDLER_NONE, eq));
	OK(PtlMEAttach(ni, PORTAL, anyone, 1, 0, PTL_RETAIN, PTL_INS_AFTER, &me));
	OK(PtlMDAttach(me,
		       describe(memory, SIZE,
				PTL_MD_OP_PUT | PTL_MD_MANAGE_REMOTE | PTL_MD_EVENT_START_DISABLE, *eq),
		       PTL_RETAIN, &md));
}

/* A put of which nobody waits to learn that it has left. */
static void owe(ptl_handle_ni_t ni)
{
	ptl_process_id_t peer;
	ptl_handle_md_t md;

	OK(PtlGetRankId(ni, 1, &peer));
	memset(memory, 0x5a, SIZE);
	OK(PtlMDBind(ni, describe(memory, SIZE, 0, PTL_EQ_NONE), PTL_RETAIN, &md));
	OK(PtlPut(md, PTL_NOACK_REQ, peer, PORTAL, 0, 1, 0, 0));
}

static void take(ptl_handle_eq_t eq)
{
	ptl_event_t e = expect(eq, PTL_EVENT_PUT_END);

	CHECK(e.mlength == SIZE && memory[0] == 0x5a && memory[SIZE - 1] == 0x5a);
}

/* As GASNet's portals-conduit ends: no exit handler runs after this one. */
static void last_handler(int status, void *argument)
{
	(void)argument;
	_exit(status);
}

static void on_signal(int number)
{
	(void)number;
	_exit(0);
}

/* Timers of the program go on while it leaves, and a signal may be pending: both are for the program alone. */
static void on_alarm(int number)
{
	(void)number;
}

static void tick(void)
{
	struct itimerspec often = { { 0, 100000 }, { 0, 100000 } };
	timer_t timer;

	signal(SIGALRM, on_alarm);
	CHECK(timer_create(CLOCK_MONOTONIC, NULL, &timer) == 0);
	CHECK(timer_settime(timer, 0, &often, NULL) == 0);
}

static void hold_back_an_alarm(void)
{
	sigset_t alarms;

	sigemptyset(&alarms);
	sigaddset(&alarms, SIGALRM);
	CHECK(sigprocmask(SIG_BLOCK, &alarms, NULL) == 0);
	raise(SIGALRM);
}

static ptl_handle_eq_t idle;
static volatile int over, looked;

/* A server that nobody tells that the program ends: to it nothing may happen. */
static void *server(void *how)
{
	ptl_event_t event;
	int which;

	looked = 1;
	if (strcmp(how, "a thread waits") == 0)
		PtlEQWait(idle, &event);
	else if (strcmp(how, "a thread waits for several") == 0)
		PtlEQPoll(&idle, 1, PTL_TIME_FOREVER, &event, &which);
	else
		while (!over) {
			CHECK(PtlEQGet(idle, &event) == PTL_EQ_EMPTY);
			CHECK(PtlEQPeek(idle, &event) == PTL_EQ_EMPTY);
			CHECK(PtlEQPoll(&idle, 1, 1, &event, &which) == PTL_EQ_EMPTY);
		}
	CHECK(over); /* else a wait came back */
	return NULL;
}

static pthread_t serving;

/* Registered before the library was started, so that it runs when the job is over. */
static void tell_server(void)
{
	if (!looked)
		return;
	usleep(20000);
	over = 1;
	if (pthread_join(serving, NULL))
		_exit(7);
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "";
	int owes = strstr(how, "_exit") != NULL;
	ptl_handle_ni_t ni;
	ptl_handle_eq_t eq = PTL_EQ_NONE;

	if (strcmp(how, "never") == 0)
		return 0;
	if (strcmp(how, "a thread looks") == 0)
		CHECK(atexit(tell_server) == 0);
	ni = open_default();
	if (owes)
		expose(ni, &eq);
	cnos_barrier();
	if (cnos_get_rank() != 0) {
		if (owes && cnos_get_rank() == 1)
			take(eq);
		return 0;
	}
	if (owes)
		owe(ni);
	if (strncmp(how, "a thread", 8) == 0) {
		OK(PtlEQAlloc(ni, 8, PTL_EQ_HANDLER_NONE, &idle));
		CHECK(pthread_create(&serving, NULL, server, (void *)how) == 0);
		while (!looked)
			usleep(1000);
		usleep(20000);
		if (argc > 2)
			_exit(0);
		exit(0);
	}
	if (strcmp(how, "fini") == 0) {
		OK(PtlNIFini(ni));
		PtlFini();
	}
	if (strcmp(how, "status") == 0)
		exit(3);
	if (strcmp(how, "status 256") == 0)
		exit(256);
	if (strcmp(how, "_exit with status 256") == 0)
		_exit(256);
	if (strcmp(how, "crash") == 0)
		raise(SIGSEGV);
	if (strcmp(how, "_exit") == 0)
		_exit(0);
	if (strcmp(how, "_Exit, capital _exit") == 0)
		_Exit(0);
	if (strcmp(how, "handler and _exit") == 0) {
		CHECK(on_exit(last_handler, NULL) == 0);
		exit(0);
	}
	if (strcmp(how, "timer and _exit") == 0) {
		tick();
		_exit(0);
	}
	if (strcmp(how, "pending alarm and _exit") == 0) {
		hold_back_an_alarm();
		_exit(0);
	}
	if (strcmp(how, "signal and _exit") == 0) {
		signal(SIGUSR1, on_signal);
		raise(SIGUSR1);
	}
	if (strcmp(how, "_exit of a vfork") == 0) {
		/* Its memory is the rank's, its end is not. */
		int status;
		pid_t child = vfork();

		if (child == 0)
			_exit(0);
		CHECK(waitpid(child, &status, 0) == child && status == 0);
		OK(PtlNIEqDump(ni));
	}
	if (strcmp(how, "bad end") == 0)
		_exit(4);
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
