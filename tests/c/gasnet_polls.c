/* Each node in turn asks the next one, which waits in a barrier, and polls in a loop until it is answered. */
#include <gasnet.h>
#include <stdio.h>

static volatile int answers;

static void ask(gasnet_token_t token)
{
	gasnet_AMReplyShort0(token, 201);
}

static void answer(gasnet_token_t token)
{
	(void)token;
	answers++;
}

static void barrier(void)
{
	gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
	if (gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS) != GASNET_OK) gasnet_exit(1);
}

int main(int argc, char **argv)
{
	gasnet_handlerentry_t table[] = {{200, (void (*)())ask}, {201, (void (*)())answer}};
	gasnet_node_t turn;

	if (gasnet_init(&argc, &argv) != GASNET_OK) return 1;
	if (gasnet_attach(table, 2, 65536, 0) != GASNET_OK) return 1;
	barrier();
	for (turn = 0; turn < gasnet_nodes(); turn++) {
		if (turn == gasnet_mynode()) {
			int before = answers;

			gasnet_AMRequestShort0((turn + 1) % gasnet_nodes(), 200);
			while (answers == before) gasnet_AMPoll();
		}
		barrier();
	}
	printf("node %d: all right\n", (int)gasnet_mynode());
	barrier();
	gasnet_exit(0);
	return 0;
}
