/* Own memory outside of the segment that goes while it is pinned, and other memory in its place: sources of puts,
 * destinations of gets, payloads of Longs. Between two nodes, with segments of any kind; "keep" leaves the memory where it
 * is, so that what is counted can be compared. */
#define _GNU_SOURCE
#include <gasnet.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "gasnet_check.h"

enum { PUT_HERE = 200, LEN = 1 << 20 };

static gasnet_node_t me, peer;
static char *theirs, *mine;
static volatile int longs;

static void arrived(gasnet_token_t token, void *at, size_t bytes)
{
	(void)token, (void)at;
	CHECK(bytes == LEN / 8);
	longs++;
}

static void barrier(void)
{
	gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
	OK(gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS));
}

static char *map(char *at)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | (at == NULL ? 0 : MAP_FIXED_NOREPLACE);
	char *p = (char *)mmap(at, LEN, PROT_READ | PROT_WRITE, flags, -1, 0);

	CHECK(p != MAP_FAILED && (at == NULL || p == at));
	return p;
}

static void all_are(const char *p, size_t len, char what)
{
	size_t i;

	for (i = 0; i < len; i++) CHECK(p[i] == what);
}

/* Every kind of use, with what is in `own` now. */
static void use(char *own, char what)
{
	int before = longs;

	memset(own, what, LEN);
	barrier();
	gasnet_put_bulk(peer, theirs, own, LEN);
	barrier();
	all_are(mine, LEN, what);
	memset(mine, what + 1, LEN);
	barrier();
	gasnet_get_bulk(own, peer, theirs, LEN);
	all_are(own, LEN, what + 1);
	barrier();
	memset(own, what + 2, LEN);
	OK(gasnet_AMRequestLong0(peer, PUT_HERE, own + 100, LEN / 8, theirs));
	GASNET_BLOCKUNTIL(longs > before);
	barrier();
	all_are(mine, LEN / 8, what + 2);
	barrier();
}

static void *elsewhere(void *own)
{
	CHECK(munmap(own, LEN) == 0);
	map((char *)own);
	return NULL;
}

/* In one of the ways the memory goes, and other memory is in its place. */
static void replace(char *own, const char *way)
{
	if (strcmp(way, "munmap") == 0) {
		CHECK(munmap(own, LEN) == 0);
		map(own);
	} else if (strcmp(way, "mmap") == 0) {
		CHECK(mmap(own, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == own);
	} else if (strcmp(way, "madvise") == 0) {
		CHECK(madvise(own, LEN, MADV_DONTNEED) == 0);
	} else if (strcmp(way, "mremap") == 0) {
		char *away = map(NULL);

		CHECK(mremap(own, LEN, LEN, MREMAP_MAYMOVE | MREMAP_FIXED, away) == away);
		map(own);
		CHECK(munmap(away, LEN) == 0);
	} else if (strcmp(way, "over") == 0) {
		char *other = map(NULL);

		CHECK(mremap(other, LEN, LEN, MREMAP_MAYMOVE | MREMAP_FIXED, own) == own);
	} else if (strcmp(way, "thread") == 0) {
		pthread_t thread;

		CHECK(pthread_create(&thread, NULL, elsewhere, own) == 0);
		CHECK(pthread_join(thread, NULL) == 0);
	} else if (strcmp(way, "unsaid") == 0) {
		/* As a library does that has its own system calls. */
		CHECK(syscall(SYS_munmap, own, LEN) == 0);
		map(own);
	} else {
		CHECK(strcmp(way, "keep") == 0);
	}
}

#define HANDLER(index, function) { index, (void (*)())function }

int main(int argc, char **argv)
{
	gasnet_handlerentry_t table[] = { HANDLER(PUT_HERE, arrived) };
	gasnet_seginfo_t segments[2];
	const char *way = argc > 1 ? argv[1] : "munmap";
	char *own;
	int round;

	OK(gasnet_init(&argc, &argv));
	OK(gasnet_attach(table, 1, LEN, 0));
	me = gasnet_mynode(), peer = 1 - me;
	OK(gasnet_getSegmentInfo(segments, 2));
	mine = (char *)segments[me].addr, theirs = (char *)segments[peer].addr;
	own = map(NULL);
	for (round = 0; round < 4; round++) {
		use(own, (char)(1 + 4 * round));
		replace(own, way);
	}
	printf("node %d: all right\n", (int)me);
	fflush(NULL);
	barrier();
	gasnet_exit(0);
	return 1;
}
