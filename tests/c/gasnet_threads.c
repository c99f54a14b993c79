/* Four threads of each of two nodes: messages, puts, implicit operations and access regions at one time; more operations
   that wait for their end than have numbers; a thread that ends within an access region. */
#include <gasnet.h>
#include <gasnet_tools.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gasnet_check.h"

enum { THREADS = 4, ROUNDS = 50, REQUEST = 200, REPLY = 201, ROOM = 64 * 1024, HELD = 17000 };

static gasnet_seginfo_t segment[2];
static gasnett_atomic_t replies[THREADS];
static gasnet_hsl_t lock = GASNET_HSL_INITIALIZER;
static int requests; /* under the lock */
static pthread_barrier_t all_hold;

static void reply(gasnet_token_t token, gasnet_handlerarg_t thread)
{
	(void)token;
	gasnett_atomic_increment(&replies[thread], GASNETT_ATOMIC_REL);
}

static void request(gasnet_token_t token, gasnet_handlerarg_t thread)
{
	gasnet_hsl_lock(&lock);
	requests++;
	gasnet_hsl_unlock(&lock);
	OK(gasnet_AMReplyShort1(token, REPLY, thread));
}

static void *work(void *arg)
{
	int thread = (int)(intptr_t)arg, round, i;
	gasnet_node_t peer = 1 - gasnet_mynode();
	char *there = (char *)segment[peer].addr + thread * ROOM;
	char out[1000], back[1000];
	gasnet_handle_t region, handle;

	for (round = 0; round < ROUNDS; round++) {
		for (i = 0; i < 1000; i++) out[i] = (char)(i + round + 31 * thread);
		OK(gasnet_AMRequestShort1(peer, REQUEST, thread));
		gasnet_put_nbi_bulk(peer, there, out, 500);
		gasnet_begin_nbi_accessregion();
		gasnet_put_nbi_bulk(peer, there + 500, out + 500, 500);
		gasnett_sched_yield(); /* others begin regions of their own */
		region = gasnet_end_nbi_accessregion();
		gasnet_wait_syncnbi_all();
		gasnet_wait_syncnb(region);
		handle = gasnet_get_nb_bulk(back, peer, there, 1000);
		gasnet_wait_syncnb_all(&handle, 1);
		CHECK(memcmp(out, back, 1000) == 0);
		GASNET_BLOCKUNTIL((int)gasnett_atomic_read(&replies[thread], GASNETT_ATOMIC_ACQ) == round + 1);
		gasnet_hsl_lock(&lock);
		CHECK(requests <= THREADS * ROUNDS);
		gasnet_hsl_unlock(&lock);
	}
	return NULL;
}

/* As many gets as a message can tell apart are under way in all threads together, and some more. */
static void *hold(void *arg)
{
	gasnet_node_t peer = 1 - gasnet_mynode();
	int *there = (int *)((char *)segment[peer].addr + (intptr_t)arg * ROOM), i, right = 0;
	int *back = malloc(HELD * sizeof *back);
	gasnet_handle_t *handle = malloc(HELD * sizeof *handle);

	CHECK(back && handle);
	for (i = 0; i < 100; i++) gasnet_put_val(peer, there + i, (gasnet_register_value_t)(i + 7), sizeof *there);
	for (i = 0; i < HELD; i++) handle[i] = gasnet_get_nb(back + i, peer, there + i % 100, sizeof *back);
	pthread_barrier_wait(&all_hold);
	gasnet_begin_nbi_accessregion();
	gasnet_put_nbi(peer, there + 100, back, sizeof *back);
	gasnet_wait_syncnb(gasnet_end_nbi_accessregion());
	pthread_barrier_wait(&all_hold);
	gasnet_wait_syncnb_all(handle, HELD);
	for (i = 0; i < HELD; i++) right += back[i] == i % 100 + 7;
	CHECK(right == HELD);
	free(handle);
	free(back);
	return NULL;
}

static void *leave_a_region(void *arg)
{
	gasnet_begin_nbi_accessregion();
	return arg;
}

static void *begin_a_region(void *arg)
{
	gasnet_begin_nbi_accessregion();
	gasnet_put_nbi(1 - gasnet_mynode(), segment[1 - gasnet_mynode()].addr, "x", 1);
	gasnet_wait_syncnb(gasnet_end_nbi_accessregion());
	return arg;
}

int main(int argc, char **argv)
{
	gasnet_handlerentry_t table[] = { { REQUEST, (void (*)())request }, { REPLY, (void (*)())reply } };
	pthread_t thread[THREADS];
	int i;

	OK(gasnet_init(&argc, &argv));
	CHECK(gasnet_nodes() == 2);
	OK(gasnet_attach(table, 2, THREADS * ROOM, 0));
	OK(gasnet_getSegmentInfo(segment, 2));
	OK(gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS));
	for (i = 0; i < THREADS; i++) CHECK(pthread_create(&thread[i], NULL, work, (void *)(intptr_t)i) == 0);
	for (i = 0; i < THREADS; i++) CHECK(pthread_join(thread[i], NULL) == 0);
	OK(gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS));
	CHECK(requests == THREADS * ROUNDS);
	CHECK(pthread_barrier_init(&all_hold, NULL, THREADS) == 0);
	for (i = 0; i < THREADS && gasnet_mynode() == 0; i++) CHECK(pthread_create(&thread[i], NULL, hold, (void *)(intptr_t)i) == 0);
	for (i = 0; i < THREADS && gasnet_mynode() == 0; i++) CHECK(pthread_join(thread[i], NULL) == 0);
	OK(gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS));
	CHECK(pthread_create(&thread[0], NULL, leave_a_region, NULL) == 0 && pthread_join(thread[0], NULL) == 0);
	/* One after the other, threads have the same memory. */
	CHECK(pthread_create(&thread[0], NULL, begin_a_region, NULL) == 0 && pthread_join(thread[0], NULL) == 0);
	printf("node %d: all right\n", (int)gasnet_mynode());
	fflush(NULL);
	/* The first to exit ends the others, wherever they are. */
	OK(gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS));
	gasnet_exit(0);
	return 1;
}
