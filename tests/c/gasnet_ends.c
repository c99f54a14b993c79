/* Ends of a program, and calls that end it. Its argument says which; node 0 does it, node 1 waits in a barrier. */
#include <gasnet.h>
#include <gasnet_vis.h>

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void leave(gasnet_token_t token, gasnet_handlerarg_t code)
{
	(void)token;
	gasnet_exit(code);
}

/* The one signal that a client may catch. */
static void quit(int number)
{
	(void)number;
	gasnet_exit(4);
}

int main(int argc, char **argv)
{
	static char outside[64] __attribute__((aligned(64)));
	gasnet_handlerentry_t table[] = { { 200, (void (*)())leave } };
	gasnet_seginfo_t segment[2];
	gasnet_hsl_t a = GASNET_HSL_INITIALIZER, b = GASNET_HSL_INITIALIZER;
	gasnet_memvec_t vector = { outside, 4 };
	const char *how;
	char *end;

	if (gasnet_init(&argc, &argv) != GASNET_OK || argc < 2) return 99;
	how = argv[1];
	if (strcmp(how, "before-attach") == 0 && gasnet_mynode() == 0) gasnet_exit(3);
	if (gasnet_attach(table, 1, 65536, 0) != GASNET_OK) return 98;
	gasnet_getSegmentInfo(segment, 2);
	end = (char *)segment[1].addr + segment[1].size;
	gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
	if (gasnet_mynode() == 1) {
		gasnet_barrier(1, 0); /* for ever */
		return 97;
	}
	if (strcmp(how, "exit") == 0) gasnet_exit(7);
	if (strcmp(how, "return") == 0) return 5;
	if (strcmp(how, "interrupt") == 0) {
		signal(SIGQUIT, quit);
		raise(SIGINT);
		GASNET_BLOCKUNTIL(0);
	}
	if (strcmp(how, "deaf") == 0 || strcmp(how, "deaf-handler") == 0) {
		if (strcmp(how, "deaf-handler") == 0) signal(SIGQUIT, quit);
		raise(SIGINT);
		for (;;) pause();
	}
	if (strcmp(how, "handler") == 0) {
		if (gasnet_AMRequestShort1(1, 200, 9) != GASNET_OK) return 96;
		GASNET_BLOCKUNTIL(0);
	}
	if (strcmp(how, "range") == 0) gasnet_put(1, end - 1, outside, 3);
	if (strcmp(how, "node") == 0) gasnet_get(outside, 2, segment[1].addr, 1);
	if (strcmp(how, "null-source") == 0) gasnet_put(1, segment[1].addr, NULL, 4);
	if (strcmp(how, "null-target") == 0) gasnet_get_nbi_bulk(NULL, 1, segment[1].addr, 4);
	if (strcmp(how, "null-handles") == 0) gasnet_wait_syncnb_all(NULL, 2);
	if (strcmp(how, "null-list") == 0) gasnet_putv_bulk(1, 1, NULL, 1, &vector);
	if (strcmp(how, "null-strides") == 0) gasnet_puts_bulk(1, segment[1].addr, NULL, outside, NULL, NULL, 1);
	if (strcmp(how, "poll-locked") == 0) {
		gasnet_hsl_lock(&a);
		gasnet_AMPoll();
	}
	if (strcmp(how, "relock") == 0) {
		gasnet_hsl_lock(&a);
		gasnet_hsl_lock(&a);
	}
	if (strcmp(how, "order") == 0) {
		gasnet_hsl_lock(&a);
		gasnet_hsl_lock(&b);
		gasnet_hsl_unlock(&a);
	}
	if (strcmp(how, "wait-twice") == 0) gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS);
	if (strcmp(how, "crash") == 0) *(volatile int *)0 = 1;
	if (strcmp(how, "misaligned") == 0) gasnet_put(1, (char *)segment[1].addr + 4, outside, 8);
	return 95;
}
