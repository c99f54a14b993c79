/* Every entry with every kind of bad argument: tables of calls, and what each must say of NULL, of a
 * handle that is freed, of another kind, or of another interface, and of ranges that wrap. In the end
 * nothing has been made, nothing has been lost, and the interface works. One rank. */
#include "check.h"

#include <limits.h>
#include <p3api/debug.h>

enum { PORTAL = 6 };

/* The interface under test and another one, with an object of each kind. */
static struct objects {
	ptl_handle_ni_t ni;
	ptl_handle_me_t me;
	ptl_handle_md_t md;
	ptl_handle_eq_t eq;
} good, other, freed;

static char bytes[64];
static ptl_md_t plain, wrong;
static ptl_event_t event;
static ptl_process_id_t own;
static ptl_handle_any_t out, out2;
static ptl_sr_value_t value;
static ptl_pt_index_t portal;
static unsigned long distance;
static unsigned number, number2;
static int which;

static ptl_md_t naming(ptl_handle_eq_t eq)
{
	ptl_md_t md = plain;

	md.eq_handle = eq;
	return md;
}

/* Calls with one handle in doubt. */
#define PLACE(name, call) \
	static int name(ptl_handle_any_t h) \
	{ \
		return call; \
	}
PLACE(ni_fini, PtlNIFini(h))
PLACE(ni_status, PtlNIStatus(h, PTL_SR_DROP_COUNT, &value))
PLACE(ni_dist, PtlNIDist(h, own, &distance))
PLACE(ni_clock, PtlNIClock(h, &value, &which))
PLACE(ni_compute, PtlNICompute(h, 1))
PLACE(ni_handle, PtlNIHandle(h, &out))
PLACE(get_uid, PtlGetUid(h, &number))
PLACE(get_id, PtlGetId(h, &own))
PLACE(get_jid, PtlGetJid(h, &number))
PLACE(me_attach, PtlMEAttach(h, 1, anyone, 0, 0, PTL_RETAIN, PTL_INS_AFTER, &out))
PLACE(me_attach_any, PtlMEAttachAny(h, &portal, anyone, 0, 0, PTL_RETAIN, &out))
PLACE(md_bind, PtlMDBind(h, plain, PTL_RETAIN, &out))
PLACE(eq_alloc, PtlEQAlloc(h, 4, PTL_EQ_HANDLER_NONE, &out))
PLACE(ac_entry, PtlACEntry(h, 1, anyone, PTL_UID_ANY, PTL_JID_ANY, 4))
PLACE(post_ni, PtlMEMDPost(h, good.me, anyone, 0, 0, PTL_RETAIN, PTL_INS_AFTER, plain, PTL_RETAIN,
			   &out, &out2, PTL_EQ_NONE))
PLACE(memd_attach, PtlMEMDAttach(h, 1, anyone, 0, 0, PTL_RETAIN, PTL_INS_AFTER, plain, PTL_RETAIN, &out,
				 &out2))
PLACE(memd_insert_ni, PtlMEMDInsert(h, good.me, anyone, 0, 0, PTL_RETAIN, PTL_INS_AFTER, plain,
				    PTL_RETAIN, &out, &out2))
PLACE(memd_insert_me, PtlMEMDInsert(good.ni, h, anyone, 0, 0, PTL_RETAIN, PTL_INS_AFTER, plain,
				    PTL_RETAIN, &out, &out2))
PLACE(memd_attach_eq, PtlMEMDAttach(good.ni, 1, anyone, 0, 0, PTL_RETAIN, PTL_INS_AFTER, naming(h),
				    PTL_RETAIN, &out, &out2))
PLACE(memd_insert_eq, PtlMEMDInsert(good.ni, good.me, anyone, 0, 0, PTL_RETAIN, PTL_INS_AFTER, naming(h),
				    PTL_RETAIN, &out, &out2))
PLACE(eq_dump, PtlNIEqDump(h))
PLACE(tbl_dump, PtlTblDump(h, 0))
PLACE(progress, PtlProgress(h, 0))
PLACE(get_rank, PtlGetRank(h, &number, &number2))
PLACE(get_rank_id, PtlGetRankId(h, 0, &own))
PLACE(set_rank, PtlSetRank(h, 0, 1))
PLACE(me_insert, PtlMEInsert(h, anyone, 0, 0, PTL_RETAIN, PTL_INS_AFTER, &out))
PLACE(me_unlink, PtlMEUnlink(h))
PLACE(me_dump, PtlMEDump(h))
PLACE(md_attach, PtlMDAttach(h, plain, PTL_RETAIN, &out))
PLACE(post_me, PtlMEMDPost(good.ni, h, anyone, 0, 0, PTL_RETAIN, PTL_INS_AFTER, plain, PTL_RETAIN,
			   &out, &out2, PTL_EQ_NONE))
PLACE(md_unlink, PtlMDUnlink(h))
PLACE(md_query, PtlMDUpdate(h, &wrong, NULL, PTL_EQ_NONE))
PLACE(md_update, PtlMDUpdate(h, NULL, &plain, PTL_EQ_NONE))
PLACE(put, PtlPut(h, PTL_NO_ACK_REQ, own, 63, 0, 0, 0, 0))
PLACE(put_region, PtlPutRegion(h, 0, 1, PTL_NO_ACK_REQ, own, 63, 0, 0, 0, 0))
PLACE(get, PtlGet(h, own, 63, 0, 0, 0))
PLACE(get_region, PtlGetRegion(h, 0, 1, own, 63, 0, 0, 0))
PLACE(md_md_copy, PtlMDMDCopy(h, own, 63, 0, 0, 0))
PLACE(getput_get, PtlGetPut(h, good.md, own, 63, 0, 0, 0, 0))
PLACE(getput_put, PtlGetPut(good.md, h, own, 63, 0, 0, 0, 0))
PLACE(getputr_get, PtlGetPutRegion(h, 0, good.md, 0, 1, own, 63, 0, 0, 0, 0))
PLACE(getputr_put, PtlGetPutRegion(good.md, 0, h, 0, 1, own, 63, 0, 0, 0, 0))
PLACE(eq_free, PtlEQFree(h))
PLACE(eq_get, PtlEQGet(h, &event))
PLACE(eq_wait, PtlEQWait(h, &event))
PLACE(eq_peek, PtlEQPeek(h, &event))
PLACE(eq_poll, PtlEQPoll(&h, 1, 10, &event, &which))
PLACE(bind_eq, PtlMDBind(good.ni, naming(h), PTL_RETAIN, &out))
PLACE(attach_eq, PtlMDAttach(good.me, naming(h), PTL_RETAIN, &out))
PLACE(test_eq, PtlMDUpdate(good.md, NULL, &plain, h))
PLACE(post_test, PtlMEMDPost(good.ni, good.me, anyone, 0, 0, PTL_RETAIN, PTL_INS_AFTER, plain,
			     PTL_RETAIN, &out, &out2, h))

static int poll_second(ptl_handle_any_t h)
{
	ptl_handle_eq_t both[2];

	both[0] = good.eq;
	both[1] = h;
	which = -1;
	number = (unsigned)PtlEQPoll(both, 2, 10, &event, &which);
	CHECK(which == 1);
	return (int)number;
}

static int update_eq(ptl_handle_any_t h)
{
	ptl_md_t md = naming(h);

	return PtlMDUpdate(good.md, NULL, &md, PTL_EQ_NONE);
}

enum kind { NI, ME, MD, EQ, NAMED_EQ, ANY };

/* The handle's kind, what a bad one is called, and what one of the other interface is: PTL_OK where it
 * is as good there as here (and is not tried). */
static const struct place {
	const char *name;
	int (*call)(ptl_handle_any_t);
	enum kind kind;
	int bad, elsewhere;
} places[] = {
	{"PtlNIFini", ni_fini, NI, PTL_NI_INVALID, PTL_OK},
	{"PtlNIStatus", ni_status, NI, PTL_NI_INVALID, PTL_OK},
	{"PtlNIDist", ni_dist, NI, PTL_NI_INVALID, PTL_OK},
	{"PtlNIClock", ni_clock, NI, PTL_NI_INVALID, PTL_OK},
	{"PtlNICompute", ni_compute, NI, PTL_NI_INVALID, PTL_OK},
	{"PtlNIHandle", ni_handle, ANY, PTL_HANDLE_INVALID, PTL_OK},
	{"PtlGetUid", get_uid, NI, PTL_NI_INVALID, PTL_OK},
	{"PtlGetId", get_id, NI, PTL_NI_INVALID, PTL_OK},
	{"PtlGetJid", get_jid, NI, PTL_NI_INVALID, PTL_OK},
	{"PtlMEAttach", me_attach, NI, PTL_NI_INVALID, PTL_OK},
	{"PtlMEAttachAny", me_attach_any, NI, PTL_NI_INVALID, PTL_OK},
	{"PtlMDBind", md_bind, NI, PTL_NI_INVALID, PTL_OK},
	{"PtlEQAlloc", eq_alloc, NI, PTL_NI_INVALID, PTL_OK},
	{"PtlACEntry", ac_entry, NI, PTL_NI_INVALID, PTL_OK},
	{"PtlMEMDPost, ni", post_ni, NI, PTL_NI_INVALID, PTL_ME_INVALID},
	{"PtlMEMDAttach", memd_attach, NI, PTL_NI_INVALID, PTL_OK},
	{"PtlMEMDInsert, ni", memd_insert_ni, NI, PTL_NI_INVALID, PTL_ME_INVALID},
	{"PtlMEMDInsert, me", memd_insert_me, ME, PTL_ME_INVALID, PTL_ME_INVALID},
	{"PtlMEMDAttach, eq_handle", memd_attach_eq, NAMED_EQ, PTL_EQ_INVALID, PTL_MD_ILLEGAL},
	{"PtlMEMDInsert, eq_handle", memd_insert_eq, NAMED_EQ, PTL_EQ_INVALID, PTL_MD_ILLEGAL},
	{"PtlNIEqDump", eq_dump, NI, PTL_NI_INVALID, PTL_OK},
	{"PtlTblDump", tbl_dump, NI, PTL_NI_INVALID, PTL_OK},
	{"PtlProgress", progress, ANY, PTL_NI_INVALID, PTL_OK},
	{"PtlGetRank", get_rank, NI, PTL_HANDLE_INVALID, PTL_OK},
	{"PtlGetRankId", get_rank_id, NI, PTL_HANDLE_INVALID, PTL_OK},
	{"PtlSetRank", set_rank, NI, PTL_HANDLE_INVALID, PTL_OK},
	{"PtlMEInsert", me_insert, ME, PTL_ME_INVALID, PTL_OK},
	{"PtlMEUnlink", me_unlink, ME, PTL_ME_INVALID, PTL_OK},
	{"PtlMEDump", me_dump, ME, PTL_ME_INVALID, PTL_OK},
	{"PtlMDAttach", md_attach, ME, PTL_ME_INVALID, PTL_OK},
	{"PtlMEMDPost, me", post_me, ME, PTL_ME_INVALID, PTL_ME_INVALID},
	{"PtlMDUnlink", md_unlink, MD, PTL_MD_INVALID, PTL_OK},
	{"PtlMDUpdate, query", md_query, MD, PTL_MD_INVALID, PTL_OK},
	{"PtlMDUpdate", md_update, MD, PTL_MD_INVALID, PTL_OK},
	{"PtlPut", put, MD, PTL_MD_INVALID, PTL_OK},
	{"PtlPutRegion", put_region, MD, PTL_MD_INVALID, PTL_OK},
	{"PtlGet", get, MD, PTL_MD_INVALID, PTL_OK},
	{"PtlGetRegion", get_region, MD, PTL_MD_INVALID, PTL_OK},
	{"PtlMDMDCopy", md_md_copy, MD, PTL_MD_INVALID, PTL_OK},
	{"PtlGetPut, get", getput_get, MD, PTL_MD_INVALID, PTL_MD_ILLEGAL},
	{"PtlGetPut, put", getput_put, MD, PTL_MD_INVALID, PTL_MD_ILLEGAL},
	{"PtlGetPutRegion, get", getputr_get, MD, PTL_MD_INVALID, PTL_MD_ILLEGAL},
	{"PtlGetPutRegion, put", getputr_put, MD, PTL_MD_INVALID, PTL_MD_ILLEGAL},
	{"PtlEQFree", eq_free, EQ, PTL_EQ_INVALID, PTL_OK},
	{"PtlEQGet", eq_get, EQ, PTL_EQ_INVALID, PTL_OK},
	{"PtlEQWait", eq_wait, EQ, PTL_EQ_INVALID, PTL_OK},
	{"PtlEQPeek", eq_peek, EQ, PTL_EQ_INVALID, PTL_OK},
	{"PtlEQPoll", eq_poll, EQ, PTL_EQ_INVALID, PTL_OK},
	{"PtlEQPoll, second", poll_second, EQ, PTL_EQ_INVALID, PTL_EQ_INVALID},
	{"PtlMDBind, eq_handle", bind_eq, NAMED_EQ, PTL_EQ_INVALID, PTL_MD_ILLEGAL},
	{"PtlMDAttach, eq_handle", attach_eq, NAMED_EQ, PTL_EQ_INVALID, PTL_MD_ILLEGAL},
	{"PtlMDUpdate, eq_handle", update_eq, NAMED_EQ, PTL_EQ_INVALID, PTL_MD_ILLEGAL},
	{"PtlMDUpdate, test queue", test_eq, NAMED_EQ, PTL_EQ_INVALID, PTL_EQ_INVALID},
	{"PtlMEMDPost, test queue", post_test, NAMED_EQ, PTL_EQ_INVALID, PTL_EQ_INVALID},
};

static void is(const char *name, const char *what, int got, int code)
{
	if (got == code)
		return;
	fprintf(stderr, "%s of %s gave %s, not %s\n", name, what, PtlErrorStr((unsigned)got),
		PtlErrorStr((unsigned)code));
	exit(1);
}

/* Scenarios 8, 9 and 13. */
static void handles(void)
{
	const struct {
		const char *what;
		ptl_handle_any_t handle;
		int kind;
	} bad[] = {
		{"PTL_INVALID_HANDLE", PTL_INVALID_HANDLE, -1},
		{"PTL_HANDLE_NONE", PTL_HANDLE_NONE, -1},
		{"PTL_EQ_NONE", PTL_EQ_NONE, -2},
		{"0", 0, -1},
		{"1", 1, -1},
		{"the first handle of the reference", 0x70000, -1},
		{"a closed interface", freed.ni, -1},
		{"a freed entry", freed.me, -1},
		{"a freed descriptor", freed.md, -1},
		{"a freed queue", freed.eq, -1},
		{"an interface", good.ni, NI},
		{"an entry", good.me, ME},
		{"a descriptor", good.md, MD},
		{"a queue", good.eq, EQ},
	};
	unsigned i, j;

	for (i = 0; i < sizeof places / sizeof *places; i++) {
		const struct place *p = &places[i];

		for (j = 0; j < sizeof bad / sizeof *bad; j++) {
			int fits = bad[j].kind == (int)p->kind ||
				   (p->kind == NAMED_EQ && bad[j].kind == EQ) ||
				   (p->kind == ANY && bad[j].kind >= 0);

			/* No queue is a queue where one is named; no interface is the next one. */
			if (fits || (p->kind == NAMED_EQ && bad[j].kind == -2) ||
			    (bad[j].handle == PTL_INVALID_HANDLE && p->kind == NI &&
			     p->bad == PTL_HANDLE_INVALID))
				continue;
			/* A handle of a closed interface may be called one of another interface. */
			number = (unsigned)p->call(bad[j].handle);
			if (p->kind == NAMED_EQ && number == PTL_MD_ILLEGAL)
				number = (unsigned)p->bad;
			is(p->name, bad[j].what, (int)number, p->bad);
		}
		if (p->elsewhere != PTL_OK) {
			ptl_handle_any_t there = p->kind == NI   ? other.ni
						 : p->kind == ME ? other.me
						 : p->kind == MD ? other.md
								 : other.eq;

			is(p->name, "another interface's handle", p->call(there), p->elsewhere);
		}
	}
}

/* Scenario 12: calls with a pointer of NULL, everything else being right. */
#define NULLS(call) {#call, call}
static void pointers(void)
{
	const struct {
		const char *name;
		int got;
	} calls[] = {
		NULLS(PtlNIInit(PTL_IFACE_DEFAULT, PTL_PID_ANY, NULL, NULL, NULL)),
		NULLS(PtlNIStatus(good.ni, 0, NULL)),
		NULLS(PtlNIDist(good.ni, own, NULL)),
		NULLS(PtlNIClock(good.ni, NULL, &which)),
		NULLS(PtlNIHandle(good.me, NULL)),
		NULLS(PtlGetUid(good.ni, NULL)),
		NULLS(PtlGetId(good.ni, NULL)),
		NULLS(PtlGetJid(good.ni, NULL)),
		NULLS(PtlMEAttach(good.ni, 1, anyone, 0, 0, PTL_RETAIN, PTL_INS_AFTER, NULL)),
		NULLS(PtlMEAttachAny(good.ni, NULL, anyone, 0, 0, PTL_RETAIN, &out)),
		NULLS(PtlMEAttachAny(good.ni, &portal, anyone, 0, 0, PTL_RETAIN, NULL)),
		NULLS(PtlMEInsert(good.me, anyone, 0, 0, PTL_RETAIN, PTL_INS_AFTER, NULL)),
		NULLS(PtlMDAttach(good.me, plain, PTL_RETAIN, NULL)),
		NULLS(PtlMDBind(good.ni, plain, PTL_RETAIN, NULL)),
		NULLS(PtlMEMDPost(good.ni, good.me, anyone, 0, 0, PTL_RETAIN, PTL_INS_AFTER, plain,
				  PTL_RETAIN, NULL, &out, PTL_EQ_NONE)),
		NULLS(PtlMEMDPost(good.ni, good.me, anyone, 0, 0, PTL_RETAIN, PTL_INS_AFTER, plain,
				  PTL_RETAIN, &out, NULL, PTL_EQ_NONE)),
		NULLS(PtlMEMDAttach(good.ni, 1, anyone, 0, 0, PTL_RETAIN, PTL_INS_AFTER, plain,
				    PTL_RETAIN, NULL, &out)),
		NULLS(PtlMEMDAttach(good.ni, 1, anyone, 0, 0, PTL_RETAIN, PTL_INS_AFTER, plain,
				    PTL_RETAIN, &out, NULL)),
		NULLS(PtlMEMDInsert(good.ni, good.me, anyone, 0, 0, PTL_RETAIN, PTL_INS_AFTER, plain,
				    PTL_RETAIN, NULL, &out)),
		NULLS(PtlMEMDInsert(good.ni, good.me, anyone, 0, 0, PTL_RETAIN, PTL_INS_AFTER, plain,
				    PTL_RETAIN, &out, NULL)),
		NULLS(PtlEQAlloc(good.ni, 4, PTL_EQ_HANDLER_NONE, NULL)),
		NULLS(PtlEQGet(good.eq, NULL)),
		NULLS(PtlEQWait(good.eq, NULL)),
		NULLS(PtlEQPeek(good.eq, NULL)),
		NULLS(PtlEQPoll(NULL, 1, 0, &event, &which)),
		NULLS(PtlEQPoll(&good.eq, 1, 0, NULL, &which)),
		NULLS(PtlEQPoll(&good.eq, 1, 0, &event, NULL)),
		NULLS(PtlGetRank(good.ni, NULL, &number)),
		NULLS(PtlGetRank(good.ni, &number, NULL)),
		NULLS(PtlGetRankId(good.ni, 0, NULL)),
		NULLS(PtlGetNIDMap(good.ni, NULL, 1)),
		NULLS(PtlGetPIDMap(good.ni, NULL, 1)),
	};
	unsigned i;

	for (i = 0; i < sizeof calls / sizeof *calls; i++)
		is(calls[i].name, "NULL", calls[i].got, PTL_SEGV);
	/* What is not wanted may be NULL. */
	OK(PtlMDUpdate(good.md, NULL, NULL, PTL_EQ_NONE));
}

/* Rules 8, 23 and 67: ranges that are too long, or whose end is past the largest address. */
static void lengths(void)
{
	static const ptl_size_t all = ~(ptl_size_t)0;
	const struct {
		ptl_size_t offset, length;
	} regions[] = {
		{65, 0}, {64, 1}, {0, 65}, {1, 64}, {all, 0}, {all, 1}, {1, all}, {all, all}, {32, all - 31},
	};
	const struct {
		void *start;
		ptl_size_t length;
		unsigned options;
	} memory[] = {
		{NULL, 1, 0},
		{bytes, all, 0},
		{bytes, all - 63, 0},
		{(void *)(uintptr_t)-1, 2, 0},
		{(void *)(uintptr_t)-64, 64, 0},
		{NULL, 1, PTL_MD_IOVEC},
		{bytes, 65, PTL_MD_IOVEC},
		{bytes, all, PTL_MD_IOVEC},
		{bytes, (ptl_size_t)1 << 60, PTL_MD_IOVEC},
	};
	static const ptl_size_t counts[] = {((ptl_size_t)1 << 24) + 1, (ptl_size_t)1 << 32, ~(ptl_size_t)0};
	static const int sizes[] = {0, -1, INT_MIN};
	ptl_md_iovec_t two[2];
	unsigned i;

	for (i = 0; i < sizeof regions / sizeof *regions; i++) {
		ptl_size_t at = regions[i].offset, length = regions[i].length;

		is("PtlPutRegion", "a range outside",
		   PtlPutRegion(good.md, at, length, PTL_ACK_REQ, own, 63, 0, 0, 0, 0), PTL_MD_ILLEGAL);
		is("PtlGetRegion", "a range outside",
		   PtlGetRegion(good.md, at, length, own, 63, 0, 0, 0), PTL_MD_ILLEGAL);
		is("PtlGetPutRegion", "a range outside of the get descriptor",
		   PtlGetPutRegion(good.md, at, good.md, 0, length, own, 63, 0, 0, 0, 0),
		   PTL_MD_ILLEGAL);
		is("PtlGetPutRegion", "a range outside of the put descriptor",
		   PtlGetPutRegion(good.md, 0, good.md, at, length, own, 63, 0, 0, 0, 0),
		   PTL_MD_ILLEGAL);
	}
	for (i = 0; i < sizeof memory / sizeof *memory; i++) {
		ptl_md_t md = describe(memory[i].start, memory[i].length, memory[i].options, PTL_EQ_NONE);

		is("PtlMDBind", "such memory", PtlMDBind(good.ni, md, PTL_RETAIN, &out),
		   PTL_MD_ILLEGAL);
		is("PtlMDAttach", "such memory", PtlMDAttach(good.me, md, PTL_RETAIN, &out),
		   PTL_MD_ILLEGAL);
		is("PtlMDUpdate", "such memory", PtlMDUpdate(good.md, NULL, &md, PTL_EQ_NONE),
		   PTL_MD_ILLEGAL);
		is("PtlMEMDPost", "such memory",
		   PtlMEMDPost(good.ni, good.me, anyone, 0, 0, PTL_RETAIN, PTL_INS_AFTER, md,
			       PTL_RETAIN, &out, &out2, PTL_EQ_NONE),
		   PTL_MD_ILLEGAL);
		is("PtlMEMDAttach", "such memory",
		   PtlMEMDAttach(good.ni, 1, anyone, 0, 0, PTL_RETAIN, PTL_INS_AFTER, md, PTL_RETAIN,
				 &out, &out2),
		   PTL_MD_ILLEGAL);
		is("PtlMEMDInsert", "such memory",
		   PtlMEMDInsert(good.ni, good.me, anyone, 0, 0, PTL_RETAIN, PTL_INS_AFTER, md,
				 PTL_RETAIN, &out, &out2),
		   PTL_MD_ILLEGAL);
	}
	/* Each piece is there, and one of them is longer than the memory behind it. */
	two[0].iov_base = two[1].iov_base = bytes;
	two[0].iov_len = 64;
	two[1].iov_len = all - 32;
	is("PtlMDBind", "a sum that wraps",
	   PtlMDBind(good.ni, describe(two, 2, PTL_MD_IOVEC, PTL_EQ_NONE), PTL_RETAIN, &out),
	   PTL_MD_ILLEGAL);
	for (i = 0; i < sizeof counts / sizeof *counts; i++)
		is("PtlEQAlloc", "too many events",
		   PtlEQAlloc(good.ni, counts[i], PTL_EQ_HANDLER_NONE, &out), PTL_NO_SPACE);
	for (i = 0; i < sizeof sizes / sizeof *sizes; i++)
		is("PtlEQPoll", "no queues", PtlEQPoll(&good.eq, sizes[i], 0, &event, &which),
		   PTL_EQ_INVALID);
	is("PtlMEAttach", "a portal", PtlMEAttach(good.ni, UINT_MAX, anyone, 0, 0, 0, 0, &out),
	   PTL_PT_INDEX_INVALID);
	is("PtlACEntry", "an index", PtlACEntry(good.ni, UINT_MAX, anyone, 0, 0, 0),
	   PTL_AC_INDEX_INVALID);
	is("PtlACEntry", "a portal", PtlACEntry(good.ni, 1, anyone, 0, 0, 64), PTL_PT_INDEX_INVALID);
	is("PtlTblDump", "a portal", PtlTblDump(good.ni, INT_MIN), PTL_PT_INDEX_INVALID);
	is("PtlTblDump", "a portal", PtlTblDump(good.ni, INT_MAX), PTL_PT_INDEX_INVALID);
	is("PtlSetRank", "a rank", PtlSetRank(good.ni, 3, 3), PTL_FAIL);
}

static struct objects make(ptl_handle_ni_t ni)
{
	struct objects o;

	o.ni = ni;
	OK(PtlMEAttach(ni, PORTAL, anyone, 0, 0, PTL_RETAIN, PTL_INS_AFTER, &o.me));
	OK(PtlMDBind(ni, describe(bytes, sizeof bytes, 0, PTL_EQ_NONE), PTL_RETAIN, &o.md));
	OK(PtlEQAlloc(ni, 8, PTL_EQ_HANDLER_NONE, &o.eq));
	return o;
}

/* How many entries, descriptors and queues there are. */
static void there(ptl_sr_value_t counts[3])
{
	OK(PtlNIStatus(good.ni, PTL_SR_MES_CUR, &counts[0]));
	OK(PtlNIStatus(good.ni, PTL_SR_MDS_CUR, &counts[1]));
	OK(PtlNIStatus(good.ni, PTL_SR_EQS_CUR, &counts[2]));
}

static void still_works(void)
{
	ptl_handle_md_t in;

	OK(PtlMDAttach(good.me,
		       describe(bytes, 8, PTL_MD_OP_PUT | PTL_MD_EVENT_START_DISABLE, good.eq),
		       PTL_RETAIN, &in));
	OK(PtlPutRegion(good.md, 8, 8, PTL_NO_ACK_REQ, own, PORTAL, 0, 0, 0, 7));
	CHECK(expect(good.eq, PTL_EVENT_PUT_END).hdr_data == 7);
	OK(PtlMDUnlink(in));
	OK(PtlMDUnlink(good.md));
	OK(PtlMEUnlink(good.me));
	OK(PtlEQFree(good.eq));
}

int main(void)
{
	ptl_interface_t second =
		tested_interface() == PTL_IFACE_SELF ? PTL_IFACE_DEFAULT : PTL_IFACE_SELF;
	ptl_sr_value_t before[3], after[3];
	ptl_handle_ni_t ni = open_default();

	plain = describe(bytes, 8, PTL_MD_OP_PUT, PTL_EQ_NONE);
	OK(PtlNIInit(second, PTL_PID_ANY, NULL, NULL, &freed.ni));
	OK(PtlNIFini(freed.ni));
	freed = make(ni);
	OK(PtlMDUnlink(freed.md));
	OK(PtlMEUnlink(freed.me));
	OK(PtlEQFree(freed.eq));
	OK(PtlNIInit(second, PTL_PID_ANY, NULL, NULL, &out));
	other = make(out);
	OK(PtlNIFini(other.ni));
	freed.ni = other.ni;
	OK(PtlNIInit(second, PTL_PID_ANY, NULL, NULL, &out));
	other = make(out);
	good = make(ni);
	OK(PtlGetId(ni, &own));
	/* Makes the library's own queue, if it wants one. */
	OK(PtlProgress(ni, 0));
	there(before);
	handles();
	pointers();
	lengths();
	there(after);
	CHECK(memcmp(before, after, sizeof before) == 0);
	still_works();
	PtlFini();
	return 0;
}
