/* The end of the heap moves while a call that takes it back waits for a peer: the call fails, and what the allocator put there stays.
 * "sbrk" or "brk"; two nodes, for GASNET_SEGMENT_EVERYTHING. */
#define _GNU_SOURCE
#include <gasnet.h>

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/shm.h>
#include <unistd.h>

#include "gasnet_heap.h"

enum { WHERE = 200, GROW, LEN = 1 << 20, BLOCK = 8 << 20 };

static char *volatile theirs;
static char *volatile block;
static volatile int segment = -1;

static void where(gasnet_token_t token, gasnet_handlerarg_t high, gasnet_handlerarg_t low, gasnet_handlerarg_t shared)
{
	(void)token;
	segment = shared;
	theirs = (char *)((uintptr_t)(uint32_t)high << 32 | (uint32_t)low);
}

/* The allocator may use its heap in a handler; more than is free in it lies above the program's piece. */
static void grow(gasnet_token_t token)
{
	(void)token;
	block = (char *)malloc(BLOCK);
}

static void barrier(void)
{
	gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
	OK(gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS));
}

/* Takes its piece back, which the peer holds, and says so in `waits` before. */
static void owner(int lowers)
{
	char *start, *end;
	int id = shmget(IPC_PRIVATE, 4096, 0600 | IPC_CREAT), i, failed;
	volatile int *waits = (volatile int *)shmat(id, NULL, 0);
	uintptr_t a;

	keep_room(LEN);
	start = (char *)sbrk(LEN);
	end = (char *)sbrk(0);
	a = (uintptr_t)start;
	CHECK(start != (char *)-1 && waits != (volatile int *)-1);
	OK(gasnet_AMRequestShort3(1, WHERE, (gasnet_handlerarg_t)(a >> 32), (gasnet_handlerarg_t)a, id));
	barrier();
	CHECK(shmctl(id, IPC_RMID, NULL) == 0);
	CHECK(sbrk(0) == end);
	*waits = 1;
	failed = lowers ? brk(start) == -1 : sbrk(-LEN) == (void *)-1;
	CHECK(failed && errno == EBUSY && block != NULL);
	CHECK((char *)sbrk(0) >= block + BLOCK && block >= end);
	memset(block, 5, BLOCK);
	/* The piece is still there, for the peer too. */
	for (i = 0; i < LEN; i++) CHECK(start[i] == 3);
	barrier();
	barrier();
	for (i = 0; i < LEN; i++) CHECK(start[i] == 4);
	for (i = 0; i < BLOCK; i++) CHECK(block[i] == 5);
	/* Nothing lies above the next one, so it goes. */
	end = (char *)sbrk(LEN);
	CHECK(end != (char *)-1 && (lowers ? brk(end) == 0 : sbrk(-LEN) == end + LEN) && sbrk(0) == end);
}

/* Has the owner's allocator move the end before it gives anything back: of two messages the first is handled first. */
static void holder(void)
{
	char *data = (char *)malloc(LEN);
	volatile int *waits;

	GASNET_BLOCKUNTIL(theirs != NULL);
	waits = (volatile int *)shmat(segment, NULL, 0);
	CHECK(data != NULL && waits != (volatile int *)-1);
	memset(data, 3, LEN);
	gasnet_put_bulk(0, theirs, data, LEN);
	barrier();
	while (!*waits) OK(gasnet_AMPoll());
	OK(gasnet_AMRequestShort0(0, GROW));
	barrier();
	memset(data, 4, LEN);
	gasnet_put_bulk(0, theirs, data, LEN);
	barrier();
}

#define HANDLER(index, function) { index, (void (*)())function }

int main(int argc, char **argv)
{
	gasnet_handlerentry_t table[] = { HANDLER(WHERE, where), HANDLER(GROW, grow) };
	int lowers = argc > 1 && strcmp(argv[1], "brk") == 0;

	OK(gasnet_init(&argc, &argv));
	OK(gasnet_attach(table, 2, 0, 0));
	CHECK(gasnet_nodes() == 2);
	if (gasnet_mynode() == 0) owner(lowers);
	else holder();
	printf("node %d: all right\n", (int)gasnet_mynode());
	fflush(NULL);
	barrier();
	gasnet_exit(0);
	return 1;
}
