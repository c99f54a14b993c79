/* Each error code of the core API, when its condition holds, and what a refused call leaves behind: nothing. The argument, if
 * there is one, is the largest segment, bytes. */
#include <gasnet.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IS(want, call)                                                                                    \
	do {                                                                                              \
		int gives = (call);                                                                       \
		if (gives != (want)) {                                                                    \
			fprintf(stderr, "%s:%d: %s gives %s and not %s\n", __FILE__, __LINE__, #call,      \
				gasnet_ErrorName(gives), gasnet_ErrorName(want));                          \
			fflush(NULL);                                                                     \
			_Exit(1);                                                                         \
		}                                                                                         \
	} while (0)

enum { ASK = 200, TELL = 201, GO = 202, SIZE = 65536 };
static volatile int told, go;

static void tell(gasnet_token_t token)
{
	(void)token;
	told++;
}

static void ask(gasnet_token_t token)
{
	gasnet_node_t from = 77;

	IS(GASNET_ERR_BAD_ARG, gasnet_AMGetMsgSource(token, NULL));
	IS(GASNET_ERR_BAD_ARG, gasnet_AMGetMsgSource(NULL, &from));
	IS(GASNET_ERR_BAD_ARG, gasnet_AMReplyShort0(NULL, TELL));
	IS(GASNET_ERR_BAD_ARG, gasnet_AMReplyShort(token, TELL, 17));
	IS(GASNET_ERR_BAD_ARG, gasnet_AMReplyMedium0(token, TELL, &from, gasnet_AMMaxMedium() + 1));
	IS(GASNET_ERR_BAD_ARG, gasnet_AMReplyMedium0(token, TELL, NULL, 1));
	IS(GASNET_ERR_BAD_ARG, gasnet_AMReplyLong0(token, TELL, &from, 1, NULL));
	IS(GASNET_ERR_BAD_ARG, gasnet_AMReplyLong0(token, TELL, &from, gasnet_AMMaxLongReply() + 1, NULL));
	IS(GASNET_ERR_BAD_ARG, gasnet_AMRequestShort0(0, TELL));
	IS(GASNET_OK, gasnet_AMGetMsgSource(token, &from));
	IS(GASNET_OK, gasnet_AMReplyShort0(token, TELL));
	IS(GASNET_ERR_BAD_ARG, gasnet_AMReplyShort0(token, TELL));
}

static void going(gasnet_token_t token)
{
	(void)token;
	go = 1;
}

static void attach(void)
{
	static gasnet_handlerentry_t many[130];
	gasnet_handlerentry_t two[] = { { ASK, (void (*)())ask }, { ASK, (void (*)())tell } };
	gasnet_handlerentry_t low[] = { { 5, (void (*)())ask } };
	gasnet_handlerentry_t none[] = { { ASK, NULL } };
	gasnet_handlerentry_t table[] = { { ASK, (void (*)())ask }, { TELL, (void (*)())tell },
					  { GO, (void (*)())going }, { 0, (void (*)())tell } };
	uintptr_t most = gasnet_getMaxLocalSegmentSize();
	int i;

	for (i = 0; i < 130; i++) many[i].fnptr = (void (*)())tell;
	IS(GASNET_ERR_BAD_ARG, gasnet_attach(NULL, 0, GASNET_PAGESIZE + 1, 0));
	IS(GASNET_ERR_BAD_ARG, gasnet_attach(NULL, 0, most + GASNET_PAGESIZE, 0));
	IS(GASNET_ERR_BAD_ARG, gasnet_attach(NULL, 1, SIZE, 0));
	IS(GASNET_ERR_BAD_ARG, gasnet_attach(table, -1, SIZE, 0));
	IS(GASNET_ERR_BAD_ARG, gasnet_attach(none, 1, SIZE, 0));
	IS(GASNET_ERR_BAD_ARG, gasnet_attach(two, 2, SIZE, 0));
	IS(GASNET_ERR_BAD_ARG, gasnet_attach(low, 1, SIZE, 0));
	IS(GASNET_ERR_BAD_ARG, gasnet_attach(many, 130, SIZE, 0));
	IS(GASNET_OK, gasnet_attach(table, 4, SIZE, 0));
	if (table[3].index != 128) {
		fprintf(stderr, "the handler without an index got %d\n", table[3].index);
		_Exit(1);
	}
	IS(GASNET_ERR_NOT_INIT, gasnet_attach(table, 4, SIZE, 0));
}

static void messages(gasnet_node_t nodes, gasnet_seginfo_t *segment)
{
	static char source[4096];
	gasnet_node_t peer = (gasnet_mynode() + 1) % nodes, from;
	char *start = (char *)segment[peer].addr, *end = start + segment[peer].size;
	int last = 0;

	IS(GASNET_ERR_BAD_ARG, gasnet_AMRequestShort0(nodes, ASK));
	IS(GASNET_ERR_BAD_ARG, gasnet_AMRequestMedium0(nodes, ASK, source, 1));
	IS(GASNET_ERR_BAD_ARG, gasnet_AMRequestLong0(nodes, ASK, source, 1, start));
	IS(GASNET_ERR_BAD_ARG, gasnet_AMRequestLongAsync0(nodes, ASK, source, 1, start));
	IS(GASNET_ERR_BAD_ARG, gasnet_AMRequestShort(peer, ASK, 17));
	IS(GASNET_ERR_BAD_ARG, gasnet_AMRequestShort(peer, ASK, -1));
	IS(GASNET_ERR_BAD_ARG, gasnet_AMRequestMedium0(peer, ASK, source, gasnet_AMMaxMedium() + 1));
	IS(GASNET_ERR_BAD_ARG, gasnet_AMRequestLong0(peer, ASK, source, gasnet_AMMaxLongRequest() + 1, start));
	IS(GASNET_ERR_BAD_ARG, gasnet_AMRequestLong0(peer, ASK, source, 2, end - 1));
	IS(GASNET_ERR_BAD_ARG, gasnet_AMRequestLong0(peer, ASK, source, 1, start - 1));
	IS(GASNET_ERR_BAD_ARG, gasnet_AMRequestLongAsync0(peer, ASK, source, 2, end - 1));
	IS(GASNET_ERR_BAD_ARG, gasnet_AMRequestMedium0(peer, ASK, NULL, 1));
	IS(GASNET_ERR_BAD_ARG, gasnet_AMRequestLong0(peer, ASK, NULL, 1, start));
	IS(GASNET_ERR_BAD_ARG, gasnet_AMRequestLongAsync0(peer, ASK, NULL, 1, start));
	IS(GASNET_ERR_BAD_ARG, gasneti_AMRequestShort(peer, ASK, 1, NULL));
	IS(GASNET_ERR_BAD_ARG, gasnet_AMGetMsgSource(&last, &from));
	IS(GASNET_ERR_BAD_ARG, gasnet_AMReplyShort0(&last, TELL));
	/* None of them was sent. */
	IS(GASNET_OK, gasnet_AMRequestShort0(peer, ASK));
	GASNET_BLOCKUNTIL(told > 0);
	gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
	if (told != 1) {
		fprintf(stderr, "%d replies\n", told);
		_Exit(1);
	}
}

static void barriers(gasnet_node_t nodes)
{
	gasnet_node_t i;

	if (gasnet_mynode() == 0) {
		gasnet_barrier_notify(7, 0);
		if (nodes > 1) IS(GASNET_ERR_NOT_READY, gasnet_barrier_try(7, 0));
		for (i = 1; i < nodes; i++) IS(GASNET_OK, gasnet_AMRequestShort0(i, GO));
	} else {
		GASNET_BLOCKUNTIL(go);
		gasnet_barrier_notify(7, 0);
	}
	IS(GASNET_OK, gasnet_barrier_wait(7, 0));
	IS(nodes > 1 ? GASNET_ERR_BARRIER_MISMATCH : GASNET_OK, gasnet_barrier((int)gasnet_mynode(), 0));
	IS(GASNET_ERR_BARRIER_MISMATCH, gasnet_barrier(0, GASNET_BARRIERFLAG_MISMATCH));
	gasnet_barrier_notify(1, 0);
	IS(GASNET_ERR_BARRIER_MISMATCH, gasnet_barrier_wait(2, 0));
	IS(GASNET_OK, gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS));
}

static void names(void)
{
	static const struct {
		int code;
		const char *name;
	} all[] = { { 0, "GASNET_OK" },
		    { 10001, "GASNET_ERR_NOT_INIT" },
		    { 10002, "GASNET_ERR_RESOURCE" },
		    { 10003, "GASNET_ERR_BAD_ARG" },
		    { 10004, "GASNET_ERR_NOT_READY" },
		    { 10005, "GASNET_ERR_BARRIER_MISMATCH" },
		    { 4711, "*unknown*" } };
	size_t i;

	for (i = 0; i < sizeof all / sizeof *all; i++)
		if (strcmp(gasnet_ErrorName(all[i].code), all[i].name) != 0 || gasnet_ErrorDesc(all[i].code)[0] == '\0')
			_Exit(1);
}

int main(int argc, char **argv)
{
	gasnet_seginfo_t *segment;
	gasnet_nodeinfo_t info;
	gasnet_node_t nodes;

	names();
#ifndef __cplusplus
	/* No object defines it. */
	if (getenv("LARGEST")) gasnet_max_segsize = strtoull(getenv("LARGEST"), NULL, 0);
#endif
	IS(GASNET_ERR_NOT_INIT, gasnet_AMPoll());
	IS(GASNET_ERR_NOT_INIT, gasnet_attach(NULL, 0, 0, 0));
	IS(GASNET_ERR_NOT_INIT, gasnet_AMRequestShort0(0, ASK));
	IS(GASNET_ERR_NOT_INIT, gasnet_getNodeInfo(&info, 1));
	IS(GASNET_OK, gasnet_init(&argc, &argv));
	IS(GASNET_ERR_NOT_INIT, gasnet_init(&argc, &argv));
	IS(GASNET_ERR_NOT_INIT, gasnet_AMPoll());
	IS(GASNET_ERR_NOT_INIT, gasnet_AMRequestMedium0(0, ASK, NULL, 0));
	if (argc > 1 && gasnet_getMaxLocalSegmentSize() != strtoull(argv[1], NULL, 0)) _Exit(1);
	if (argc > 2 && gasnet_getMaxGlobalSegmentSize() != strtoull(argv[2], NULL, 0)) _Exit(1);
	nodes = gasnet_nodes();
	segment = (gasnet_seginfo_t *)malloc((nodes + 1) * sizeof *segment);
	IS(GASNET_ERR_NOT_INIT, gasnet_getSegmentInfo(segment, 1));
	attach();
	IS(GASNET_ERR_BAD_ARG, gasnet_getSegmentInfo(NULL, 1));
	IS(GASNET_ERR_BAD_ARG, gasnet_getSegmentInfo(segment, -1));
	IS(GASNET_ERR_BAD_ARG, gasnet_getNodeInfo(NULL, 1));
	IS(GASNET_ERR_BAD_ARG, gasnet_set_waitmode(3));
	IS(GASNET_ERR_BAD_ARG, gasnet_set_waitmode(-1));
	segment[nodes].size = 4711;
	IS(GASNET_OK, gasnet_getSegmentInfo(segment, (int)nodes + 1));
	if (segment[nodes].size != 4711) _Exit(1);
	gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
	messages(nodes, segment);
	barriers(nodes);
	printf("node %d: all right\n", (int)gasnet_mynode());
	fflush(stdout);
	gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
	gasnet_exit(0);
	return 0;
}
