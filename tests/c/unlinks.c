/* UNLINK events of descriptors that go by themselves: always, or, where PORTOLAN_CRAY_UNLINK_EVENTS is set,
 * for those that ask for them. The argument is 1 if all are to come. One rank. */
#include "check.h"

enum { PORTAL = 5 };

static char bytes[64], source[8];
static ptl_handle_ni_t ni;
static ptl_handle_eq_t eq;
static ptl_handle_md_t from;
static ptl_process_id_t own;

static void put(ptl_match_bits_t bits)
{
	OK(PtlPut(from, PTL_NO_ACK_REQ, own, PORTAL, 0, bits, 0, 0));
	expect(eq, PTL_EVENT_PUT_END);
}

/* The descriptor is gone, with an event or without one. */
static void gone(ptl_handle_md_t md, int told)
{
	ptl_event_t e;

	if (told) {
		e = expect(eq, PTL_EVENT_UNLINK);
		CHECK(e.md_handle == md && e.md.user_ptr == bytes);
	}
	GIVES(PTL_EQ_EMPTY, PtlEQGet(eq, &e));
	GIVES(PTL_MD_INVALID, PtlMDUnlink(md));
}

/* A target of 64 bytes without START events, gone when its threshold is spent or, with `max_size`, when
 * less than that is left. */
static ptl_md_t target(unsigned options, int threshold, ptl_size_t max_size)
{
	ptl_md_t md = describe(bytes, sizeof bytes,
			       PTL_MD_OP_PUT | PTL_MD_EVENT_START_DISABLE | options, eq);

	md.threshold = threshold;
	md.max_size = max_size;
	if (max_size)
		md.options |= PTL_MD_MAX_SIZE;
	return md;
}

static void by_threshold(unsigned options, int told)
{
	ptl_handle_me_t me;
	ptl_handle_md_t md;

	OK(PtlMEAttach(ni, PORTAL, anyone, 1, 0, PTL_UNLINK, PTL_INS_AFTER, &me));
	OK(PtlMDAttach(me, target(options, 2, 0), PTL_UNLINK, &md));
	put(1);
	put(1);
	gone(md, told);
}

static void by_size(unsigned options, int told)
{
	ptl_handle_me_t base, me;
	ptl_handle_md_t md;
	int n;

	OK(PtlMEAttach(ni, PORTAL, anyone, 2, 0, PTL_RETAIN, PTL_INS_AFTER, &base));
	OK(PtlMEMDPost(ni, base, anyone, 1, 0, PTL_UNLINK, PTL_INS_BEFORE,
		       target(options, PTL_MD_THRESH_INF, 16), PTL_UNLINK, &me, &md, PTL_EQ_NONE));
	for (n = 0; n < 7; n++)
		put(1);
	gone(md, told);
	OK(PtlMEUnlink(base));
}

/* Of an initiator, and of a descriptor that is made with other options than it ends with. */
static void by_send_and_after_update(unsigned options, int told)
{
	ptl_md_t md = target(options, 1, 0);
	ptl_handle_me_t me;
	ptl_handle_md_t bound, late;
	ptl_md_t first = target(0, 0, 0);

	OK(PtlMEAttach(ni, PORTAL, anyone, 1, 0, PTL_UNLINK, PTL_INS_AFTER, &me));
	OK(PtlMDAttach(me, first, PTL_UNLINK, &late));
	OK(PtlMDUpdate(late, NULL, &md, PTL_EQ_NONE));
	put(1);
	gone(late, told);

	md.options &= ~PTL_MD_OP_PUT;
	OK(PtlMDBind(ni, md, PTL_UNLINK, &bound));
	/* Nothing takes it; it has been sent all the same. */
	OK(PtlPut(bound, PTL_NO_ACK_REQ, own, PORTAL, 0, 3, 0, 0));
	expect(eq, PTL_EVENT_SEND_END);
	gone(bound, told);
}

int main(int argc, char **argv)
{
	int all = argc > 1 && atoi(argv[1]);
	int ask;

	ni = open_default();
	OK(PtlGetId(ni, &own));
	OK(PtlEQAlloc(ni, 16, PTL_EQ_HANDLER_NONE, &eq));
	OK(PtlMDBind(ni, describe(source, sizeof source, 0, PTL_EQ_NONE), PTL_RETAIN, &from));
	for (ask = 0; ask < 2; ask++) {
		unsigned options = ask ? PTL_MD_EVENT_AUTO_UNLINK_ENABLE : 0;

		by_threshold(options, all || ask);
		by_size(options, all || ask);
		by_send_and_after_update(options, all || ask);
	}
	OK(PtlMDUnlink(from));
	OK(PtlEQFree(eq));
	PtlFini();
	return 0;
}
