/* A thread of node 0 ends the job while others are in calls: the status is its code, whatever they do. The argument says
 * what they do: "own" copies memory of their own node outside of the segment, "attach" attaches. */
#include <gasnet.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static volatile int begun;

static void *ends(void *code)
{
	while (!begun) continue;
	gasnet_exit(*(int *)code);
	return NULL;
}

int main(int argc, char **argv)
{
	int code = argc > 2 ? atoi(argv[2]) : 0, attaches = argc > 1 && strcmp(argv[1], "attach") == 0;
	pthread_t thread;
	volatile long from = 1, to = 0;
	long turn;

	gasnet_init(&argc, &argv);
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
