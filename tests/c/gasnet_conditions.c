/* Threads that wait for a condition with the lock of an HSL, for what a handler does and for each other, and with a mutex. */
#include <gasnet.h>
#include <gasnet_tools.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "gasnet_check.h"

enum { WORKERS = 3, ROUNDS = 300, WORK = 200, DONE = 201 };

static gasnet_hsl_t lock = GASNET_HSL_INITIALIZER;
static gasnett_cond_t came = GASNETT_COND_INITIALIZER;
static int waiting, begun, done, woken; /* under the lock */

static gasnett_mutex_t turn_mutex = GASNETT_MUTEX_INITIALIZER;
static gasnett_cond_t turn_comes;
static int turn, finished; /* under the mutex */

/* A piece of work from another node, for whichever worker wakes. */
static void work_request(gasnet_token_t token)
{
	(void)token;
	gasnet_hsl_lock(&lock);
	waiting++;
	gasnett_cond_signal(&came);
	gasnet_hsl_unlock(&lock);
}

static void done_request(gasnet_token_t token)
{
	(void)token;
	gasnet_hsl_lock(&lock);
	done++;
	gasnet_hsl_unlock(&lock);
}

static void *worker(void *arg)
{
	const gasnet_node_t peer = (gasnet_node_t)(1 - gasnet_mynode());
	(void)arg;
	for (;;) {
		gasnet_hsl_lock(&lock);
		while (waiting == 0 && begun < ROUNDS) {
			gasnett_cond_wait(&came, &lock.lock);
			woken++;
		}
		if (waiting == 0) break;
		waiting--;
		/* Of the last piece all are told: there is none after it. */
		if (++begun == ROUNDS) gasnett_cond_broadcast(&came);
		gasnet_hsl_unlock(&lock);
		OK(gasnet_AMRequestShort0(peer, DONE));
	}
	gasnet_hsl_unlock(&lock);
	return NULL;
}

/* The threads have their turns one after the other. */
static void *taker(void *arg)
{
	const int own = (int)(intptr_t)arg;
	int round;
	for (round = 0; round < ROUNDS; round++) {
		gasnett_mutex_lock(&turn_mutex);
		while (turn % WORKERS != own) gasnett_cond_wait(&turn_comes, &turn_mutex);
		turn++;
		gasnett_cond_broadcast(&turn_comes);
		gasnett_mutex_unlock(&turn_mutex);
	}
	gasnett_mutex_lock(&turn_mutex);
	finished++;
	gasnett_mutex_unlock(&turn_mutex);
	return NULL;
}

static int sum(void)
{
	int n;
	gasnet_hsl_lock(&lock);
	n = done;
	gasnet_hsl_unlock(&lock);
	return n;
}

int main(int argc, char **argv)
{
	gasnet_handlerentry_t table[] = {
		{ WORK, (void (*)())work_request }, { DONE, (void (*)())done_request }
	};
	pthread_t workers[WORKERS], takers[WORKERS];
	int i, all = 0;

	OK(gasnet_init(&argc, &argv));
	CHECK(gasnet_nodes() == 2);
	OK(gasnet_attach(table, 2, GASNET_PAGESIZE, 0));
	gasnett_cond_init(&turn_comes);
	OK(gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS));
	for (i = 0; i < WORKERS; i++) {
		CHECK(pthread_create(&workers[i], NULL, worker, NULL) == 0);
		CHECK(pthread_create(&takers[i], NULL, taker, (void *)(intptr_t)i) == 0);
	}
	/* This thread alone polls. */
	for (i = 0; i < ROUNDS; i++) {
		OK(gasnet_AMRequestShort0((gasnet_node_t)(1 - gasnet_mynode()), WORK));
		if (i % 16 == 0) OK(gasnet_AMPoll());
	}
	GASNET_BLOCKUNTIL(sum() == ROUNDS);
	OK(gasnet_barrier(1, 0));
	while (all < WORKERS) {
		OK(gasnet_AMPoll());
		gasnett_mutex_lock(&turn_mutex);
		all = finished;
		gasnett_mutex_unlock(&turn_mutex);
	}
	for (i = 0; i < WORKERS; i++) {
		CHECK(pthread_join(workers[i], NULL) == 0);
		CHECK(pthread_join(takers[i], NULL) == 0);
	}
	gasnet_hsl_lock(&lock);
	/* A wait sleeps until a signal, but now and then. */
	CHECK(woken <= 2 * (ROUNDS + WORKERS));
	CHECK(waiting == 0 && begun == ROUNDS && done == ROUNDS && turn == WORKERS * ROUNDS);
	gasnet_hsl_unlock(&lock);
	gasnett_cond_destroy(&turn_comes);
#ifndef GASNET_DEBUG
	/* As mutexes of the system: in any order, and once more. */
	{
		gasnet_hsl_t second = GASNET_HSL_INITIALIZER;
		gasnet_hsl_lock(&lock);
		gasnet_hsl_lock(&second);
		gasnet_hsl_unlock(&lock);
		gasnet_hsl_unlock(&second);
		gasnet_hsl_unlock(&second);
		CHECK(gasnet_hsl_trylock(&lock) == GASNET_OK && gasnet_hsl_trylock(&second) == GASNET_OK);
		gasnet_hsl_unlock(&second);
		gasnet_hsl_unlock(&lock);
		OK(gasnet_AMPoll());
	}
#endif
	printf("node %d: all right\n", (int)gasnet_mynode());
	fflush(NULL);
	OK(gasnet_barrier(2, 0));
	gasnet_exit(0);
	return 1;
}
