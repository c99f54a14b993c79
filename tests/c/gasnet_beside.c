/* Memory that one thread takes away and maps anew, while another thread puts from and gets to what lies beside it, in the same
 * unit of pinning (GASNET_PAR): what is transferred is what is there. Two nodes.
 *
 *   gasnet_beside ROUNDS */
#define _GNU_SOURCE
#include <gasnet.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "gasnet_check.h"

enum { LEN = 32 * 1024, UNIT = 2 << 20 };

static gasnet_node_t peer;
static char *stays, *goes, *theirs;
static volatile int done;

static int all_are(const char *p, char what)
{
	return *p == what && memcmp(p, p + 1, LEN - 1) == 0;
}

/* There from `own` and back to it, by way of its own place in the segment of the peer. */
static void there_and_back(char *own, char *there, char what)
{
	memset(own, what, LEN);
	gasnet_put_bulk(peer, there, own, LEN);
	memset(own, ~what, LEN);
	gasnet_get_bulk(own, peer, there, LEN);
	CHECK(all_are(own, what));
}

static void *beside(void *unused)
{
	char what;

	(void)unused;
	for (what = 0; !done; what++) there_and_back(stays, theirs + LEN, what);
	return NULL;
}

int main(int argc, char **argv)
{
	gasnet_seginfo_t segments[2];
	pthread_t thread;
	char *area;
	int round, rounds;

	OK(gasnet_init(&argc, &argv));
	rounds = argc > 1 ? atoi(argv[1]) : 100;
	OK(gasnet_attach(NULL, 0, 2 * UNIT, 0));
	OK(gasnet_getSegmentInfo(segments, 2));
	peer = 1 - gasnet_mynode();
	theirs = (char *)segments[peer].addr;
	area = (char *)mmap(NULL, 2 * UNIT, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(area != MAP_FAILED);
	stays = (char *)(((uintptr_t)area + UNIT - 1) / UNIT * UNIT);
	goes = stays + LEN;
	CHECK(pthread_create(&thread, NULL, beside, NULL) == 0);
	for (round = 0; round < rounds; round++) {
		there_and_back(goes, theirs, (char)round);
		CHECK(munmap(goes, LEN) == 0);
		CHECK(mmap(goes, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == goes);
	}
	done = 1;
	CHECK(pthread_join(thread, NULL) == 0);
	gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
	OK(gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS));
	printf("node %d: all right\n", (int)gasnet_mynode());
	fflush(stdout);
	gasnet_exit(0);
}
