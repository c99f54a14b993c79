/* What a program does wrong in its active messages and its attach. The argument says what; node 0 does it, node 1 polls.
 * "refused" is every call that gives an error code, after which the job goes on, "largest" a segment as large as
 * may be, which is none of it; every other word ends the job. */
#include "gasnet_check.h"

#include <stdlib.h>
#include <string.h>

#define REFUSED(call) CHECK((call) == GASNET_ERR_BAD_ARG)
#define SCARCE(call) CHECK((call) == GASNET_ERR_RESOURCE)

enum { ASK = 200, TELL, PAYLOAD, SPREAD, NOBODY, ARRIVED, SIZE = 65536 };

static char source[64], *much;
static gasnet_token_t kept;
static volatile int asked, told;

static void ask(gasnet_token_t token)
{
	kept = token;
	REFUSED(gasnet_AMReplyShort(token, TELL, 17));
	REFUSED(gasnet_AMReplyShort0(token, 2));
	REFUSED(gasnet_AMReplyMedium0(token, PAYLOAD, source, SIZE_MAX));
	REFUSED(gasnet_AMReplyMedium0(token, PAYLOAD, much, gasnet_AMMaxMedium() + 1));
	REFUSED(gasnet_AMReplyLong0(token, PAYLOAD, much, gasnet_AMMaxLongReply() + 1, source));
	REFUSED(gasnet_AMReplyLong0(token, PAYLOAD, source, 1, source));
	REFUSED(gasnet_AMRequestShort0(0, ASK));
	OK(gasnet_AMReplyShort0(token, TELL));
	REFUSED(gasnet_AMReplyShort0(token, TELL));
	REFUSED(gasnet_AMReplyMedium0(token, PAYLOAD, source, 1));
	asked++;
}

static void tell(gasnet_token_t token)
{
	REFUSED(gasnet_AMReplyShort0(token, TELL));
	told++;
}

static void payload(gasnet_token_t token, void *buf, size_t nbytes)
{
	(void)token, (void)buf, (void)nbytes;
	CHECK(!"a message that was refused arrives");
}

static void arrived(gasnet_token_t token, void *buf, size_t nbytes)
{
	(void)buf, (void)nbytes;
	asked++;
	OK(gasnet_AMReplyShort0(token, TELL));
}

static void spread(gasnet_token_t token)
{
	OK(gasnet_AMReplyShort0(token, NOBODY));
}

static void refused(char *start, char *end)
{
	REFUSED(gasnet_AMRequestShort(1, ASK, 17));
	REFUSED(gasnet_AMRequestMedium0(1, PAYLOAD, much, gasnet_AMMaxMedium() + 1));
	REFUSED(gasnet_AMRequestMedium0(1, PAYLOAD, source, SIZE_MAX));
	REFUSED(gasnet_AMRequestMedium0(0, PAYLOAD, source, SIZE_MAX / 2 + 1));
	REFUSED(gasnet_AMRequestLong0(1, PAYLOAD, source, SIZE_MAX, start));
	REFUSED(gasnet_AMRequestShort(1, 64, 11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
	REFUSED(gasnet_AMRequestMedium0(1, 127, source, 8));
	REFUSED(gasnet_AMRequestLongAsync0(1, 0, source, 8, start));
	REFUSED(gasnet_AMRequestLong0(1, PAYLOAD, much, gasnet_AMMaxLongRequest() + 1, start));
	REFUSED(gasnet_AMRequestLongAsync0(1, PAYLOAD, much, gasnet_AMMaxLongRequest() + 1, start));
	REFUSED(gasnet_AMRequestLong0(1, PAYLOAD, source, 2, end - 1));
	REFUSED(gasnet_AMRequestLong0(1, PAYLOAD, source, 2, start - 1));
	REFUSED(gasnet_AMRequestLongAsync0(1, PAYLOAD, source, 1, end));
	REFUSED(gasnet_AMReplyShort0(source, TELL));
	OK(gasnet_AMRequestShort0(1, ASK));
	GASNET_BLOCKUNTIL(told == 1);
	/* That of a handler that has returned. */
	OK(gasnet_AMRequestShort0(0, ASK));
	GASNET_BLOCKUNTIL(told == 2);
	REFUSED(gasnet_AMReplyShort0(kept, TELL));
	REFUSED(gasnet_AMReplyLong0(kept, PAYLOAD, source, 1, start));
}

static void attach(const char *how)
{
	gasnet_handlerentry_t table[] = { { ASK, (void (*)())ask },
					  { TELL, (void (*)())tell },
					  { PAYLOAD, (void (*)())payload },
					  { ARRIVED, (void (*)())arrived },
					  { SPREAD, (void (*)())spread } };
	gasnet_handlerentry_t low[] = { { 127, (void (*)())ask } };
	gasnet_handlerentry_t two[] = { { ASK, (void (*)())ask }, { ASK, (void (*)())tell } };
	int entries = 5;

	if (strcmp(how, "refused") == 0) {
		REFUSED(gasnet_attach(table, 5, gasnet_getMaxLocalSegmentSize() + GASNET_PAGESIZE, 0));
		REFUSED(gasnet_attach(table, 5, GASNET_PAGESIZE / 2, 0));
		REFUSED(gasnet_attach(low, 1, SIZE, 0));
		REFUSED(gasnet_attach(two, 2, SIZE, 0));
	}
	/* All of it is used by puts and Longs. */
	if (strcmp(how, "largest") == 0) {
		OK(gasnet_attach(table, entries, gasnet_getMaxGlobalSegmentSize(), 0));
		return;
	}
	/* More memory than the process may have, or may lock. */
	if (strcmp(how, "memory") == 0) {
		SCARCE(gasnet_attach(table, entries, gasnet_getMaxLocalSegmentSize(), 0));
		gasnet_exit(3);
	}
	if (strcmp(how, "fewer handlers") == 0 && gasnet_mynode() == 0) entries = 4;
	if (strcmp(how, "other handlers") == 0 && gasnet_mynode() == 0) table[4].index = NOBODY;
	OK(gasnet_attach(table, entries, SIZE, 0));
}

int main(int argc, char **argv)
{
	gasnet_seginfo_t segment[2];
	const char *how;
	char *start;

	OK(gasnet_init(&argc, &argv));
	CHECK(argc == 2);
	how = argv[1];
	much = (char *)calloc(1, gasnet_AMMaxLongRequest() + gasnet_AMMaxMedium() + 1);
	CHECK(much);
	attach(how);
	OK(gasnet_getSegmentInfo(segment, 2));
	start = (char *)segment[1].addr;
	gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
	if (strcmp(how, "largest") == 0) {
		size_t len = segment[1].size / 2;
		char *there = (char *)segment[1].addr + len, *own = (char *)segment[gasnet_mynode()].addr;
		if (gasnet_mynode() == 0) {
			memset(own, 7, len);
			gasnet_put_bulk(1, there, own, len);
			OK(gasnet_AMRequestLong0(1, ARRIVED, own, len, segment[1].addr));
			GASNET_BLOCKUNTIL(told == 1);
		} else {
			GASNET_BLOCKUNTIL(asked == 1);
			CHECK(own[0] == 7 && own[len - 1] == 7 && own[len] == 7 && own[2 * len - 1] == 7);
		}
	} else if (gasnet_mynode() == 1) {
		GASNET_BLOCKUNTIL(asked == 1);
	} else if (strcmp(how, "refused") == 0) {
		refused(start, start + segment[1].size);
	} else {
		if (strcmp(how, "short") == 0) OK(gasnet_AMRequestShort0(1, NOBODY));
		if (strcmp(how, "medium") == 0) OK(gasnet_AMRequestMedium0(1, NOBODY, source, 8));
		if (strcmp(how, "long") == 0) OK(gasnet_AMRequestLong0(1, NOBODY, source, 8, start));
		if (strcmp(how, "reply") == 0) OK(gasnet_AMRequestShort0(1, SPREAD));
		if (strcmp(how, "own") == 0) OK(gasnet_AMRequestShort0(0, NOBODY));
		GASNET_BLOCKUNTIL(0);
	}
	gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
	printf("node %d: all right\n", (int)gasnet_mynode());
	fflush(stdout);
	gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
	gasnet_exit(0);
	return 0;
}
