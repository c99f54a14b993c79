/* A thread of node 0 ends the job while others are in calls: the status is its code, whatever they do. The argument says
 * what they do: "own" copies memory of their own node outside of the segment, "attach" attaches. With "lock" and "trylock" a handler
 * waits for a lock that the thread holds, and others for their turn. */
#include <gasnet.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static volatile int begun, held;
static gasnet_hsl_t lock = GASNET_HSL_INITIALIZER;

static void *ends(void *code)
{
	while (!begun) continue;
	gasnet_exit(*(int *)code);
	return NULL;
}

static void *ends_with_a_lock(void *code)
{
	gasnet_hsl_lock(&lock);
	held = 1;
	return ends(code);
}

static void locks(gasnet_token_t token, gasnet_handlerarg_t tries)
{
	(void)token;
	begun = 1;
	if (tries)
		while (gasnet_hsl_trylock(&lock) != GASNET_OK) continue;
	else
		gasnet_hsl_lock(&lock);
	abort();
}

static void *polls(void *unused)
{
	for (;;) gasnet_AMPoll();
	return unused;
}

/* Node 1 sends what waits in node 0; both end when the thread does. */
static void waits(int tries, int *code)
{
	gasnet_handlerentry_t table[] = { { 200, (void (*)())locks } };
	pthread_t thread;
	int i;

	if (gasnet_attach(table, 1, 65536, 0) != GASNET_OK) abort();
	if (gasnet_mynode() == 0) {
		pthread_create(&thread, NULL, ends_with_a_lock, code);
		while (!held) continue;
		for (i = 0; i < 3; i++) pthread_create(&thread, NULL, polls, NULL);
	}
	gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
	gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS);
	if (gasnet_mynode() == 1 && gasnet_AMRequestShort1(0, 200, tries) != GASNET_OK) abort();
	GASNET_BLOCKUNTIL(0);
}

int main(int argc, char **argv)
{
	int code = argc > 2 ? atoi(argv[2]) : 0, attaches = argc > 1 && strcmp(argv[1], "attach") == 0;
	pthread_t thread;
	volatile long from = 1, to = 0;
	long turn;

	gasnet_init(&argc, &argv);
	if (argc > 1 && strstr(argv[1], "lock")) waits(strcmp(argv[1], "trylock") == 0, &code);
	if (!attaches) {
		gasnet_attach(NULL, 0, 65536, 0);
		gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
		gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS);
	}
	if (gasnet_mynode() == 0) pthread_create(&thread, NULL, ends, &code);
	if (attaches) {
		/* Where the end comes first the call does not return. */
		begun = 1;
		if (gasnet_attach(NULL, 0, 65536, 0) != GASNET_OK) abort();
	}
	for (turn = 0;; turn++) {
		gasnet_put(gasnet_mynode(), (void *)&to, (void *)&from, sizeof from);
		begun = 1;
	}
}
