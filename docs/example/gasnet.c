/* Each node puts a number into the segment of the next node, and asks it a question by an active message. */
#include <gasnet.h>

#include <stdio.h>
#include <stdlib.h>

enum { QUESTION = 200, ANSWER = 201 };

static volatile int answer = -1;

static void must(const char *call, int code)
{
	if (code == GASNET_OK)
		return;
	fprintf(stderr, "%s: %s\n", call, gasnet_ErrorDesc(code));
	gasnet_exit(1);
}

/* Runs at the node that is asked: what comes is a number, what goes back is that and ten times the own one. */
static void question(gasnet_token_t token, gasnet_handlerarg_t number)
{
	must("reply", gasnet_AMReplyShort1(token, ANSWER, number + 10 * (int)gasnet_mynode()));
}

/* Runs at the node that asked. */
static void answered(gasnet_token_t token, gasnet_handlerarg_t number)
{
	(void)token;
	answer = number;
}

static void barrier(void)
{
	gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
	must("barrier", gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS));
}

int main(int argc, char **argv)
{
	gasnet_handlerentry_t handlers[] = {
		{QUESTION, (void (*)(void))question},
		{ANSWER, (void (*)(void))answered},
	};
	gasnet_seginfo_t *segments;
	int me, nodes, next, number;

	/* 1. Join the job; all nodes name the same handlers, and have a segment. */
	must("init", gasnet_init(&argc, &argv));
	must("attach", gasnet_attach(handlers, 2, GASNET_PAGESIZE, 0));
	me = (int)gasnet_mynode();
	nodes = (int)gasnet_nodes();
	next = (me + 1) % nodes;
	segments = calloc((size_t)nodes, sizeof *segments);
	must("segments", gasnet_getSegmentInfo(segments, nodes));

	/* 2. A put: the next node takes no part in it, and learns of it by the barrier. */
	number = 100 + me;
	gasnet_put((gasnet_node_t)next, segments[next].addr, &number, sizeof number);
	barrier();

	/* 3. An active message: the next node runs a handler, when it calls GASNet. */
	must("request", gasnet_AMRequestShort1((gasnet_node_t)next, QUESTION, me));
	GASNET_BLOCKUNTIL(answer >= 0);

	printf("node %d of %d: %d was put here, node %d answered %d\n", me, nodes, *(int *)segments[me].addr, next, answer);

	/* 4. Leave: all in a barrier first, since the first exit ends the job. */
	barrier();
	gasnet_exit(0);
}
