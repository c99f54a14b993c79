/* Own memory outside of the segment that goes while it is pinned, and other memory in its place: sources of puts,
 * destinations of gets, payloads of Longs. Between two nodes, with segments of any kind; "keep" leaves the memory where it
 * is, so that what is counted can be compared. "object" takes the paths of two shared objects of gasnet_object.c; "stack" is for
 * programs with threads. */
#define _GNU_SOURCE
#include <gasnet.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "gasnet_heap.h"

enum { PUT_HERE = 200, WHERE, LEN = 1 << 20 };

extern int gasneti_is_pinned(const void *addr, size_t len);

static gasnet_node_t me, peer;
static char *theirs, *mine;
static const char *objects[2];
static void *object;
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

static void where(gasnet_token_t token, gasnet_handlerarg_t high, gasnet_handlerarg_t low)
{
	(void)token;
	theirs = (char *)((uintptr_t)(uint32_t)high << 32 | (uint32_t)low);
}

/* A place of the peer's own, where there are no segments. */
static void tell(void)
{
	static char place[LEN];
	uintptr_t a = (uintptr_t)place;

	mine = place;
	barrier();
	OK(gasnet_AMRequestShort2(peer, WHERE, (gasnet_handlerarg_t)(a >> 32), (gasnet_handlerarg_t)a));
	GASNET_BLOCKUNTIL(*(char *volatile *)&theirs != NULL);
}

static char *map(char *at)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | (at == NULL ? 0 : MAP_FIXED_NOREPLACE);
	char *p = (char *)mmap(at, LEN, PROT_READ | PROT_WRITE, flags, -1, 0);

	CHECK(p != MAP_FAILED && (at == NULL || p == at));
	return p;
}

/* A new segment of System V. */
static char *attach(char *at, int flags)
{
	int id = shmget(IPC_PRIVATE, LEN, 0600 | IPC_CREAT);
	char *p = (char *)shmat(id, at, flags);

	CHECK(id >= 0 && shmctl(id, IPC_RMID, NULL) == 0 && (at == NULL ? p != (char *)-1 : p == at));
	return p;
}

/* The end of the heap, which the allocator does not use: it has enough. */
static char *end_of_heap(void)
{
	char *p = (char *)sbrk(LEN + 4096);

	CHECK(p != (char *)-1);
	return (char *)(((uintptr_t)p + 4095) & ~(uintptr_t)4095);
}

static char *open_object(int which)
{
	char *p;

	object = dlopen(objects[which], RTLD_NOW);
	p = object == NULL ? NULL : (char *)dlsym(object, "memory");
	CHECK(p != NULL && *p == 1 + which);
	return p;
}

static char *come(const char *way)
{
	if (strcmp(way, "shmdt") == 0) return attach(NULL, 0);
	if (strcmp(way, "object") == 0) return open_object(0);
	if (strcmp(way, "brk") == 0 || strcmp(way, "sbrk") == 0) {
		keep_room(64 << 20);
		return end_of_heap();
	}
	return map(NULL);
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

/* All that a thread does is on its stack, which another one has after it. */
static void *on_its_stack(void *what)
{
	char own[LEN];

	use(own, *(char *)what);
	CHECK(!gasneti_is_pinned(own, LEN));
	return NULL;
}

/* The allocator gives nothing of what was freed back to the system, whatever it is told: what was in it is there still. For fabrics
 * that pin. */
static void trim(void)
{
	char *own = (char *)malloc(LEN), *above = (char *)malloc(LEN);
	uintptr_t at = (uintptr_t)own;
	char *volatile again;

	CHECK(own != NULL && above != NULL);
	use(own, 7);
	memset(own, 7, LEN);
	barrier();
	CHECK(mallopt(M_TRIM_THRESHOLD, 0) && mallopt(M_MMAP_MAX, 1 << 16));
	free(own);
	CHECK(malloc_trim(0) == 0);
	again = (char *)malloc(LEN);
	CHECK((uintptr_t)again == at && again[LEN / 2] == 7);
	use(again, 8);
	free(again);
	free(above);
}

/* In one of the ways the memory goes, and other memory is in its place. */
static char *replace(char *own, const char *way, int round)
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
	} else if (strcmp(way, "shmdt") == 0) {
		CHECK(shmdt(own) == 0);
		attach(own, 0);
	} else if (strcmp(way, "remap") == 0) {
		attach(own, SHM_REMAP);
	} else if (strcmp(way, "sbrk") == 0) {
		CHECK(sbrk(-(LEN + 4096)) != (void *)-1);
		own = end_of_heap();
	} else if (strcmp(way, "brk") == 0) {
		char *end = (char *)sbrk(0);

		CHECK(brk(end - (LEN + 4096)) == 0);
		CHECK(brk(end) == 0);
	} else if (strcmp(way, "object") == 0) {
		CHECK(dlclose(object) == 0);
		own = open_object((round + 1) % 2);
	} else {
		CHECK(strcmp(way, "keep") == 0);
	}
	if (strcmp(way, "keep") != 0 && strcmp(way, "thread") != 0) CHECK(!gasneti_is_pinned(own, LEN));
	return own;
}

#define HANDLER(index, function) { index, (void (*)())function }

int main(int argc, char **argv)
{
	gasnet_handlerentry_t table[] = { HANDLER(PUT_HERE, arrived), HANDLER(WHERE, where) };
	gasnet_seginfo_t segments[2];
	const char *way = argc > 1 ? argv[1] : "munmap";
#ifdef GASNET_SEGMENT_EVERYTHING
	int everything = 1;
#else
	int everything = 0;
#endif
	char *own;
	int round;

	OK(gasnet_init(&argc, &argv));
	OK(gasnet_attach(table, 2, everything ? 0 : LEN, 0));
	me = gasnet_mynode(), peer = 1 - me;
	OK(gasnet_getSegmentInfo(segments, 2));
	if (everything) tell();
	else mine = (char *)segments[me].addr, theirs = (char *)segments[peer].addr;
	objects[0] = argc > 2 ? argv[2] : NULL;
	objects[1] = argc > 3 ? argv[3] : NULL;
	own = come(way);
	if (strcmp(way, "trim") == 0) trim();
	for (round = 0; round < 4 && strcmp(way, "trim") != 0; round++) {
		char what = (char)(1 + 4 * round);

		if (strcmp(way, "stack") == 0) {
			pthread_t thread;

			CHECK(pthread_create(&thread, NULL, on_its_stack, &what) == 0);
			CHECK(pthread_join(thread, NULL) == 0);
		} else {
			use(own, what);
			own = replace(own, way, round);
		}
	}
	printf("node %d: all right\n", (int)me);
	fflush(NULL);
	barrier();
	gasnet_exit(0);
	return 1;
}
