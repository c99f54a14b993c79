/* What programs do at the edge of GASNet's specification, and rely on: its argument says which. Not a debug build. */
#include <gasnet_core.h>

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gasnet_check.h"

enum { ASK = 200, ANSWER = 201 };

static int asked;
static volatile int answer;

static void ask(gasnet_token_t token)
{
	OK(gasnet_AMReplyShort1(token, ANSWER, ++asked >= 3));
}

static void answered(gasnet_token_t token, gasnet_handlerarg_t yes)
{
	(void)token;
	answer = yes + 1;
}

/* As a lock that another node keeps is tried. */
static int try_there(void)
{
	answer = 0;
	OK(gasnet_AMRequestShort0(0, ASK));
	GASNET_BLOCKUNTIL(answer);
	return answer - 1;
}

static const char *end_said;

static void use_gasnet(void)
{
	gasnet_exit(0);
}

static void end_by_signal(int number)
{
	(void)number;
	gasnet_exit(7);
}

static void say(void)
{
	if (end_said) fputs(end_said, stderr);
}

/* Values and memset, in memory of the own node outside of its segment. */
static void own_values(int here)
{
	uint32_t v[3] = { 1, 2, 3 };
	unsigned char set[9] = "12345678";

	gasnet_put_val(here, &v[0], 10, sizeof v[0]);
	gasnet_wait_syncnb(gasnet_put_nb_val(here, &v[1], 20, sizeof v[1]));
	gasnet_put_nbi_val(here, &v[2], 30, sizeof v[2]);
	gasnet_wait_syncnbi_puts();
	CHECK(v[0] == 10 && v[1] == 20 && v[2] == 30);
	CHECK(gasnet_get_val(here, &v[1], sizeof v[1]) == 20);
	CHECK(gasnet_wait_syncnb_valget(gasnet_get_nb_val(here, &v[2], sizeof v[2])) == 30);
	gasnet_memset(here, set, 'a', 2);
	gasnet_wait_syncnb(gasnet_memset_nb(here, set + 2, 'b', 2));
	gasnet_memset_nbi(here, set + 4, 'c', 2);
	gasnet_wait_syncnbi_puts();
	CHECK(strcmp((char *)set, "aabbcc78") == 0);
}

/* Ranges without bytes may be anywhere, at any node. */
static void nothing(gasnet_node_t node)
{
	int beside = 5;

	gasnet_put(node, NULL, &beside, 0);
	gasnet_get(&beside, node, NULL, 0);
	gasnet_put_bulk(node, &beside, NULL, 0);
	gasnet_memset(node, NULL, 1, 0);
	gasnet_wait_syncnb(gasnet_put_nb(node, NULL, &beside, 0));
	gasnet_wait_syncnb(gasnet_get_nb_bulk(NULL, node, NULL, 0));
	gasnet_put_nbi(node, NULL, &beside, 0);
	gasnet_get_nbi(&beside, node, NULL, 0);
	gasnet_memset_nbi(node, NULL, 1, 0);
	gasnet_wait_syncnbi_all();
	CHECK(beside == 5);
}

/* Scattered memory of the own node, outside of its segment. */
static void own_pieces(int here)
{
	char from[] = "abcdefgh", to[] = "........";
	gasnet_memvec_t two[2] = { { from + 1, 2 }, { from + 5, 1 } }, one = { to, 3 };
	void *parts[2] = { to + 6, to + 4 }, *all[1] = { from };
	size_t stride = 4, close = 2, count[2] = { 2, 2 };

	gasnet_putv_bulk(here, 1, &one, 2, two);
	CHECK(strcmp(to, "bcf.....") == 0);
	gasnet_wait_syncnb(gasnet_geti_nb_bulk(2, parts, 2, here, 1, all, 4));
	CHECK(strcmp(to, "bcf.cdab") == 0);
	gasnet_puts_nbi_bulk(here, to, &close, from, &stride, count, 1);
	gasnet_wait_syncnbi_all();
	CHECK(strcmp(to, "abefcdab") == 0);
}

/* Within the own segment, where source and destination may overlap, or be the same. */
static void own_segment(int here)
{
	enum { LENGTH = 2 * GASNET_PAGESIZE };
	static unsigned char data[LENGTH];
	gasnet_seginfo_t segments[8];
	unsigned char *from;
	size_t by, i;

	CHECK(gasnet_nodes() <= 8);
	OK(gasnet_getSegmentInfo(segments, (int)gasnet_nodes()));
	from = segments[here].addr;
	for (i = 0; i < LENGTH; i++) data[i] = (unsigned char)(i ^ i >> 8);
	for (by = 0; by < 4; by += 3) {
		memcpy(from, data, LENGTH);
		gasnet_put_bulk(here, from + by, from, LENGTH);
		CHECK(memcmp(from + by, data, LENGTH) == 0);
		memcpy(from, data, LENGTH);
		gasnet_get_bulk(from + by, here, from, LENGTH);
		CHECK(memcmp(from + by, data, LENGTH) == 0);
	}
}

static void meet(void)
{
	OK(gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS));
}

int main(int argc, char **argv)
{
	gasnet_handlerentry_t table[] = { { ASK, (void (*)())ask }, { ANSWER, (void (*)())answered } };
	gasnet_seginfo_t segments[8];
	gasnet_hsl_t lock = GASNET_HSL_INITIALIZER;
	const char *how = argc > 1 ? argv[1] : "";
	int locked = strcmp(how, "lock") == 0;

	if (strstr(how, "handlers")) {
		CHECK(atexit(use_gasnet) == 0);
		CHECK(atexit(say) == 0);
	}
	if (locked) gasnet_hsl_lock(&lock);
	OK(gasnet_init(&argc, &argv));
	OK(gasnet_attach(table, 2, 4 * GASNET_PAGESIZE, 0));
	if (locked) {
		/* A query, of a thread that holds a lock. */
		OK(gasnet_getSegmentInfo(segments, (int)gasnet_nodes()));
		gasnet_hsl_unlock(&lock);
	}
	meet();
	if (strcmp(how, "exit, handlers") == 0) {
		end_said = "a handler ran\n";
		/* Without an end of line: it is written all the same. */
		printf("the last words");
		gasnet_exit(7);
	}
	if (strcmp(how, "another's exit, handlers") == 0) {
		end_said = "a handler ran\n";
		if (gasnet_mynode() == 0) gasnet_exit(7);
		for (;;) OK(gasnet_AMPoll());
	}
	if (strcmp(how, "return, handlers") == 0) {
		end_said = "a handler ran\n";
		return 7;
	}
	if (strcmp(how, "signal") == 0) {
		CHECK(signal(SIGALRM, end_by_signal) != SIG_ERR);
		if (gasnet_mynode() == 0) alarm(1);
		for (;;) OK(gasnet_AMPoll());
	}
	if (strcmp(how, "own") == 0) {
		int from = 7, to = 0, here = (int)gasnet_mynode();

		gasnet_get(&to, here, &from, sizeof to);
		CHECK(to == 7);
		from = 8;
		gasnet_put_bulk(here, &to, &from, sizeof to);
		CHECK(to == 8);
		from = 9;
		gasnet_wait_syncnb(gasnet_get_nb(&to, here, &from, sizeof to));
		CHECK(to == 9);
		gasnet_put_nbi(here, &from, &asked, sizeof from);
		gasnet_wait_syncnbi_all();
		CHECK(from == 0);
		own_values(here);
		own_pieces(here);
		own_segment(here);
		for (asked = 0; asked < (int)gasnet_nodes(); asked++) nothing((gasnet_node_t)asked);
	}
	if (strcmp(how, "who") == 0) printf("node %d of %d\n", (int)gasnet_mynode(), (int)gasnet_nodes());
	if (strcmp(how, "conditions") == 0) {
		int count = 0;

		GASNET_BLOCKUNTIL(++count > 10);
		if (gasnet_mynode() != 0) GASNET_BLOCKUNTIL(try_there() == 1);
	}
	meet();
	gasnet_exit(0);
	return 0;
}
