/* The first thread of each node ends while another goes on: that one's memory is reached as before, in and out of its
 * segment. */
#include <gasnet.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "gasnet_check.h"

enum { TOLD = 200, ARRIVED, SIZE = 1 << 20 };

static char memory[SIZE], source[SIZE], back[SIZE];
static char *there;
static volatile int told, arrived;
static pthread_t first;

static void tell(gasnet_token_t token, gasnet_handlerarg_t high, gasnet_handlerarg_t low)
{
	(void)token;
	there = (char *)((uintptr_t)(uint32_t)high << 32 | (uint32_t)low);
	told++;
}

static void arrive(gasnet_token_t token, void *payload, size_t size)
{
	(void)token;
	if (size > 0 && ((char *)payload)[size - 1] == source[size - 1]) arrived++;
}

static void barrier(void)
{
	gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
	OK(gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS));
}

static void *go_on(void *arg)
{
	gasnet_node_t next = (gasnet_mynode() + 1) % gasnet_nodes();
	gasnet_seginfo_t segment[16];
	uintptr_t mine = (uintptr_t)memory;
	size_t most = gasnet_AMMaxLongRequest() < SIZE ? gasnet_AMMaxLongRequest() : SIZE;

	CHECK(pthread_join(first, NULL) == 0);
	CHECK(gasnet_nodes() <= 16);
	OK(gasnet_getSegmentInfo(segment, (int)gasnet_nodes()));
#ifndef GASNET_SEGMENT_EVERYTHING
	mine = (uintptr_t)segment[gasnet_mynode()].addr;
#endif
	barrier();
	OK(gasnet_AMRequestShort2((gasnet_mynode() + gasnet_nodes() - 1) % gasnet_nodes(), TOLD,
				  (gasnet_handlerarg_t)(mine >> 32), (gasnet_handlerarg_t)mine));
	GASNET_BLOCKUNTIL(told);
	memset(source, 7, SIZE);
	barrier();
	gasnet_put_bulk(next, there, source, SIZE);
	gasnet_get_bulk(back, next, there, SIZE);
	CHECK(memcmp(back, source, SIZE) == 0);
	OK(gasnet_AMRequestLong0(next, ARRIVED, source, most, there));
	GASNET_BLOCKUNTIL(arrived);
	printf("node %d: all right\n", (int)gasnet_mynode());
	fflush(NULL);
	barrier();
	gasnet_exit(0);
	return arg;
}

int main(int argc, char **argv)
{
	gasnet_handlerentry_t table[] = { { TOLD, (void (*)())tell }, { ARRIVED, (void (*)())arrive } };
	pthread_t thread;

	OK(gasnet_init(&argc, &argv));
	OK(gasnet_attach(table, 2, SIZE, 0));
	first = pthread_self();
	CHECK(pthread_create(&thread, NULL, go_on, NULL) == 0);
	pthread_exit(NULL);
}
