/* Rank 0 gets from and puts to memory of rank 1 that may not be accessed, which ends each operation with a
 * failure. The library says so on standard error; with the argument "unheard" that is a disk that is full. */
#include "check.h"

#include <cnos_mpi_os.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PORTAL = 12, ROUNDS = 4 };

static const ptl_size_t LENGTH = 65536;

/* Takes the next event, which is of this kind, and says whether it fails. */
static int fails(ptl_handle_eq_t eq, ptl_event_kind_t kind)
{
	ptl_event_t event;
	int which;

	OK(PtlEQPoll(&eq, 1, 20000, &event, &which));
	CHECK(event.type == kind);
	return event.ni_fail_type != PTL_NI_OK;
}

/* The start and the failed end of an operation. */
static void fails_once(ptl_handle_eq_t eq, ptl_event_kind_t start, ptl_event_kind_t end)
{
	CHECK(!fails(eq, start));
	CHECK(fails(eq, end));
}

int main(int argc, char **argv)
{
	ptl_handle_ni_t ni;
	ptl_handle_eq_t eq;
	ptl_handle_me_t me;
	ptl_handle_md_t md;
	ptl_process_id_t other;
	ptl_event_t event;
	unsigned rank, size;
	void *memory;
	int i, full;

	if (argc > 1 && strcmp(argv[1], "unheard") == 0) {
		full = open("/dev/full", O_WRONLY);
		CHECK(full >= 0 && dup2(full, STDERR_FILENO) == STDERR_FILENO);
	}
	ni = open_default();
	OK(PtlGetRank(ni, &rank, &size));
	CHECK(size == 2);
	OK(PtlGetRankId(ni, 1 - rank, &other));
	OK(PtlEQAlloc(ni, 64, PTL_EQ_HANDLER_NONE, &eq));
	memory = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED);
	memset(memory, 1, LENGTH);
	if (rank == 1) {
		OK(PtlMEAttach(ni, PORTAL, anyone, 0, 0, PTL_RETAIN, PTL_INS_AFTER, &me));
		OK(PtlMDAttach(me,
			       describe(memory, LENGTH,
					PTL_MD_OP_PUT | PTL_MD_OP_GET | PTL_MD_MANAGE_REMOTE, eq),
			       PTL_RETAIN, &md));
		CHECK(mprotect(memory, LENGTH, PROT_NONE) == 0);
	} else {
		OK(PtlMDBind(ni, describe(memory, LENGTH, 0, eq), PTL_RETAIN, &md));
	}
	CHECK(cnos_barrier() == 0);
	for (i = 0; i < ROUNDS; i++) {
		if (rank == 0) {
			OK(PtlGet(md, other, PORTAL, 0, 0, 0));
			fails_once(eq, PTL_EVENT_REPLY_START, PTL_EVENT_REPLY_END);
			OK(PtlPut(md, PTL_ACK_REQ, other, PORTAL, 0, 0, 0, 0));
			fails_once(eq, PTL_EVENT_SEND_START, PTL_EVENT_SEND_END);
			CHECK(fails(eq, PTL_EVENT_ACK));
		} else {
			fails_once(eq, PTL_EVENT_GET_START, PTL_EVENT_GET_END);
			fails_once(eq, PTL_EVENT_PUT_START, PTL_EVENT_PUT_END);
		}
	}
	CHECK(cnos_barrier() == 0);
	GIVES(PTL_EQ_EMPTY, PtlEQGet(eq, &event));
	return 0;
}
