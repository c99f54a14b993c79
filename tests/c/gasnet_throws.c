/* A function of the program that does not return to its caller, which must: as C++ it throws, as C it ends its thread. The
 * argument says which function; node 1 runs it. */
#include "gasnet_check.h"
#include <gasnet_coll.h>
#include <gasnet_tools.h>

#include <pthread.h>
#include <string.h>

static const char *how;

static void leave(void)
{
#ifdef __cplusplus
	throw 7;
#else
	pthread_exit(NULL);
#endif
}

static void handler(gasnet_token_t token)
{
	(void)token;
	leave();
}

static void hook(void *base, uintptr_t size)
{
	(void)base, (void)size;
	if (gasnet_mynode() == 1 && strcmp(how, "hook") == 0) leave();
}

static void combine(void *to, size_t n, const void *left, size_t lefts, const void *right, size_t size, int flags, int arg)
{
	(void)to, (void)n, (void)left, (void)lefts, (void)right, (void)size, (void)flags, (void)arg;
	leave();
}

static void statistics(void (*print)(const char *, ...))
{
	(void)print;
	leave();
}

int main(int argc, char **argv)
{
	gasnet_handlerentry_t table[] = { { 200, (void (*)())handler } };
	gasnet_coll_fn_entry_t functions[] = { { combine, 0 } };
	int from = 1, to = 0;

	OK(gasnet_init(&argc, &argv));
	how = argv[1];
	gasnet_client_attach_hook = hook;
	OK(gasnet_attach(table, 1, GASNET_PAGESIZE, 0));
	gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
	if (strcmp(how, "handler") == 0 && gasnet_mynode() == 0) OK(gasnet_AMRequestShort0(1, 200));
	if (strcmp(how, "collective") == 0) {
		gasnet_coll_init(NULL, 0, functions, 1, 0);
		gasnet_coll_reduce(GASNET_TEAM_ALL, 1, &to, &from, 0, 0, sizeof from, 1, 0, 0, GASNET_COLL_LOCAL);
	}
	if (strcmp(how, "statistics") == 0) {
		if (gasnet_mynode() == 1) (void)GASNETT_STATS_INIT(statistics);
		gasnet_exit(0);
	}
	GASNET_BLOCKUNTIL(0);
	return 0;
}
