/* The clock of gasnett_ticks_now: before, in and after the job. With the conduit's own clock beside it
 * (conduit/capi/examples/gasnet_clock.rs), and an object of tools alone (gasnet_clock_tools.c). */
#include <gasnet.h>
#include <gasnet_tools.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gasnet_check.h"

extern uint64_t conduit_now(void);
extern bool conduit_is_virtual(void);
extern gasnett_tick_t ticks_of_tools(void);

enum { STEPS = 8, SIZE = 4096 };

static char data[SIZE];
static gasnett_tick_t last;

static gasnett_tick_t host(void)
{
	struct timespec at;

	clock_gettime(CLOCK_MONOTONIC, &at);
	return (gasnett_tick_t)at.tv_sec * 1000000000u + (gasnett_tick_t)at.tv_nsec;
}

/* Both clocks agree, and what is read is the conduit's: of two readings of the host's clock neither is earlier. */
static gasnett_tick_t both(void)
{
	gasnett_tick_t before = host(), ticks = gasnett_ticks_now(), now = conduit_now(), after = host();

	if (gasnett_ticks_are_virtual()) CHECK(ticks == now && ticks_of_tools() == now);
	else CHECK(before <= ticks && ticks <= after);
	CHECK(ticks >= last);
	return last = ticks;
}

static void *elsewhere(void *arg)
{
	*(gasnett_tick_t *)arg = gasnett_ticks_now();
	return NULL;
}

static void of_another_thread(void)
{
	gasnett_tick_t before = both(), there = 0, after;
	pthread_t thread;

	CHECK(pthread_create(&thread, NULL, elsewhere, &there) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	after = both();
	CHECK(before <= there && there <= after);
	if (gasnett_ticks_are_virtual()) CHECK(before == there && there == after);
}

/* A loop that waits for a time, and calls nothing, ends. */
static void loop(void)
{
	gasnett_tick_t start = gasnett_ticks_now();

	while (gasnett_ticks_now() - start < 50000) continue;
	both();
}

static void compute(void)
{
	gasnett_tick_t start = both();

	gasnett_compute_ns(0);
	CHECK(!gasnett_ticks_are_virtual() || both() == start);
	gasnett_compute_ns(123456);
	if (gasnett_ticks_are_virtual()) {
		CHECK(both() - start >= 123456);
		/* Nothing comes to the processor of one rank. */
		CHECK(gasnet_nodes() > 1 || both() - start == 123456);
	}
}

/* A forked child is no rank: it reads a clock that goes on, and computes nothing. */
static void in_a_child(void)
{
	gasnett_tick_t start = both();
	int status;
	pid_t child = fork();

	CHECK(child >= 0);
	if (child == 0) {
		gasnett_tick_t now;

		while ((now = gasnett_ticks_now()) - start < 1000) continue;
		gasnett_compute_ns(1000000000);
		_exit(!(now >= start && gasnett_ticks_now() >= now));
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(!gasnett_ticks_are_virtual() || both() == start);
}

static volatile sig_atomic_t handled;

/* One signal, after the time in which a poll or two can be made. A timer that goes on would leave the program no time beside its
 * handler, which takes longer on the model. */
static const struct itimerval soon = { { 0, 0 }, { 0, 500 } };

/* Reads more often than a loop that waits for a time. */
static void handle(int signal)
{
	gasnett_tick_t at = gasnett_ticks_now();
	int i;

	(void)signal;
	for (i = 0; i < 1500; i++) {
		gasnett_tick_t next = gasnett_ticks_now();

		if (next < at) _exit(9);
		at = next;
	}
	handled++;
	setitimer(ITIMER_REAL, &soon, NULL);
}

static void barrier(void)
{
	gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
	OK(gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS));
}

/* Handlers that interrupt calls read the clock. */
static void signals(void)
{
	struct itimerval never = { { 0, 0 }, { 0, 0 } };

	signal(SIGALRM, handle);
	setitimer(ITIMER_REAL, &soon, NULL);
	while (handled < 20) OK(gasnet_AMPoll());
	setitimer(ITIMER_REAL, &never, NULL);
	printf("node %d: all right\n", (int)gasnet_mynode());
}

/* Registered before gasnet_init: runs when the job is over. */
static void after_the_job(void)
{
	gasnett_tick_t now = gasnett_ticks_now(), later;

	while ((later = gasnett_ticks_now()) - now < 1000) continue;
	printf("after the job: %s\n", now >= last && later > now ? "monotone" : "not so");
	fflush(NULL);
}

int main(int argc, char **argv)
{
	gasnet_seginfo_t segment[16];
	gasnet_node_t next;
	gasnett_tick_t before = host(), ticks = gasnett_ticks_now(), steps[STEPS];
	int i;

	if (!(before <= ticks && ticks <= host() && !gasnett_ticks_are_virtual())) return 1;
	gasnett_compute_ns(1000);
	atexit(after_the_job);
	OK(gasnet_init(&argc, &argv));
	CHECK(gasnett_ticks_are_virtual() == conduit_is_virtual());
	both();
	OK(gasnet_attach(NULL, 0, 1 << 20, 0));
	OK(gasnet_getSegmentInfo(segment, (int)gasnet_nodes()));
	if (argc > 1) {
		signals();
		return 0;
	}
	next = (gasnet_mynode() + 1) % gasnet_nodes();
	for (i = 0; i < STEPS; i++) {
		gasnet_put(next, segment[next].addr, data, (size_t)SIZE >> i);
		if (i % 2) gasnett_compute_ns(1000 * (uint64_t)i);
		steps[i] = both();
		barrier();
	}
	of_another_thread();
	in_a_child();
	compute();
	loop();
	CHECK(gasnett_tick_granularity() > 0 && gasnett_tick_overhead() >= 0);
	if (gasnett_ticks_are_virtual()) {
		CHECK(gasnett_tick_granularityus() == 0.001 && gasnett_tick_overheadus() == 0);
		for (i = 0; i < STEPS; i++)
			printf("node %d: step %d at %llu\n", (int)gasnet_mynode(), i, (unsigned long long)steps[i]);
	}
	printf("node %d: all right at %llu\n", (int)gasnet_mynode(),
	       gasnett_ticks_are_virtual() ? (unsigned long long)both() : 0);
	barrier();
	return 0;
}
