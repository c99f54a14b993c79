/* Node 0 floods node 1, and both look at the credits between them, in handlers too. The variables say that each node lends 8,
 * a full Medium, and has 40 in its bank; the first argument of the program is how many of them node 0 is lent on top in the
 * end, or "any" that is more than none. */
#include <gasnet.h>
#include <gasnet_tools.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gasnet_check.h"

enum { TAKE = 200, DONE = 201, MESSAGES = 4, SEGMENT = 65536, BANK = 40, LEAST = 8 };

static gasnet_node_t me;
static gasnet_seginfo_t segment[2];
static volatile int taken, done, their_bank, their_revoked;
static char payload[1984];

static void take(gasnet_token_t token, void *buf, size_t nbytes, gasnet_handlerarg_t a)
{
	gasnet_node_t from;
	OK(gasnet_AMGetMsgSource(token, &from));
	CHECK(buf != NULL && nbytes == sizeof payload && from == 0 && a == taken);
	taken = taken + 1;
	OK(gasnet_AMReplyShort2(token, DONE, gasnet_banked_credits(), gasnet_revoked_credits(from)));
}

static void answered(gasnet_token_t token, gasnet_handlerarg_t bank, gasnet_handlerarg_t revoked)
{
	(void)token;
	their_bank = bank, their_revoked = revoked;
	done = done + 1;
}

static void barrier(void)
{
	gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
	OK(gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS));
}

/* Each message is looked for after the call that sent it: the next finds its credits in use. Where time is virtual only calls
 * let it pass. */
static void receive(void)
{
	volatile int *sent = (volatile int *)segment[1].addr;
	while (taken < MESSAGES)
		if (gasnett_ticks_are_virtual() || taken < *sent) gasnet_AMPoll();
		else gasnett_sched_yield();
}

static void flood(void)
{
	int i;
	for (i = 0; i < MESSAGES; i++) {
		int sent = i + 1;
		OK(gasnet_AMRequestMedium1(1, TAKE, payload, sizeof payload, i));
		gasnet_put(1, segment[1].addr, &sent, sizeof sent);
	}
	GASNET_BLOCKUNTIL(done == MESSAGES);
}

int main(int argc, char **argv)
{
	gasnet_handlerentry_t table[] = {
		{ TAKE, (void (*)())take }, { DONE, (void (*)())answered }
	};
	gasnet_node_t other;
	int grown;

	OK(gasnet_init(&argc, &argv));
	me = gasnet_mynode(), other = 1 - me;
	if (argc > 2 && strcmp(argv[2], "nowhere") == 0) gasnet_revoked_credits(2);
	CHECK(gasnet_send_credits(other) == LEAST && gasnet_banked_credits() == BANK);
	OK(gasnet_attach(table, 2, SEGMENT, 0));
	OK(gasnet_getSegmentInfo(segment, 2));
	*(volatile int *)segment[me].addr = 0;
	CHECK(gasnet_credit_stalls(other) == 0 && gasnet_revoked_credits(other) == 0);
	CHECK(gasnet_send_credits(me) == 0);
	barrier();

	if (me == 0) flood();
	else receive();
	barrier();

	grown = gasnet_send_credits(other) - LEAST;
	if (me == 0) {
		/* What the last handler said of the bank was so before its reply was sent, and after the credits were lent. */
		CHECK(grown == BANK - their_bank && their_revoked == 0);
		if (strcmp(argv[1], "any") == 0) CHECK(grown > 0);
		else CHECK(grown == atoi(argv[1]));
		CHECK(gasnet_credit_stalls(1) >= (grown + 6) / 7 && gasnet_credit_stalls(1) < MESSAGES);
		CHECK(gasnet_banked_credits() == BANK);
	} else {
		CHECK(grown == 0 && gasnet_credit_stalls(0) == 0);
	}
	printf("node %d: all right\n", (int)me);
	fflush(NULL);
	barrier();
	gasnet_exit(0);
	return 1;
}
