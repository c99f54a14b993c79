/* Memory that goes while it is pinned: what comes in its place is reached, and nothing where nothing comes. Between two
 * nodes, for GASNET_SEGMENT_EVERYTHING; one turn with "gone" ends the job in the middle, and "one" and a way in which memory
 * goes does that and nothing else ("keep": not even that), so that what is counted can be compared. "object" takes the paths of two
 * shared objects of gasnet_object.c. */
#define _GNU_SOURCE
#include <gasnet.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "gasnet_heap.h"

extern int gasneti_is_pinned(const void *addr, size_t len);

enum { WHERE = 200, DROP, DROPPED, LEN = 1 << 20 };

static gasnet_node_t me, peer;
static char *volatile theirs;
static char *mine, *more;
static volatile int in_handler, tried;

static void where(gasnet_token_t token, gasnet_handlerarg_t high, gasnet_handlerarg_t low)
{
	(void)token;
	theirs = (char *)((uintptr_t)(uint32_t)high << 32 | (uint32_t)low);
}

/* A handler may not wait. */
static void drop(gasnet_token_t token)
{
	in_handler = munmap(mine, LEN);
	OK(gasnet_AMReplyShort0(token, DROPPED));
}

static void dropped(gasnet_token_t token)
{
	(void)token;
	tried++;
}

static void barrier(void)
{
	gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
	OK(gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS));
}

static char *map(char *at, size_t len)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | (at == NULL ? 0 : MAP_FIXED_NOREPLACE);
	char *p = (char *)mmap(at, len, PROT_READ | PROT_WRITE, flags, -1, 0);

	CHECK(p != MAP_FAILED && (at == NULL || p == at));
	return p;
}

static void tell(char *at)
{
	uintptr_t a = (uintptr_t)at;

	barrier();
	theirs = NULL;
	barrier();
	OK(gasnet_AMRequestShort2(peer, WHERE, (gasnet_handlerarg_t)(a >> 32), (gasnet_handlerarg_t)a));
	GASNET_BLOCKUNTIL(theirs != NULL);
}

/* Both write all of the other's memory and read it back, with a small and with a large source. */
static void exchange(int what)
{
	char *source = (char *)malloc(LEN), *back = (char *)malloc(LEN);
	int i;

	memset(source, what + (int)me, LEN);
	barrier();
	gasnet_put_bulk(peer, theirs, source, LEN);
	gasnet_put_bulk(peer, theirs + 5, source, 100);
	gasnet_get_bulk(back, peer, theirs, LEN);
	CHECK(memcmp(source, back, LEN) == 0);
	barrier();
	for (i = 0; i < LEN; i++) CHECK(mine[i] == (char)(what + (int)peer));
	free(source);
	free(back);
}

/* The own side: a source that is replaced by another in its place. */
static void sources(void)
{
	char *source = map(NULL, LEN);
	int round, i;

	for (round = 0; round < 3; round++) {
		memset(source, 60 + round, LEN);
		barrier();
		gasnet_put_bulk(peer, theirs, source, LEN);
		barrier();
		for (i = 0; i < LEN; i++) CHECK(mine[i] == 60 + round);
		CHECK(munmap(source, LEN) == 0);
		map(source, LEN);
	}
	CHECK(munmap(source, LEN) == 0);
}

static char *attach(char *at, int flags)
{
	int id = shmget(IPC_PRIVATE, LEN, 0600 | IPC_CREAT);
	char *p = (char *)shmat(id, at, flags);

	CHECK(id >= 0 && shmctl(id, IPC_RMID, NULL) == 0 && (at == NULL ? p != (char *)-1 : p == at));
	return p;
}

static void *object;

static char *open_object(const char *path)
{
	char *p;

	object = dlopen(path, RTLD_NOW);
	p = object == NULL ? NULL : (char *)dlsym(object, "memory");
	CHECK(p != NULL);
	return p;
}

/* The end of the heap, which the allocator does not use: it has enough. */
static char *end_of_heap(void)
{
	char *p = (char *)sbrk(LEN + 4096);

	CHECK(p != (char *)-1);
	return (char *)(((uintptr_t)p + 4095) & ~(uintptr_t)4095);
}

static void *elsewhere(void *unused)
{
	CHECK(munmap(mine, LEN) == 0);
	map(mine, LEN);
	return unused;
}

static void one(const char *way, char **objects)
{
	char *other;

	if (strcmp(way, "shmdt") == 0) {
		mine = attach(NULL, 0);
	} else if (strcmp(way, "object") == 0) {
		mine = open_object(objects[0]);
	} else if (strcmp(way, "sbrk") == 0) {
		keep_room(64 << 20);
		mine = end_of_heap();
	} else {
		mine = map(NULL, LEN);
	}
	tell(mine);
	exchange(1);
	barrier();
	if (strcmp(way, "munmap") == 0) {
		CHECK(munmap(mine, LEN) == 0);
		map(mine, LEN);
	} else if (strcmp(way, "mmap") == 0) {
		CHECK(mmap(mine, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == mine);
	} else if (strcmp(way, "madvise") == 0) {
		CHECK(madvise(mine, LEN, MADV_DONTNEED) == 0);
	} else if (strcmp(way, "mremap") == 0) {
		other = map(NULL, LEN);
		CHECK(mremap(mine, LEN, LEN, MREMAP_MAYMOVE | MREMAP_FIXED, other) == other);
		map(mine, LEN);
	} else if (strcmp(way, "over") == 0) {
		other = map(NULL, LEN);
		CHECK(mremap(other, LEN, LEN, MREMAP_MAYMOVE | MREMAP_FIXED, mine) == mine);
	} else if (strcmp(way, "unsaid") == 0) {
		/* As a library does that has its own system calls. */
		CHECK(syscall(SYS_munmap, mine, LEN) == 0);
		map(mine, LEN);
	} else if (strcmp(way, "shmdt") == 0) {
		CHECK(shmdt(mine) == 0);
		attach(mine, 0);
	} else if (strcmp(way, "remap") == 0) {
		attach(mine, SHM_REMAP);
	} else if (strcmp(way, "sbrk") == 0) {
		CHECK(sbrk(-(LEN + 4096)) != (void *)-1);
		CHECK(end_of_heap() == mine);
	} else if (strcmp(way, "object") == 0) {
		CHECK(dlclose(object) == 0);
		mine = open_object(objects[1]);
		tell(mine);
	} else if (strcmp(way, "thread") == 0) {
		pthread_t thread;

		CHECK(pthread_create(&thread, NULL, elsewhere, NULL) == 0);
		CHECK(pthread_join(thread, NULL) == 0);
	} else {
		CHECK(strcmp(way, "keep") == 0);
	}
	if (strcmp(way, "keep") != 0) CHECK(!gasneti_is_pinned(mine, LEN));
	exchange(2);
}

#define HANDLER(index, function) { index, (void (*)())function }

int main(int argc, char **argv)
{
	gasnet_handlerentry_t table[] = { HANDLER(WHERE, where), HANDLER(DROP, drop), HANDLER(DROPPED, dropped) };
	int round, gone = argc > 1 && strcmp(argv[1], "gone") == 0;

	OK(gasnet_init(&argc, &argv));
	OK(gasnet_attach(table, 3, 0, 0));
	me = gasnet_mynode(), peer = 1 - me;
	if (argc > 2 && strcmp(argv[1], "one") == 0) {
		one(argv[2], argv + 3);
		printf("node %d: all right\n", (int)me);
		fflush(NULL);
		barrier();
		gasnet_exit(0);
	}
	mine = map(NULL, LEN);
	for (round = 0; round < 3; round++) {
		tell(mine);
		exchange(1 + 10 * round);
		/* Other memory in the same place. */
		barrier();
		CHECK(munmap(mine, LEN) == 0);
		if (gone && round == 1) {
			barrier();
			gasnet_put_val(peer, theirs + 4096, 1, 1);
			CHECK(0);
		}
		map(mine, LEN);
		CHECK(mine[0] == 0 && mine[LEN - 1] == 0);
	}
	exchange(40);
	/* Its contents go, and it stays. */
	CHECK(madvise(mine, LEN, MADV_DONTNEED) == 0 && mine[7] == 0);
	exchange(41);
	/* A part of it is replaced. */
	CHECK(mmap(mine + LEN / 2, LEN / 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0)
	      == mine + LEN / 2);
	exchange(42);
	/* It moves, with what is in it. */
	more = map(NULL, 4 * LEN);
	CHECK(munmap(more, 4 * LEN) == 0);
	CHECK(mremap(mine, LEN, 2 * LEN, MREMAP_MAYMOVE | MREMAP_FIXED, more) == more);
	CHECK(more[LEN - 1] == (char)(42 + (int)peer));
	mine = more;
	tell(mine);
	exchange(43);
	sources();
	/* In a handler memory that peers hold stays where it is. */
	barrier();
	OK(gasnet_AMRequestShort0(peer, DROP));
	GASNET_BLOCKUNTIL(tried == 1);
	barrier();
	CHECK(in_handler == 0);
	exchange(44);
	printf("node %d: all right\n", (int)me);
	fflush(NULL);
	barrier();
	gasnet_exit(0);
	return 1;
}
