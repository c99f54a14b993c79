/* What a call of C costs beyond the conduit's own, in one process: batches of both in turn, each after the other and
 * before it; the median of the differences. Linked with an example of the crate, which has the other side. Node 0 says it. */
#include <gasnet.h>

#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#include "gasnet_check.h"

bool costs_put(gasnet_node_t node, void *dest, const void *src, size_t n, size_t times);
bool costs_put_nb(gasnet_node_t node, void *dest, const void *src, size_t n, size_t times);
bool costs_am_short(gasnet_node_t node, gasnet_handler_t handler, gasnet_handlerarg_t a, size_t times);

enum { COUNT = 200, ASK, TELL, END, ROUNDS = 1001, PUTS = 256, SHORTS = 16 };

static volatile int told, ended;
static void *there;
static uint64_t word;

static void count(gasnet_token_t token, gasnet_handlerarg_t a)
{
	(void)token;
	(void)a;
}

static void ask(gasnet_token_t token)
{
	OK(gasnet_AMReplyShort0(token, TELL));
}

static void tell(gasnet_token_t token)
{
	(void)token;
	told++;
}

static void end(gasnet_token_t token)
{
	(void)token;
	ended = 1;
}

/* The peer has handled all. */
static void drain(void)
{
	int before = told;

	OK(gasnet_AMRequestShort0(1, ASK));
	GASNET_BLOCKUNTIL(told > before);
}

static void c_put(void)
{
	int i;

	for (i = 0; i < PUTS; i++) gasnet_put(1, there, &word, sizeof word);
}

static void rust_put(void)
{
	CHECK(costs_put(1, there, &word, sizeof word, PUTS));
}

static void c_put_nb(void)
{
	int i;

	for (i = 0; i < PUTS; i++) gasnet_wait_syncnb(gasnet_put_nb(1, there, &word, sizeof word));
}

static void rust_put_nb(void)
{
	CHECK(costs_put_nb(1, there, &word, sizeof word, PUTS));
}

static void c_short(void)
{
	int i;

	for (i = 0; i < SHORTS; i++) OK(gasnet_AMRequestShort1(1, COUNT, i));
}

static void rust_short(void)
{
	CHECK(costs_am_short(1, COUNT, 1, SHORTS));
}

/* Nanoseconds of one operation of a batch. */
static double timed(void (*batch)(void), int operations)
{
	struct timespec from, to;

	clock_gettime(CLOCK_MONOTONIC, &from);
	batch();
	clock_gettime(CLOCK_MONOTONIC, &to);
	return ((to.tv_sec - from.tv_sec) * 1e9 + (to.tv_nsec - from.tv_nsec)) / operations;
}

static int less(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *all)
{
	qsort(all, ROUNDS, sizeof *all, less);
	return all[ROUNDS / 2];
}

static void compare(const char *name, void (*c)(void), void (*rust)(void), int operations, bool messages)
{
	static double of_c[ROUNDS], of_rust[ROUNDS], more[ROUNDS];
	int i;

	for (i = 0; i < ROUNDS; i++) {
		if (i % 2) of_c[i] = timed(c, operations);
		if (messages) drain();
		of_rust[i] = timed(rust, operations);
		if (messages) drain();
		if (i % 2 == 0) of_c[i] = timed(c, operations);
		if (messages) drain();
		more[i] = of_c[i] - of_rust[i];
	}
	printf("%s: C %.1f ns, Rust %.1f ns, more %.1f ns\n", name, median(of_c), median(of_rust), median(more));
	fflush(stdout);
}

int main(int argc, char **argv)
{
	gasnet_handlerentry_t table[] = { { COUNT, (void (*)())count },
					  { ASK, (void (*)())ask },
					  { TELL, (void (*)())tell },
					  { END, (void (*)())end } };
	gasnet_seginfo_t segment[2];

	OK(gasnet_init(&argc, &argv));
	OK(gasnet_attach(table, 4, GASNET_PAGESIZE, 0));
	OK(gasnet_getSegmentInfo(segment, 2));
	there = segment[1].addr;
	gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
	if (gasnet_mynode() == 0) {
		compare("put", c_put, rust_put, PUTS, false);
		compare("put_nb", c_put_nb, rust_put_nb, PUTS, false);
		compare("AM short", c_short, rust_short, SHORTS, true);
		OK(gasnet_AMRequestShort0(1, END));
	} else
		GASNET_BLOCKUNTIL(ended);
	gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
	gasnet_exit(0);
	return 0;
}
