/* What programs do at the edge of GASNet's specification, and rely on: its argument says which. Not a debug build. */
#include <gasnet_core.h>

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

static void say(void)
{
	if (end_said) fputs(end_said, stderr);
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
