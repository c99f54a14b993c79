/* Every call of gasnet.h, gasnet_vis.h and gasnet_coll.h, between neighbours in a ring. As C and as C++. */
#include <gasnet.h>
#include <gasnet_vis.h>
#include <gasnet_coll.h>
#include <gasnet_tools.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gasnet_check.h"

enum { PING = 200, PONG = 201, FIRST = 210, SIZE = 1 << 20, HALF = SIZE / 2 };
#ifdef GASNET_SEGMENT_FAST
enum { LONGEST = 1984 };
#else
enum { LONGEST = 1976 };
#endif

static gasnet_node_t me, nodes, next, before;
static gasnet_seginfo_t *segment;
static volatile int pings, pongs, order_ok = 1;
static gasnet_hsl_t lock = GASNET_HSL_INITIALIZER;
static gasnet_node_t hook_called;

static char *at(gasnet_node_t node, size_t offset)
{
	return (char *)segment[node].addr + offset;
}

static void barrier(void)
{
	gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
	OK(gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS));
}

/* ---- where the memory of nodes is, if they have no segments ---- */

static volatile gasnet_node_t known;

static void here(gasnet_token_t token, gasnet_handlerarg_t high, gasnet_handlerarg_t low)
{
	gasnet_node_t from;

	OK(gasnet_AMGetMsgSource(token, &from));
	segment[from].addr = (void *)((uintptr_t)(uint32_t)high << 32 | (uint32_t)low);
	known++;
}

static __attribute__((__unused__)) void tell_where(void)
{
	uintptr_t mine = (uintptr_t)malloc(SIZE);
	gasnet_node_t i;

	CHECK(mine != 0);
	for (i = 0; i < nodes; i++)
		OK(gasnet_AMRequestShort2(i, FIRST + 5, (gasnet_handlerarg_t)(mine >> 32), (gasnet_handlerarg_t)mine));
	GASNET_BLOCKUNTIL(known == nodes);
}

/* ---- active messages ---- */

static void pong(gasnet_token_t token, gasnet_handlerarg_t a)
{
	gasnet_node_t from;

	OK(gasnet_AMGetMsgSource(token, &from));
	CHECK(from == next && a == 42);
	CHECK(gasnet_AMReplyShort0(token, PONG) == GASNET_ERR_BAD_ARG); /* a reply to a reply */
	pongs++;
}

static void ping(gasnet_token_t token, gasnet_handlerarg_t a)
{
	gasnet_hsl_lock(&lock);
	pings++;
	gasnet_hsl_unlock(&lock);
	gasnet_hold_interrupts(); /* nothing: a handler is a section already */
	gasnet_resume_interrupts();
	OK(gasnet_AMReplyShort1(token, PONG, a + 1));
	CHECK(gasnet_AMReplyShort1(token, PONG, a) == GASNET_ERR_BAD_ARG); /* a second reply */
}

/* What comes back: the arguments' sum in the first, the length in the second. */
static volatile int sums, answers;
static volatile size_t lengths;

static void answer_medium(gasnet_token_t token, void *buf, size_t nbytes, gasnet_handlerarg_t sum)
{
	(void)token;
	CHECK((uintptr_t)buf % 8 == 0);
	CHECK(nbytes == 0 || ((char *)buf)[nbytes - 1] == 'x');
	sums += sum;
	lengths += nbytes;
	answers++;
}

static void answer_long(gasnet_token_t token, void *buf, size_t nbytes, gasnet_handlerarg_t sum)
{
	(void)token;
	CHECK(nbytes == 0 || (buf == at(me, HALF) && ((char *)buf)[nbytes - 1] == 'x'));
	sums += sum;
	lengths += nbytes;
	answers++;
}

static void medium2(gasnet_token_t token, void *buf, size_t nbytes, gasnet_handlerarg_t a, gasnet_handlerarg_t b)
{
	CHECK((uintptr_t)buf % 8 == 0);
	OK(gasnet_AMReplyMedium1(token, FIRST + 1, buf, nbytes, a + b));
}

static void long3(gasnet_token_t token, void *buf, size_t nbytes, gasnet_handlerarg_t a, gasnet_handlerarg_t b,
		  gasnet_handlerarg_t c)
{
	CHECK(nbytes == 0 || buf == at(me, 64));
	OK(gasnet_AMReplyLong1(token, FIRST + 3, buf, nbytes, at(before, HALF), a + b + c));
}

static void short16(gasnet_token_t token, gasnet_handlerarg_t a0, gasnet_handlerarg_t a1, gasnet_handlerarg_t a2,
		    gasnet_handlerarg_t a3, gasnet_handlerarg_t a4, gasnet_handlerarg_t a5, gasnet_handlerarg_t a6,
		    gasnet_handlerarg_t a7, gasnet_handlerarg_t a8, gasnet_handlerarg_t a9, gasnet_handlerarg_t a10,
		    gasnet_handlerarg_t a11, gasnet_handlerarg_t a12, gasnet_handlerarg_t a13,
		    gasnet_handlerarg_t a14, gasnet_handlerarg_t a15)
{
	order_ok &= a0 == 0 && a1 == -1 && a2 == -2 && a3 == -3 && a4 == -4 && a5 == -5 && a6 == -6 && a7 == -7
		    && a8 == -8 && a9 == -9 && a10 == -10 && a11 == -11 && a12 == -12 && a13 == -13 && a14 == -14
		    && a15 == -15;
	OK(gasnet_AMReplyShort(token, PONG, 1, 42)); /* the number of arguments as an argument */
}

static void messages(void)
{
	static char outside[3000];
	size_t lens[] = { 0, 1, 7, LONGEST }, i;
	int want = 0;
	gasnet_node_t nobody;

	for (i = 0; i < 10; i++) OK(gasnet_AMRequestShort1(next, PING, 41));
	GASNET_BLOCKUNTIL(pongs == 10);
	OK(gasnet_AMRequestShort16(next, FIRST + 4, 0, -1, -2, -3, -4, -5, -6, -7, -8, -9, -10, -11, -12, -13, -14,
				   -15));
	GASNET_BLOCKUNTIL(pongs == 11);
	CHECK(order_ok);

	memset(outside, 'x', sizeof outside);
	memset(at(me, 4096), 'x', 3000);
	for (i = 0; i < sizeof lens / sizeof *lens; i++) {
		OK(gasnet_AMRequestMedium2(next, FIRST, outside, lens[i], 3, 4));
		OK(gasnet_AMRequestMedium(next, FIRST, at(me, 4096), lens[i], 2, 3, 4));
		want += 2;
		GASNET_BLOCKUNTIL(answers == want);
		OK(gasnet_AMRequestLong3(next, FIRST + 2, outside, lens[i], at(next, 64), 1, 2, 4));
		want++;
		GASNET_BLOCKUNTIL(answers == want);
		OK(gasnet_AMRequestLongAsync3(next, FIRST + 2, at(me, 4096), lens[i], at(next, 64), 1, 2, 4));
		want++;
		GASNET_BLOCKUNTIL(answers == want);
	}
	CHECK(sums == 7 * want && lengths == 4 * (1 + 7 + LONGEST));

	CHECK(gasnet_AMMaxArgs() == 16 && gasnet_AMMaxMedium() == 1984);
	CHECK(gasnet_AMMaxLongRequest() == 1073741824);
#if defined(GASNET_SEGMENT_EVERYTHING) || defined(GASNET_SEGMENT_LARGE)
	CHECK(gasnet_AMMaxLongReply() == 1976);
#else
	CHECK(gasnet_AMMaxLongReply() == 1073741824);
#endif
	CHECK(gasnet_AMRequestShort0(nodes, PING) == GASNET_ERR_BAD_ARG);
	CHECK(gasnet_AMRequestMedium0(next, FIRST, outside, gasnet_AMMaxMedium() + 1) == GASNET_ERR_BAD_ARG);
#ifdef GASNET_SEGMENT_EVERYTHING
	CHECK(gasnet_AMRequestLong0(next, FIRST, outside, 8, (void *)(UINTPTR_MAX - 3)) == GASNET_ERR_BAD_ARG);
	CHECK(gasnet_AMRequestLong0(next, FIRST, outside, 3000, (void *)8) == GASNET_ERR_BAD_ARG);
#else
	CHECK(gasnet_AMRequestLong0(next, FIRST, outside, 8, at(next, SIZE - 7)) == GASNET_ERR_BAD_ARG);
#endif
	CHECK(gasnet_AMReplyShort0(NULL, PONG) == GASNET_ERR_BAD_ARG);
	CHECK(gasnet_AMReplyShort0(outside, PONG) == GASNET_ERR_BAD_ARG);
	CHECK(gasnet_AMGetMsgSource(NULL, &nobody) == GASNET_ERR_BAD_ARG);
	barrier();
	OK(gasnet_AMPoll());
	CHECK(pings == 10);
}

/* ---- puts and gets ---- */

static void blocking(void)
{
	char mine[256], back[256];
	int i;

	for (i = 0; i < 256; i++) mine[i] = (char)(i ^ (int)me);
	gasnet_put(next, at(next, 0), mine, 8);
	gasnet_put_bulk(next, at(next, 9), mine + 9, 200);
	gasnet_get(back, next, at(next, 0), 8);
	gasnet_get_bulk(back + 9, next, at(next, 9), 200);
	CHECK(memcmp(back, mine, 8) == 0 && memcmp(back + 9, mine + 9, 200) == 0);
	gasnet_memset(next, at(next, 3), 0x17, 100);
	gasnet_get_bulk(back, next, at(next, 0), 104);
	for (i = 3; i < 103; i++) CHECK(back[i] == 0x17);
	CHECK(back[2] == mine[2] && back[103] == mine[103]);
	gasnet_put_val(next, at(next, 512), 0x1122334455667788u, 3);
	CHECK(gasnet_get_val(next, at(next, 512), 3) == 0x667788);
	gasnet_put(next, at(next, 0), mine, 0);
}

static void explicit_handles(void)
{
	enum { COUNT = 100 };
	static uint64_t out[COUNT], back[COUNT];
	gasnet_handle_t handle[COUNT], one;
	gasnet_valget_handle_t value[COUNT];
	int i, left;

	for (i = 0; i < COUNT; i++) {
		out[i] = (uint64_t)(i + 1) * (me + 1);
		handle[i] = i % 2 ? gasnet_put_nb(next, at(next, 8 * (size_t)i), &out[i], 8)
				  : gasnet_put_nb_bulk(next, at(next, 8 * (size_t)i), &out[i], 8);
	}
	gasnet_wait_syncnb_all(handle, COUNT);
	for (i = 0; i < COUNT; i++) CHECK(handle[i] == GASNET_INVALID_HANDLE);
	OK(gasnet_try_syncnb_all(handle, COUNT));
	OK(gasnet_try_syncnb_some(handle, COUNT));
	gasnet_wait_syncnb_some(handle, 0);

	for (i = 0; i < COUNT; i++)
		handle[i] = i % 2 ? gasnet_get_nb(&back[i], next, at(next, 8 * (size_t)i), 8)
				  : gasnet_get_nb_bulk(&back[i], next, at(next, 8 * (size_t)i), 8);
	do {
		gasnet_wait_syncnb_some(handle, COUNT);
		for (i = left = 0; i < COUNT; i++) left += handle[i] != GASNET_INVALID_HANDLE;
	} while (left > 0);
	CHECK(memcmp(out, back, sizeof out) == 0);

	for (i = 0; i < COUNT; i++) value[i] = gasnet_get_nb_val(next, at(next, 8 * (size_t)i), 8);
	for (i = COUNT - 1; i >= 0; i--) CHECK(gasnet_wait_syncnb_valget(value[i]) == out[i]);

	one = gasnet_memset_nb(next, at(next, 0), 5, 5000);
	while (gasnet_try_syncnb(one) != GASNET_OK) gasnett_sched_yield();
	one = gasnet_put_nb_val(next, at(next, 16), 9, 1);
	while (gasnet_try_syncnb_nopoll(one) != GASNET_OK) OK(gasnet_AMPoll());
	gasnet_wait_syncnb(GASNET_INVALID_HANDLE);
	OK(gasnet_try_syncnb(GASNET_INVALID_HANDLE));
	gasnet_get(back, next, at(next, 8), 16);
	CHECK(((char *)back)[7] == 5 && ((char *)back)[8] == 9 && ((char *)back)[9] == 5);
}

static void implicit(void)
{
	static char out[20000], back[20000];
	gasnet_handle_t region;
	size_t i;

	for (i = 0; i < sizeof out; i++) out[i] = (char)(i * 7 + me);
	for (i = 0; i < sizeof out; i += 1000) gasnet_put_nbi_bulk(next, at(next, i), out + i, 1000);
	gasnet_put_nbi(next, at(next, 0), out, 8);
	gasnet_put_nbi_val(next, at(next, 20000), 0xab, 1);
	gasnet_memset_nbi(next, at(next, 20001), 0xcd, 99);
	gasnet_wait_syncnbi_puts();
	OK(gasnet_try_syncnbi_puts());
	for (i = 0; i < sizeof out; i += 1000) gasnet_get_nbi_bulk(back + i, next, at(next, i), 1000);
	gasnet_get_nbi(back, next, at(next, 0), 8);
	while (gasnet_try_syncnbi_gets() != GASNET_OK) gasnett_sched_yield();
	gasnet_wait_syncnbi_gets();
	CHECK(memcmp(out, back, sizeof out) == 0);
	CHECK(gasnet_get_val(next, at(next, 20000), 2) == 0xcdab);

	gasnet_begin_nbi_accessregion();
	gasnet_put_nbi_bulk(next, at(next, 100), out, 5000);
	gasnet_get_nbi_bulk(back, next, at(next, 10000), 5000);
	region = gasnet_end_nbi_accessregion();
	OK(gasnet_try_syncnbi_all());
	gasnet_wait_syncnb(region);
	gasnet_wait_syncnbi_all();
	CHECK(memcmp(back, out + 10000, 5000) == 0);
	gasnet_get_bulk(back, next, at(next, 100), 5000);
	CHECK(memcmp(back, out, 5000) == 0);
}

/* ---- vector, indexed, strided ---- */

static void scattered(void)
{
	static char out[600], back[600];
	gasnet_memvec_t there[3], here[2], again[1];
	void *places[4], *mine[2], *all[1];
	size_t there_strides[2] = { 20, 200 }, here_strides[2] = { 10, 50 }, count[3] = { 10, 5, 3 };
	gasnet_handle_t handle;
	int i;

	for (i = 0; i < 600; i++) out[i] = (char)(i + 3 * (int)me);
	there[0].addr = at(next, 5), there[0].len = 40;
	there[1].addr = at(next, 300), there[1].len = 0;
	there[2].addr = at(next, 700), there[2].len = 60;
	here[0].addr = out, here[0].len = 70;
	here[1].addr = out + 200, here[1].len = 30;
	again[0].addr = back, again[0].len = 100;
	gasnet_putv_bulk(next, 3, there, 2, here);
	gasnet_getv_bulk(1, again, next, 3, there);
	CHECK(memcmp(back, out, 70) == 0 && memcmp(back + 70, out + 200, 30) == 0);
	handle = gasnet_putv_nb_bulk(next, 3, there, 2, here);
	gasnet_wait_syncnb(handle);
	gasnet_wait_syncnb(gasnet_getv_nb_bulk(1, again, next, 3, there));
	gasnet_putv_nbi_bulk(next, 3, there, 2, here);
	gasnet_wait_syncnbi_puts();
	memset(back, 0, sizeof back);
	gasnet_getv_nbi_bulk(1, again, next, 3, there);
	gasnet_wait_syncnbi_gets();
	CHECK(memcmp(back, out, 70) == 0);

	for (i = 0; i < 4; i++) places[i] = at(next, 1000 + 100 * (size_t)i);
	mine[0] = out, mine[1] = out + 300;
	all[0] = back;
	gasnet_puti_bulk(next, 4, places, 25, 2, mine, 50);
	gasnet_geti_bulk(1, all, 100, next, 4, places, 25);
	CHECK(memcmp(back, out, 50) == 0 && memcmp(back + 50, out + 300, 50) == 0);
	gasnet_wait_syncnb(gasnet_puti_nb_bulk(next, 4, places, 25, 2, mine, 50));
	gasnet_wait_syncnb(gasnet_geti_nb_bulk(1, all, 100, next, 4, places, 25));
	gasnet_puti_nbi_bulk(next, 4, places, 25, 2, mine, 50);
	gasnet_wait_syncnbi_puts();
	gasnet_geti_nbi_bulk(1, all, 100, next, 4, places, 25);
	gasnet_wait_syncnbi_gets();
	CHECK(memcmp(back, out, 50) == 0);

	gasnet_memset(next, at(next, 2000), 0, 700);
	gasnet_puts_bulk(next, at(next, 2000), there_strides, out, here_strides, count, 2);
	memset(back, 0, sizeof back);
	gasnet_gets_bulk(back, here_strides, next, at(next, 2000), there_strides, count, 2);
	CHECK(memcmp(back, out, 150) == 0 && back[150] == 0);
	gasnet_get_bulk(back, next, at(next, 2000), 40);
	CHECK(memcmp(back, out, 10) == 0 && back[10] == 0 && memcmp(back + 20, out + 10, 10) == 0);
	gasnet_wait_syncnb(gasnet_puts_nb_bulk(next, at(next, 2000), there_strides, out, here_strides, count, 2));
	gasnet_wait_syncnb(gasnet_gets_nb_bulk(back, here_strides, next, at(next, 2000), there_strides, count, 2));
	gasnet_puts_nbi_bulk(next, at(next, 2000), there_strides, out, here_strides, count, 2);
	gasnet_wait_syncnbi_puts();
	gasnet_gets_nbi_bulk(back, here_strides, next, at(next, 2000), there_strides, count, 2);
	gasnet_wait_syncnbi_gets();
	CHECK(memcmp(back, out, 150) == 0);
}

/* ---- barriers ---- */

static void barriers(void)
{
	int id = -1;

	OK(gasnet_barrier(7, 0));
	CHECK(gasnet_barrier_result(&id) == 0 && id == 7);
	gasnet_barrier_notify(0, GASNET_BARRIERFLAG_UNNAMED);
	while (gasnet_barrier_try(0, GASNET_BARRIERFLAG_UNNAMED) == GASNET_ERR_NOT_READY) gasnett_sched_yield();
	CHECK(gasnet_barrier_result(&id) != 0);
	gasnet_barrier_notify(0, GASNET_BARRIERFLAG_MISMATCH);
	CHECK(gasnet_barrier_wait(0, GASNET_BARRIERFLAG_MISMATCH) == GASNET_ERR_BARRIER_MISMATCH);
	if (nodes > 1) CHECK(gasnet_barrier((int)me, 0) == GASNET_ERR_BARRIER_MISMATCH);
	gasnet_barrier_notify(5, 0);
	CHECK(gasnet_barrier_wait(6, 0) == GASNET_ERR_BARRIER_MISMATCH);
	barrier();
}

/* ---- collectives ---- */

static void add(void *results, size_t result_count, const void *left, size_t left_count, const void *right,
		size_t elem_size, int flags, int arg)
{
	size_t i;

	(void)flags;
	CHECK(elem_size == sizeof(int) && result_count == left_count && arg == 3);
	for (i = 0; i < result_count; i++) ((int *)results)[i] = ((const int *)left)[i] + ((const int *)right)[i];
}

#define BOTH (GASNET_COLL_IN_ALLSYNC | GASNET_COLL_OUT_ALLSYNC)
#define MINE (GASNET_COLL_IN_MYSYNC | GASNET_COLL_OUT_MYSYNC)

static void collectives(void)
{
	gasnet_coll_fn_entry_t function = { add, 0 };
	gasnet_team_handle_t all = GASNET_TEAM_ALL, team;
	gasnet_image_t root = nodes - 1;
	int *src = (int *)calloc(2 * nodes, sizeof(int)), *dst = (int *)calloc(2 * nodes, sizeof(int));
	gasnet_coll_handle_t handle[3];
	int i, n = (int)nodes, id = -1, total = n * (n - 1) / 2;
	void *dlist[1], *slist[1];

	gasnet_coll_init(NULL, 0, &function, 1, 0);
	dlist[0] = dst, slist[0] = src;

	src[0] = 77;
	gasnet_coll_broadcast(all, dst, root, me == root ? src : NULL, sizeof(int), GASNET_COLL_LOCAL | BOTH);
	CHECK(dst[0] == 77);
	dst[0] = 0;
	gasnet_coll_broadcastM(all, dlist, root, me == root ? src : NULL, sizeof(int), GASNET_COLL_LOCAL | MINE);
	CHECK(dst[0] == 77);
	for (i = 0; i < n; i++) src[i] = 100 * (int)me + i;
	gasnet_coll_scatter(all, dst, root, src, sizeof(int), GASNET_COLL_LOCAL | BOTH);
	CHECK(dst[0] == 100 * (int)root + (int)me);
	gasnet_coll_scatterM(all, dlist, root, src, sizeof(int), GASNET_COLL_LOCAL | BOTH);
	gasnet_coll_gather(all, root, dst, src, sizeof(int), GASNET_COLL_LOCAL | BOTH);
	for (i = 0; i < n; i++) CHECK(me != root || dst[i] == 100 * i);
	gasnet_coll_gatherM(all, root, dst, slist, sizeof(int), GASNET_COLL_LOCAL | BOTH);
	gasnet_coll_gather_all(all, dst, src, sizeof(int), GASNET_COLL_LOCAL | BOTH);
	for (i = 0; i < n; i++) CHECK(dst[i] == 100 * i);
	gasnet_coll_gather_allM(all, dlist, slist, sizeof(int), GASNET_COLL_LOCAL | BOTH);
	gasnet_coll_exchange(all, dst, src, sizeof(int), GASNET_COLL_LOCAL | BOTH);
	for (i = 0; i < n; i++) CHECK(dst[i] == 100 * i + (int)me);
	gasnet_coll_exchangeM(all, dlist, slist, sizeof(int), GASNET_COLL_LOCAL | BOTH);
	src[0] = (int)me, src[1] = 1;
	gasnet_coll_reduce(all, root, dst, src, 0, 0, sizeof(int), 2, 0, 3, GASNET_COLL_LOCAL | BOTH);
	CHECK(me != root || (dst[0] == total && dst[1] == n));
	gasnet_coll_reduceM(all, root, dst, slist, 0, 0, sizeof(int), 2, 0, 3, GASNET_COLL_LOCAL | BOTH);
	gasnet_coll_scan(all, dst, 0, 0, src, 0, 0, sizeof(int), 2, 0, 3,
			 GASNET_COLL_LOCAL | BOTH | GASNET_COLL_INCLUSIVE_SCAN);
	CHECK(dst[1] == (int)me + 1);
	gasnet_coll_scanM(all, dlist, 0, 0, slist, 0, 0, sizeof(int), 2, 0, 3,
			  GASNET_COLL_LOCAL | BOTH | GASNET_COLL_EXCLUSIVE_SCAN);
	CHECK(me == 0 || dst[1] == (int)me);

	src[0] = (int)me;
	handle[0] = gasnet_coll_gather_all_nb(all, dst, src, sizeof(int), GASNET_COLL_LOCAL | MINE);
	handle[1] = gasnet_coll_broadcast_nb(all, dst + n, 0, src, sizeof(int), GASNET_COLL_LOCAL | MINE);
	handle[2] = gasnet_coll_reduce_nb(all, 0, src + n, src, 0, 0, sizeof(int), 1, 0, 3, GASNET_COLL_LOCAL | MINE);
	gasnet_coll_wait_sync_some(handle, 3);
	while (gasnet_coll_try_sync_all(handle, 3) != GASNET_OK) gasnett_sched_yield();
	gasnet_coll_wait_sync_all(handle, 3);
	OK(gasnet_coll_try_sync_some(handle, 3));
	for (i = 0; i < n; i++) CHECK(dst[i] == i);
	CHECK(dst[n] == 0 && (me != 0 || src[n] == total));
	handle[0] = gasnet_coll_scatter_nb(all, dst, 0, dst, sizeof(int), GASNET_COLL_LOCAL | BOTH);
	gasnet_coll_wait_sync(handle[0]);
	handle[0] = gasnet_coll_gather_nb(all, 0, dst, src, sizeof(int), GASNET_COLL_LOCAL | BOTH);
	while (gasnet_coll_try_sync(handle[0]) != GASNET_OK) gasnett_sched_yield();
	handle[0] = gasnet_coll_exchange_nb(all, dst, src, sizeof(int), GASNET_COLL_LOCAL | BOTH);
	gasnet_coll_wait_sync(handle[0]);
	handle[0] = gasnet_coll_scan_nb(all, dst, 0, 0, src, 0, 0, sizeof(int), 1, 0, 3, GASNET_COLL_LOCAL | BOTH);
	gasnet_coll_wait_sync(handle[0]);
	gasnet_coll_wait_sync(gasnet_coll_broadcastM_nb(all, dlist, root, me == root ? src : NULL, sizeof(int),
							GASNET_COLL_LOCAL | BOTH));
	gasnet_coll_wait_sync(gasnet_coll_scatterM_nb(all, dlist, root, src, sizeof(int), GASNET_COLL_LOCAL | BOTH));
	gasnet_coll_wait_sync(gasnet_coll_gatherM_nb(all, root, dst, slist, sizeof(int), GASNET_COLL_LOCAL | BOTH));
	gasnet_coll_wait_sync(gasnet_coll_gather_allM_nb(all, dlist, slist, sizeof(int), GASNET_COLL_LOCAL | BOTH));
	gasnet_coll_wait_sync(gasnet_coll_exchangeM_nb(all, dlist, slist, sizeof(int), GASNET_COLL_LOCAL | BOTH));
	gasnet_coll_wait_sync(gasnet_coll_reduceM_nb(all, root, dst, slist, 0, 0, sizeof(int), 1, 0, 3,
						     GASNET_COLL_LOCAL | BOTH));
	gasnet_coll_wait_sync(gasnet_coll_scanM_nb(all, dlist, 0, 0, slist, 0, 0, sizeof(int), 1, 0, 3,
						   GASNET_COLL_LOCAL | BOTH));
	/* There is nothing to tune. */
	gasnet_coll_loadTuningState(NULL, all);
	gasnet_coll_dumpTuningState(NULL, all);
	gasnet_coll_dumpProfile(NULL, all);
	gasnet_coll_set_tree_kind(all, 0, 2, (gasnet_coll_optype_t)0);
	gasnet_coll_set_dissem_limit(all, 0, (gasnet_coll_optype_t)0);
	CHECK(gasnet_coll_get_num_tree_classes(all, (gasnet_coll_optype_t)0) >= 0);

	OK(gasnet_coll_barrier(all, 4, 0));
	CHECK(gasnet_coll_barrier_result(all, &id) == 0 && id == 4);
	gasnet_coll_barrier_notify(all, 0, GASNET_BARRIERFLAG_ANONYMOUS | GASNET_BARRIERFLAG_IMAGES);
	while (gasnet_coll_barrier_try(all, 0, GASNET_BARRIERFLAG_ANONYMOUS | GASNET_BARRIERFLAG_IMAGES)
	       == GASNET_ERR_NOT_READY)
		gasnett_sched_yield();
	CHECK(gasnet_coll_team_size(all) == nodes && gasnet_coll_team_rank2node(all, root) == root);
	/* By the names of the layer below. */
	{
		gasnete_coll_team_t whole = gasnete_coll_team_all;

		CHECK(whole == all && gasnete_coll_team_size(whole) == nodes);
		CHECK(gasnete_coll_team_rank2node(whole, gasnete_coll_team_node2rank(whole, root)) == root);
	}

	/* Even and odd ranks, backwards. */
	team = gasnet_coll_team_split(all, me % 2, nodes - me, NULL);
	CHECK(gasnet_coll_team_size(team) == (nodes + 1 - me % 2) / 2);
	CHECK(gasnet_coll_team_rank2node(team, gasnet_coll_team_node2rank(team, me)) == me);
	gasnet_coll_barrier_notify(team, 0, GASNET_BARRIERFLAG_UNNAMED);
	OK(gasnet_coll_barrier_wait(team, 0, GASNET_BARRIERFLAG_UNNAMED));
	src[0] = (int)me;
	gasnet_coll_broadcast(team, dst, 0, src, sizeof(int), GASNET_COLL_LOCAL | BOTH);
	CHECK((gasnet_node_t)dst[0] == gasnet_coll_team_rank2node(team, 0));
	free(src);
	free(dst);
}

/* ---- start, and what a program asks ---- */

static void locks(void)
{
	gasnet_hsl_t other;

	gasnet_hsl_init(&other);
	gasnet_hsl_lock(&lock);
	OK(gasnet_hsl_trylock(&other));
	gasnet_hsl_unlock(&other);
	gasnet_hsl_unlock(&lock);
	gasnet_hsl_destroy(&other);
	gasnet_hold_interrupts();
	gasnet_resume_interrupts();
}

static void tools(void)
{
	gasnett_atomic_t number = gasnett_atomic_init(3);
	gasnett_tick_t start = gasnett_ticks_now();

	gasnett_atomic_increment(&number, GASNETT_ATOMIC_REL);
	CHECK(gasnett_atomic_read(&number, GASNETT_ATOMIC_ACQ) == 4);
	CHECK(gasnett_atomic_compare_and_swap(&number, 4, 9, 0));
	CHECK(gasnett_ticks_now() >= start && gasnett_cpu_count() >= 1);
	gasnett_local_mb();
}

/* Conditions that handlers do not change: counts, and the system's time. */
static void conditions(void)
{
	gasnett_tick_t start = gasnett_ticks_now();
	int i, looks;

	for (i = 0; i < 20; i++) {
		looks = 0;
		GASNET_BLOCKUNTIL(++looks > 3);
	}
	if (me == 0) GASNET_BLOCKUNTIL(gasnett_ticks_to_us(gasnett_ticks_now() - start) > 300000);
}

static void hook(void *base, uintptr_t size)
{
#ifdef GASNET_SEGMENT_EVERYTHING
	hook_called = base == NULL && size == UINTPTR_MAX;
#else
	hook_called = base != NULL && size == SIZE;
#endif
}

#define HANDLER(index, function) { index, (void (*)())function }

int main(int argc, char **argv)
{
	gasnet_handlerentry_t table[] = {
		HANDLER(PING, ping), HANDLER(PONG, pong), HANDLER(FIRST, medium2),
		HANDLER(FIRST + 1, answer_medium), HANDLER(FIRST + 2, long3), HANDLER(FIRST + 3, answer_long),
		HANDLER(FIRST + 4, short16), HANDLER(FIRST + 5, here), HANDLER(0, ping)
	};
	gasnet_nodeinfo_t *info;
	int count = (int)(sizeof table / sizeof *table);

	CHECK(gasnet_AMPoll() == GASNET_ERR_NOT_INIT);
	OK(gasnet_init(&argc, &argv));
	CHECK(gasnet_init(&argc, &argv) == GASNET_ERR_NOT_INIT);
	me = gasnet_mynode(), nodes = gasnet_nodes();
	next = (me + 1) % nodes, before = (me + nodes - 1) % nodes;
	CHECK(gasnet_getMaxLocalSegmentSize() >= SIZE && gasnet_getMaxGlobalSegmentSize() >= SIZE);
#ifndef GASNET_SEGMENT_EVERYTHING
	CHECK(gasnet_getMaxLocalSegmentSize() % GASNET_PAGESIZE == 0);
	CHECK(gasnet_attach(table, count, 100, 0) == GASNET_ERR_BAD_ARG);
	CHECK(gasnet_attach(table, count, gasnet_getMaxLocalSegmentSize() + GASNET_PAGESIZE, 0) == GASNET_ERR_BAD_ARG);
#endif
	gasnet_client_attach_hook = hook;
	OK(gasnet_attach(table, count, SIZE, 0));
	CHECK(table[count - 1].index == 128 && hook_called);
	CHECK(gasnet_attach(table, count, SIZE, 0) == GASNET_ERR_NOT_INIT);
	segment = (gasnet_seginfo_t *)malloc(nodes * sizeof *segment);
	OK(gasnet_getSegmentInfo(segment, (int)nodes));
#ifdef GASNET_SEGMENT_EVERYTHING
	CHECK(segment[next].size == UINTPTR_MAX && segment[next].addr == NULL);
	barrier(); /* nobody is told an address that the table is overwritten with */
	tell_where();
#else
	CHECK(segment[me].size == SIZE && (uintptr_t)segment[me].addr % GASNET_PAGESIZE == 0);
#endif
	memset(segment[me].addr, 0, SIZE); /* the own segment is memory like any other */
	info = (gasnet_nodeinfo_t *)malloc(nodes * sizeof *info);
	OK(gasnet_getNodeInfo(info, (int)nodes));
	CHECK(gasnet_getenv("GASNET_NO_SUCH_VARIABLE") == NULL && gasnet_getenv("PATH") != NULL);
	CHECK(gasnet_set_waitmode(3) == GASNET_ERR_BAD_ARG);
	OK(gasnet_set_waitmode(GASNET_WAIT_BLOCK));
	CHECK(strcmp(gasnet_ErrorName(GASNET_ERR_NOT_READY), "GASNET_ERR_NOT_READY") == 0);
	CHECK(strcmp(gasnet_ErrorName(-1), "*unknown*") == 0 && gasnet_ErrorDesc(GASNET_OK)[0] != '\0');
	barrier();

	locks();
	tools();
	conditions();
	messages();
	barrier();
	blocking();
	barrier();
	explicit_handles();
	barrier();
	implicit();
	barrier();
	scattered();
	barriers();
	collectives();
	/* Before the barrier: the first to exit ends the others, wherever they are. */
	printf("node %d: all right\n", (int)me);
	fflush(NULL);
	barrier();
	free(info);
	free(segment);
	if (argc > 1 && strcmp(argv[1], "return") == 0) return 0;
	gasnet_exit(0);
	return 1;
}
