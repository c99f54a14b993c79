/* Ends of a program, and calls that end it. Its argument says which; node 0 does it, node 1 waits in a barrier. */
#include <gasnet.h>
#include <gasnet_coll.h>
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

static gasnet_hsl_t a = GASNET_HSL_INITIALIZER, b = GASNET_HSL_INITIALIZER;

static void keeps_a_lock(gasnet_token_t token)
{
	(void)token;
	gasnet_hsl_lock(&a); /* kept by a handler */
}

static void replies_with_a_lock(gasnet_token_t token)
{
	gasnet_hsl_lock(&a);
	if (gasnet_AMReplyShort0(token, 201) == GASNET_OK) gasnet_hsl_unlock(&a);
}

/* What the rules of locks and sections forbid. */
static void wrong_locks(const char *how)
{
	gasnet_hsl_t mine;

	memset(&mine, 0, sizeof mine);
	if (strcmp(how, "unlock") == 0) gasnet_hsl_unlock(&a);
	if (strcmp(how, "uninitialised") == 0) gasnet_hsl_lock(&mine);
	if (strcmp(how, "init-twice") == 0) gasnet_hsl_init(&a);
	if (strcmp(how, "destroy-held") == 0) {
		gasnet_hsl_lock(&a);
		gasnet_hsl_destroy(&a); /* held: destroyed */
	}
	if (strcmp(how, "destroy-twice") == 0) {
		gasnet_hsl_destroy(&a);
		gasnet_hsl_destroy(&a); /* destroyed again */
	}
	if (strcmp(how, "hold-twice") == 0) {
		gasnet_hold_interrupts();
		gasnet_hold_interrupts(); /* held again */
	}
	if (strcmp(how, "resume") == 0) gasnet_resume_interrupts();
	if (strcmp(how, "put-section") == 0) {
		gasnet_hold_interrupts();
		gasnet_put_val(0, &mine, 1, 1);
	}
	if (strcmp(how, "send-locked") == 0) {
		gasnet_hsl_lock(&a);
		if (gasnet_AMRequestShort1(1, 200, 9) != GASNET_OK) gasnet_exit(94);
	}
	if (strcmp(how, "handler-lock") == 0 && gasnet_AMRequestShort0(0, 201) != GASNET_OK) gasnet_exit(93);
	if (strcmp(how, "reply-locked") == 0 && gasnet_AMRequestShort0(0, 202) != GASNET_OK) gasnet_exit(92);
}

/* Operations that do not fit together, handles that are none. */
static void wrong_operations(const char *how, char *there)
{
	static char here[8];
	gasnet_memvec_t four = { here, 4 }, five = { there, 5 };
	void *places[] = { there };
	int own[4] = { 0, 0, 0, 0 };
	size_t strides[1] = { 8 };

	if (strcmp(how, "region-twice") == 0) {
		gasnet_begin_nbi_accessregion();
		gasnet_begin_nbi_accessregion(); /* begun again */
	}
	if (strcmp(how, "region-end") == 0) gasnet_end_nbi_accessregion();
	if (strcmp(how, "notify-twice") == 0) {
		gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
		gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS); /* notified again */
	}
	if (strcmp(how, "region-puts") == 0) {
		gasnet_begin_nbi_accessregion();
		gasnet_wait_syncnbi_puts(); /* of a region */
	}
	if (strcmp(how, "region-all") == 0) {
		gasnet_begin_nbi_accessregion();
		gasnet_try_syncnbi_all(); /* of both */
	}
	if (strcmp(how, "handle-twice") == 0) {
		gasnet_handle_t handle;

		gasnet_begin_nbi_accessregion();
		handle = gasnet_end_nbi_accessregion();
		gasnet_wait_syncnb(handle);
		gasnet_wait_syncnb(handle); /* once more */
	}
	if (strcmp(how, "handle-none") == 0) gasnet_try_syncnb((gasnet_handle_t)(uintptr_t)4711);
	if (strcmp(how, "handles-none") == 0) {
		gasnet_handle_t handles[] = { GASNET_INVALID_HANDLE, (gasnet_handle_t)(uintptr_t)4711 };

		gasnet_wait_syncnb_some(handles, 2);
	}
	if (strcmp(how, "value-length") == 0) gasnet_put_val(1, there, 0, 9);
	if (strcmp(how, "value-nothing") == 0) gasnet_get_val(1, there, 0);
	if (strcmp(how, "value-twice") == 0) {
		gasnet_valget_handle_t value = gasnet_get_nb_val(1, there, 8);

		gasnet_wait_syncnb_valget(value);
		gasnet_wait_syncnb_valget(value); /* had already */
	}
	if (strcmp(how, "totals") == 0) gasnet_putv_bulk(1, 1, &five, 1, &four);
	if (strcmp(how, "indexed-totals") == 0) gasnet_geti_bulk(1, places, 8, 1, 1, places, 4);
	if (strcmp(how, "vector-range") == 0) {
		five.addr = there - 2;
		four.len = 5;
		gasnet_putv_bulk(1, 1, &five, 1, &four); /* five of five */
	}
	if (strcmp(how, "vector-lengths") == 0) {
		gasnet_memvec_t here_too[] = { { here, SIZE_MAX }, { here, 1 } };
		gasnet_memvec_t there_too[] = { { there, SIZE_MAX }, { there, 1 } };

		gasnet_putv_bulk(1, 2, there_too, 2, here_too);
	}
	if (strcmp(how, "strided-range") == 0) {
		size_t count[2] = { 8, 100000 };

		gasnet_gets_bulk(here, strides, 1, there, strides, count, 1);
	}
	if (strcmp(how, "coll-root") == 0)
		gasnet_coll_broadcast(GASNET_TEAM_ALL, own, 2, own, 4, GASNET_COLL_LOCAL | GASNET_COLL_IN_ALLSYNC);
	if (strcmp(how, "coll-function") == 0)
		gasnet_coll_reduce(GASNET_TEAM_ALL, 0, own, own, 0, 0, 4, 1, 7, 0, GASNET_COLL_LOCAL);
	if (strcmp(how, "coll-team") == 0) gasnet_coll_team_size((gasnet_team_handle_t)(uintptr_t)99);
	if (strcmp(how, "coll-length") == 0)
		gasnet_coll_gather_all(GASNET_TEAM_ALL, own, own, SIZE_MAX / 2 + 1, GASNET_COLL_LOCAL);
	if (strcmp(how, "coll-blocks") == 0)
		gasnet_coll_exchange_nb(GASNET_TEAM_ALL, own, own, SIZE_MAX / 2 + 2, GASNET_COLL_LOCAL);
	if (strcmp(how, "coll-source") == 0)
		gasnet_coll_broadcast(GASNET_TEAM_ALL, own, 0, NULL, 4, GASNET_COLL_LOCAL);
	if (strcmp(how, "coll-target") == 0)
		gasnet_coll_gather(GASNET_TEAM_ALL, 0, NULL, own, 4, GASNET_COLL_LOCAL);
	if (strcmp(how, "coll-handle") == 0) gasnet_coll_wait_sync((gasnet_coll_handle_t)(uintptr_t)4711);
	if (strcmp(how, "coll-handles") == 0) {
		gasnet_coll_handle_t handles[] = { (gasnet_coll_handle_t)(uintptr_t)4712 };

		gasnet_coll_wait_sync_all(handles, 1);
	}
	if (strcmp(how, "coll-images") == 0) {
		gasnet_image_t images[] = { 1u << 31, 1u << 31 };

		gasnet_coll_init(images, 0, NULL, 0, 0);
	}
	if (strcmp(how, "coll-wait") == 0) gasnet_coll_barrier_wait(GASNET_TEAM_ALL, 0, 0);
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
	gasnet_handlerentry_t table[] = { { 200, (void (*)())leave },
					  { 201, (void (*)())keeps_a_lock },
					  { 202, (void (*)())replies_with_a_lock } };
	gasnet_seginfo_t segment[2];
	gasnet_memvec_t vector = { outside, 4 };
	const char *how;
	char *end;

	if (gasnet_init(&argc, &argv) != GASNET_OK || argc < 2) return 99;
	how = argv[1];
	if (strcmp(how, "before-attach") == 0 && gasnet_mynode() == 0) gasnet_exit(3);
	if (gasnet_attach(table, 3, 65536, 0) != GASNET_OK) return 98;
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
	wrong_locks(how);
	wrong_operations(how, (char *)segment[1].addr);
	if (strcmp(how, "misaligned") == 0) gasnet_put(1, (char *)segment[1].addr + 4, outside, 8);
	return 95;
}
