/* The clock of an interface and computing, on every fabric; what is virtual is printed, to be compared with another run.
 * Any number of ranks. */
#include "check.h"

enum { PORTAL = 4, SIZE = 4096, ROUNDS = 6 };

static char from[SIZE], to[SIZE];
static ptl_handle_ni_t ni;
static uint64_t last;

static uint64_t now(int *kind)
{
	uint64_t at = 0;

	OK(PtlNIClock(ni, &at, kind));
	CHECK(at >= last);
	return last = at;
}

/* Puts to the own rank: the time from each to its event. */
static void puts_to_itself(unsigned rank, int is_virtual)
{
	ptl_process_id_t own;
	ptl_handle_me_t me;
	ptl_handle_md_t target, source;
	ptl_handle_eq_t eq;
	int i;

	OK(PtlGetId(ni, &own));
	OK(PtlEQAlloc(ni, 16, PTL_EQ_HANDLER_NONE, &eq));
	OK(PtlMEAttach(ni, PORTAL, anyone, 0, 0, PTL_RETAIN, PTL_INS_AFTER, &me));
	OK(PtlMDAttach(me, describe(to, SIZE, PTL_MD_OP_PUT | PTL_MD_MANAGE_REMOTE | PTL_MD_EVENT_START_DISABLE, eq), PTL_RETAIN, &target));
	OK(PtlMDBind(ni, describe(from, SIZE, 0, PTL_EQ_NONE), PTL_RETAIN, &source));
	for (i = 0; i < ROUNDS; i++) {
		uint64_t start = now(NULL);

		OK(PtlPutRegion(source, 0, SIZE >> i, PTL_NO_ACK_REQ, own, PORTAL, 0, 0, 0, 0));
		expect(eq, PTL_EVENT_PUT_END);
		CHECK(now(NULL) > start || !is_virtual);
		if (is_virtual) printf("rank %u: %d bytes in %llu\n", rank, SIZE >> i, (unsigned long long)(last - start));
	}
}

int main(void)
{
	uint64_t start;
	unsigned rank, size;
	int kind = -1;

	CHECK(PTL_HAVE_NI_CLOCK && PTL_HAVE_NI_COMPUTE);
	ni = open_default();
	OK(PtlGetRank(ni, &rank, &size));
	start = now(&kind);
	CHECK(kind == PTL_CLOCK_HOST || kind == PTL_CLOCK_VIRTUAL);
	if (kind == PTL_CLOCK_VIRTUAL) {
		/* Nothing takes time but calls. */
		CHECK(now(NULL) == start && now(NULL) == start);
		OK(PtlNICompute(ni, 123456));
		CHECK(now(NULL) == start + 123456);
	} else {
		OK(PtlNICompute(ni, UINT64_MAX));
	}
	puts_to_itself(rank, kind == PTL_CLOCK_VIRTUAL);
	for (start = now(NULL); now(NULL) - start < 50000;) continue;
	CHECK(kind == PTL_CLOCK_HOST || last - start == 50000);
	if (kind == PTL_CLOCK_VIRTUAL) {
		unsigned readings = 0;

		/* A tenth of a second is not waited for in steps of a microsecond, and not missed by more than a thousandth. */
		for (start = now(NULL); now(NULL) - start < 100000000;) readings++;
		CHECK(readings < 120000 && last - start < 100101000);
	}
	printf("rank %u: %s at %llu\n", rank, kind == PTL_CLOCK_VIRTUAL ? "virtual" : "host",
	       kind == PTL_CLOCK_VIRTUAL ? (unsigned long long)last : 0);
	PtlFini();
	return 0;
}
