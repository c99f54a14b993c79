/* Two threads of node 0, each with a node of its own that it sends every kind of request to. With "inside" one more
   thread sits in a handler meanwhile, and so in the library, until both have sent all: for nodes that share memory. */
#include <gasnet.h>
#include <gasnet_tools.h>

#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gasnet_check.h"

/* So few that a node which takes none has room for all. */
enum { ROUNDS = 25, KINDS = 5, SIZE = 200, SHORT = 200, PAYLOAD = 201, SIT = 202, SEGMENT = 65536 };

static gasnet_seginfo_t segment[3];
static sem_t inside, sent;
static volatile int taken;
static char seen[ROUNDS][KINDS];

static char byte(int round, int kind, int i)
{
	return (char)(7 * round + 31 * kind + i);
}

/* Each comes once; GASNet has no order of messages. */
static void take(int round, int kind)
{
	CHECK(round >= 0 && round < ROUNDS && kind >= 0 && kind < KINDS && !seen[round][kind]);
	seen[round][kind] = 1;
	taken++;
}

static void take_short(gasnet_token_t token, gasnet_handlerarg_t round)
{
	(void)token;
	take(round, 0);
}

static void take_payload(gasnet_token_t token, void *buf, size_t n, gasnet_handlerarg_t round, gasnet_handlerarg_t kind)
{
	int i;

	(void)token;
	CHECK(n == SIZE);
	for (i = 0; i < SIZE; i++) CHECK(((char *)buf)[i] == byte(round, kind, i));
	take(round, kind);
}

static void sit(gasnet_token_t token)
{
	(void)token;
	sem_post(&inside);
	sem_wait(&sent);
	sem_wait(&sent);
}

static void *sitter(void *arg)
{
	(void)arg;
	OK(gasnet_AMRequestShort0(0, SIT));
	return NULL;
}

static void *sender(void *arg)
{
	gasnet_node_t peer = (gasnet_node_t)(intptr_t)arg;
	char *there = (char *)segment[peer].addr, *own = (char *)segment[0].addr + peer * (SEGMENT / 4);
	char outside[SIZE];
	int round, i;

	for (round = 0; round < ROUNDS; round++) {
		/* Of the first kind is the Short, which has no payload. A place of its own for each that stays. */
		char *to = there + round * 3 * SIZE, *from = own + round * SIZE * 2;

		OK(gasnet_AMRequestShort1(peer, SHORT, round));
		for (i = 0; i < SIZE; i++) outside[i] = byte(round, 1, i);
		OK(gasnet_AMRequestMedium2(peer, PAYLOAD, outside, SIZE, round, 1));
		for (i = 0; i < SIZE; i++) outside[i] = byte(round, 2, i);
		OK(gasnet_AMRequestLong2(peer, PAYLOAD, outside, SIZE, to, round, 2));
		for (i = 0; i < SIZE; i++) from[i] = byte(round, 3, i);
		OK(gasnet_AMRequestLong2(peer, PAYLOAD, from, SIZE, to + SIZE, round, 3));
		for (i = 0; i < SIZE; i++) from[SIZE + i] = byte(round, 4, i);
		OK(gasnet_AMRequestLongAsync2(peer, PAYLOAD, from + SIZE, SIZE, to + 2 * SIZE, round, 4));
	}
	sem_post(&sent);
	return NULL;
}

int main(int argc, char **argv)
{
	gasnet_handlerentry_t table[] = { { SHORT, (void (*)())take_short },
					  { PAYLOAD, (void (*)())take_payload },
					  { SIT, (void (*)())sit } };
	pthread_t thread[3];
	int i, sits;

	OK(gasnet_init(&argc, &argv));
	CHECK(gasnet_nodes() == 3);
	sits = argc > 1 && strcmp(argv[1], "inside") == 0;
	OK(gasnet_attach(table, 3, SEGMENT, 0));
	OK(gasnet_getSegmentInfo(segment, 3));
	OK(gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS));
	if (gasnet_mynode() == 0) {
		CHECK(sem_init(&inside, 0, 0) == 0 && sem_init(&sent, 0, 0) == 0);
		if (sits) {
			CHECK(pthread_create(&thread[0], NULL, sitter, NULL) == 0);
			sem_wait(&inside);
		}
		for (i = 1; i < 3; i++) CHECK(pthread_create(&thread[i], NULL, sender, (void *)(intptr_t)i) == 0);
		for (i = !sits; i < 3; i++) CHECK(pthread_join(thread[i], NULL) == 0);
	} else {
		GASNET_BLOCKUNTIL(taken == ROUNDS * KINDS);
	}
	OK(gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS));
	CHECK(taken == (gasnet_mynode() == 0 ? 0 : ROUNDS * KINDS));
	printf("node %d: all right\n", (int)gasnet_mynode());
	fflush(NULL);
	OK(gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS));
	gasnet_exit(0);
	return 1;
}
