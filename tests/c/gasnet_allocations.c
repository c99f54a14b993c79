/* No operation allocates: the C library's allocator is counted while every kind of operation is made again and again. */
#include <gasnet.h>
#include <gasnet_vis.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "counted_allocations.h"

enum { ASK = 200, ASK_DATA, TELL, TELL_DATA, SIZE = 65536, WARM = 300, ROUNDS = 300 };
static volatile int told;
static gasnet_node_t me, peer;
static char *mine, *theirs;
static gasnet_hsl_t lock = GASNET_HSL_INITIALIZER;

static void tell(gasnet_token_t token, gasnet_handlerarg_t a)
{
	(void)token;
	(void)a;
	told++;
}

static void tell_data(gasnet_token_t token, void *p, size_t n, gasnet_handlerarg_t a)
{
	(void)p;
	(void)n;
	tell(token, a);
}

static void ask(gasnet_token_t token, gasnet_handlerarg_t a)
{
	(void)gasnet_AMReplyShort1(token, TELL, a);
}

static void ask_data(gasnet_token_t token, void *p, size_t n, gasnet_handlerarg_t a)
{
	(void)gasnet_AMReplyMedium1(token, TELL_DATA, p, n < 64 ? n : 64, a);
}

static void wait_for(int replies)
{
	GASNET_BLOCKUNTIL(told >= replies);
	told -= replies;
}

/* Each kind of operation once. */
static void round_of_all(void)
{
	static char outside[4096];
	gasnet_memvec_t here[2] = { { outside, 16 }, { outside + 64, 16 } };
	gasnet_memvec_t there[2] = { { theirs, 16 }, { theirs + 128, 16 } };
	size_t strides[1] = { 64 }, counts[2] = { 16, 4 };
	gasnet_handle_t handles[8];
	gasnet_valget_handle_t value;
	int i;

	gasnet_put(peer, theirs, outside, 8);
	gasnet_get(outside, peer, theirs, 8);
	gasnet_put_bulk(peer, theirs, outside, 3000);
	gasnet_get_bulk(outside, peer, theirs, 3000);
	gasnet_put_bulk(peer, theirs, mine, 3000);
	gasnet_memset(peer, theirs, 1, 5000);
	gasnet_put_val(peer, theirs, 5, 4);
	(void)gasnet_get_val(peer, theirs, 4);
	value = gasnet_get_nb_val(peer, theirs, 8);
	(void)gasnet_wait_syncnb_valget(value);
	for (i = 0; i < 8; i++)
		handles[i] = i % 2 ? gasnet_get_nb(outside + 8 * i, peer, theirs, 8)
				   : gasnet_put_nb_bulk(peer, theirs + 8 * i, outside, 8);
	gasnet_wait_syncnb_some(handles, 8);
	gasnet_wait_syncnb_all(handles, 8);
	for (i = 0; i < 8; i++) gasnet_put_nbi(peer, theirs + 8 * i, outside, 8);
	gasnet_get_nbi_bulk(outside, peer, theirs, 100);
	gasnet_memset_nbi(peer, theirs, 1, 100);
	gasnet_wait_syncnbi_all();
	gasnet_begin_nbi_accessregion();
	gasnet_put_nbi_bulk(peer, theirs, outside, 64);
	gasnet_wait_syncnb(gasnet_end_nbi_accessregion());
	gasnet_putv_bulk(peer, 2, there, 2, here);
	gasnet_gets_bulk(outside, strides, peer, theirs, strides, counts, 1);
	gasnet_hsl_lock(&lock);
	gasnet_hsl_unlock(&lock);
	(void)gasnet_AMRequestShort1(peer, ASK, 1);
	(void)gasnet_AMRequestMedium1(peer, ASK_DATA, outside, 1000, 1);
	(void)gasnet_AMRequestLong1(peer, ASK_DATA, outside, 100, theirs + 8192, 1);
	(void)gasnet_AMRequestLong1(peer, ASK_DATA, outside, 4000, theirs + 8192, 1);
	(void)gasnet_AMRequestLongAsync1(peer, ASK_DATA, mine, 4000, theirs + 8192, 1);
	wait_for(5);
	(void)gasnet_AMPoll();
	gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
	(void)gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS);
}

int main(int argc, char **argv)
{
	gasnet_handlerentry_t table[] = { { ASK, (void (*)())ask },
					  { ASK_DATA, (void (*)())ask_data },
					  { TELL, (void (*)())tell },
					  { TELL_DATA, (void (*)())tell_data } };
	gasnet_seginfo_t segment[16];
	int i;

	if (gasnet_init(&argc, &argv) != GASNET_OK) return 1;
	if (gasnet_attach(table, 4, SIZE, 0) != GASNET_OK) return 1;
	gasnet_getSegmentInfo(segment, 16);
	me = gasnet_mynode();
	peer = (me + 1) % gasnet_nodes();
	mine = (char *)segment[me].addr + SIZE / 2;
	theirs = (char *)segment[peer].addr;
	gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
	for (i = 0; i < WARM; i++) round_of_all();
	counting = 1;
	for (i = 0; i < ROUNDS; i++) round_of_all();
	counting = 0;
	if (allocations != 0) {
		fprintf(stderr, "node %d: %ld allocations in %d rounds\n", (int)me, allocations, ROUNDS);
		gasnet_exit(1);
	}
	printf("node %d: all right\n", (int)me);
	fflush(stdout);
	gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
	gasnet_exit(0);
	return 0;
}
