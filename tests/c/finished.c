/* After PtlNIFini the memory is the program's: rank 1 closes while puts come, rank 0 while its puts go; both use their
 * memory for something else then. What was put arrives, as it was then. */
#include <unistd.h>

#include <catamount/cnos_mpi_os.h>

#include "check.h"

enum { PORTAL = 5, PUTS = 4, LENGTH = 60000, OLD = 0x22, NEW = 0xee };

static unsigned char memory[PUTS * LENGTH], source[PUTS * LENGTH];

static void puts_of(ptl_handle_ni_t ni, ptl_process_id_t to)
{
	ptl_handle_md_t md;
	int i;

	for (i = 0; i < PUTS; i++) {
		OK(PtlMDBind(ni, describe(source + i * LENGTH, LENGTH, 0, PTL_EQ_NONE), PTL_RETAIN, &md));
		OK(PtlPut(md, PTL_NO_ACK_REQ, to, PORTAL, 0, 0, (ptl_size_t)i * LENGTH, 0));
	}
}

/* Whether the memory stays as the program fills it. */
static void close_and_use(ptl_handle_ni_t ni, unsigned char *bytes)
{
	size_t i;

	OK(PtlNIFini(ni));
	memset(bytes, NEW, PUTS * LENGTH);
	usleep(50000); /* what is under way has time to do harm */
	for (i = 0; i < PUTS * LENGTH; i++) CHECK(bytes[i] == NEW);
}

int main(int argc, char **argv)
{
	int receiver_closes = argc > 1 && strcmp(argv[1], "receiver") == 0;
	ptl_handle_ni_t ni = open_default();
	ptl_handle_me_t me;
	ptl_handle_md_t md;
	ptl_handle_eq_t eq;
	ptl_process_id_t id, to;
	ptl_event_t e;
	unsigned rank, size;
	int which, ends = 0;
	ptl_size_t i;

	OK(PtlGetRank(ni, &rank, &size));
	CHECK(size == 2);
	OK(PtlGetId(ni, &id));
	OK(PtlGetRankId(ni, 1 - rank, &to));
	memset(source, OLD, sizeof source);
	OK(PtlEQAlloc(ni, 64, PTL_EQ_HANDLER_NONE, &eq));
	OK(PtlMEAttach(ni, PORTAL, anyone, 0, 0, PTL_RETAIN, PTL_INS_AFTER, &me));
	OK(PtlMDAttach(me, describe(memory, sizeof memory, PTL_MD_OP_PUT | PTL_MD_MANAGE_REMOTE, eq), PTL_RETAIN, &md));
	CHECK(cnos_register_ptlid(id) == 0);
	cnos_barrier_init(ni);
	CHECK(cnos_barrier() == 0);
	if (rank == 0) {
		puts_of(ni, to);
		if (receiver_closes) {
			/* Time passes on the model too. */
			GIVES(PTL_EQ_EMPTY, PtlEQPoll(&eq, 1, 100, &e, &which));
			OK(PtlNIFini(ni));
		} else {
			close_and_use(ni, source);
		}
	} else if (receiver_closes) {
		do OK(PtlEQWait(eq, &e));
		while (e.type != PTL_EVENT_PUT_START);
		close_and_use(ni, memory);
	} else {
		while (ends < PUTS && PtlEQPoll(&eq, 1, 1000, &e, &which) == PTL_OK) {
			if (e.type != PTL_EVENT_PUT_END) continue;
			ends++;
			CHECK(e.ni_fail_type == PTL_NI_OK && e.mlength == LENGTH);
			for (i = 0; i < e.mlength; i++) CHECK(memory[e.offset + i] == OLD);
		}
		CHECK(ends == PUTS);
		OK(PtlNIFini(ni));
	}
	printf("rank %u: all right\n", rank);
	return 0;
}
