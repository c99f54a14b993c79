/* What every function says of bad pointers, handles and values. One rank; two interfaces: that of the
 * job and the one that reaches only this process, of which one is under test. */
#include "check.h"

#include <p3api/debug.h>
#include <sys/mman.h>
#include <unistd.h>

static ptl_handle_ni_t ni, own;
static char bytes[256];
static ptl_interface_t tested, second;

/* Scenario 1. */
static void before_init(void)
{
	ptl_handle_any_t h = 0;
	ptl_md_t md = describe(bytes, 8, 0, PTL_EQ_NONE);
	ptl_event_t e;
	ptl_process_id_t id;
	ptl_sr_value_t value;
	ptl_pt_index_t index;
	unsigned rank, size;
	unsigned long distance;
	int which;

	GIVES(PTL_NO_INIT, PtlNIInit(tested, PTL_PID_ANY, NULL, NULL, &h));
	GIVES(PTL_NO_INIT, PtlNIInit(tested, PTL_PID_ANY, NULL, NULL, NULL));
	GIVES(PTL_NO_INIT, PtlNIFini(h));
	GIVES(PTL_NO_INIT, PtlNIStatus(h, PTL_SR_DROP_COUNT, &value));
	GIVES(PTL_NO_INIT, PtlNIDist(h, anyone, &distance));
	GIVES(PTL_NO_INIT, PtlNIClock(h, &value, NULL));
	GIVES(PTL_NO_INIT, PtlNICompute(h, 1));
	GIVES(PTL_NO_INIT, PtlNIHandle(h, &h));
	GIVES(PTL_NO_INIT, PtlGetUid(h, &rank));
	GIVES(PTL_NO_INIT, PtlGetId(h, &id));
	GIVES(PTL_NO_INIT, PtlGetJid(h, &rank));
	GIVES(PTL_NO_INIT, PtlMEAttach(h, 1, anyone, 0, 0, PTL_RETAIN, PTL_INS_AFTER, &h));
	GIVES(PTL_NO_INIT, PtlMEAttachAny(h, &index, anyone, 0, 0, PTL_RETAIN, &h));
	GIVES(PTL_NO_INIT, PtlMEInsert(h, anyone, 0, 0, PTL_RETAIN, PTL_INS_AFTER, &h));
	GIVES(PTL_NO_INIT, PtlMEUnlink(h));
	GIVES(PTL_NO_INIT, PtlMDAttach(h, md, PTL_RETAIN, &h));
	GIVES(PTL_NO_INIT, PtlMDBind(h, md, PTL_RETAIN, &h));
	GIVES(PTL_NO_INIT, PtlMDUnlink(h));
	GIVES(PTL_NO_INIT, PtlMDUpdate(h, NULL, NULL, PTL_EQ_NONE));
	GIVES(PTL_NO_INIT, PtlMEMDPost(h, h, anyone, 0, 0, PTL_RETAIN, PTL_INS_AFTER, md,
				       PTL_RETAIN, &h, &h, PTL_EQ_NONE));
	GIVES(PTL_NO_INIT, PtlEQAlloc(h, 8, PTL_EQ_HANDLER_NONE, &h));
	GIVES(PTL_NO_INIT, PtlEQFree(h));
	GIVES(PTL_NO_INIT, PtlEQGet(h, &e));
	GIVES(PTL_NO_INIT, PtlEQPeek(h, &e));
	GIVES(PTL_NO_INIT, PtlEQWait(h, &e));
	GIVES(PTL_NO_INIT, PtlEQPoll(&h, 1, 0, &e, &which));
	GIVES(PTL_NO_INIT, PtlACEntry(h, 0, anyone, 0, 0, 0));
	GIVES(PTL_NO_INIT, PtlPut(h, PTL_ACK_REQ, anyone, 0, 0, 0, 0, 0));
	GIVES(PTL_NO_INIT, PtlPutRegion(h, 0, 0, PTL_ACK_REQ, anyone, 0, 0, 0, 0, 0));
	GIVES(PTL_NO_INIT, PtlGet(h, anyone, 0, 0, 0, 0));
	GIVES(PTL_NO_INIT, PtlGetRegion(h, 0, 0, anyone, 0, 0, 0, 0));
	GIVES(PTL_NO_INIT, PtlMDMDCopy(h, anyone, 0, 0, 0, 0));
	GIVES(PTL_NO_INIT, PtlGetPut(h, h, anyone, 0, 0, 0, 0, 0));
	GIVES(PTL_NO_INIT, PtlGetPutRegion(h, 0, h, 0, 0, anyone, 0, 0, 0, 0, 0));
	GIVES(PTL_NO_INIT, PtlProgress(h, 0));
	GIVES(PTL_NO_INIT, PtlNIEqDump(h));
	GIVES(PTL_NO_INIT, PtlTblDump(h, 0));
	GIVES(PTL_NO_INIT, PtlMEDump(h));
	GIVES(PTL_NO_INIT, PtlSetRank(PTL_INVALID_HANDLE, 0, 1));
	GIVES(PTL_NO_INIT, PtlGetRank(PTL_INVALID_HANDLE, &rank, &size));
	GIVES(PTL_NO_INIT, PtlGetRankId(PTL_INVALID_HANDLE, 0, &id));
	CHECK(PtlNIDebug(h, 3) == 0);
}

/* Scenarios 2, 3 and 4. */
static void init(void)
{
	int max_interfaces = -1;
	ptl_handle_ni_t again, none = 12345;
	ptl_ni_limits_t wish, got;

	GIVES(PTL_SEGV, PtlInit(NULL));
	GIVES(PTL_NO_INIT, PtlGetId(0, NULL));
	OK(PtlInit(&max_interfaces));
	CHECK(max_interfaces >= 2);
	max_interfaces = -1;
	OK(PtlInit(&max_interfaces));
	CHECK(max_interfaces >= 2);
	OK(PtlInit(NULL));

	GIVES(PTL_SEGV, PtlNIInit(tested, PTL_PID_ANY, NULL, NULL, NULL));
	GIVES(PTL_IFACE_INVALID, PtlNIInit(PTL_NALTYPE_NONE, PTL_PID_ANY, NULL, NULL, &none));
	GIVES(PTL_IFACE_INVALID, PtlNIInit(0xffffffffu, PTL_PID_ANY, NULL, NULL, &none));
	GIVES(PTL_PID_INVALID, PtlNIInit(tested, 0x10000, NULL, NULL, &none));
	CHECK(none == 12345);

	memset(&wish, 0x7f, sizeof wish);
	wish.max_pt_index = 40;
	wish.max_eqs = -5;
	OK(PtlNIInit(second, 98, &wish, &got, &own));
	CHECK(got.max_pt_index == 40 && got.max_eqs == 0 && got.max_mes > 1000);
	OK(PtlNIFini(own));
	memset(&wish, 0x7f, sizeof wish);
	wish.max_pt_index = 40;
	OK(PtlNIInit(tested, 98, &wish, &got, &ni));
	CHECK(got.max_pt_index == 40 && got.max_getput_md >= 8);
	wish.max_pt_index = 3;
	memset(&got, 0, sizeof got);
	OK(PtlNIInit(tested, 99, &wish, &got, &again));
	CHECK(again == ni && got.max_pt_index == 40);
	OK(PtlNIInit(second, PTL_PID_ANY, NULL, NULL, &own));
	CHECK(own != ni);
}

/* Scenario 12. */
static void pointers(void)
{
	ptl_handle_any_t h;
	ptl_md_t md = describe(bytes, 8, 0, PTL_EQ_NONE);
	ptl_event_t e;
	ptl_pt_index_t index;
	ptl_handle_eq_t eq;
	unsigned n;
	int which;

	OK(PtlEQAlloc(ni, 8, PTL_EQ_HANDLER_NONE, &eq));
	GIVES(PTL_SEGV, PtlNIStatus(ni, PTL_SR_DROP_COUNT, NULL));
	GIVES(PTL_SEGV, PtlNIDist(ni, anyone, NULL));
	GIVES(PTL_SEGV, PtlNIClock(ni, NULL, NULL));
	GIVES(PTL_SEGV, PtlNIHandle(ni, NULL));
	GIVES(PTL_SEGV, PtlGetUid(ni, NULL));
	GIVES(PTL_SEGV, PtlGetId(ni, NULL));
	GIVES(PTL_SEGV, PtlGetJid(ni, NULL));
	GIVES(PTL_SEGV, PtlMEAttach(ni, 1, anyone, 0, 0, PTL_RETAIN, PTL_INS_AFTER, NULL));
	GIVES(PTL_SEGV, PtlMEAttachAny(ni, NULL, anyone, 0, 0, PTL_RETAIN, &h));
	GIVES(PTL_SEGV, PtlMEAttachAny(ni, &index, anyone, 0, 0, PTL_RETAIN, NULL));
	GIVES(PTL_SEGV, PtlMEInsert(0, anyone, 0, 0, PTL_RETAIN, PTL_INS_AFTER, NULL));
	GIVES(PTL_SEGV, PtlMDAttach(0, md, PTL_RETAIN, NULL));
	GIVES(PTL_SEGV, PtlMDBind(ni, md, PTL_RETAIN, NULL));
	GIVES(PTL_SEGV, PtlMEMDPost(ni, 0, anyone, 0, 0, PTL_RETAIN, PTL_INS_AFTER, md, PTL_RETAIN,
				    NULL, &h, PTL_EQ_NONE));
	GIVES(PTL_SEGV, PtlMEMDPost(ni, 0, anyone, 0, 0, PTL_RETAIN, PTL_INS_AFTER, md, PTL_RETAIN,
				    &h, NULL, PTL_EQ_NONE));
	GIVES(PTL_SEGV, PtlEQAlloc(ni, 8, PTL_EQ_HANDLER_NONE, NULL));
	GIVES(PTL_SEGV, PtlEQGet(eq, NULL));
	GIVES(PTL_SEGV, PtlEQPeek(eq, NULL));
	GIVES(PTL_SEGV, PtlEQWait(eq, NULL));
	GIVES(PTL_SEGV, PtlEQPoll(NULL, 1, 0, &e, &which));
	GIVES(PTL_SEGV, PtlEQPoll(&eq, 1, 0, NULL, &which));
	GIVES(PTL_SEGV, PtlEQPoll(&eq, 1, 0, &e, NULL));
	GIVES(PTL_SEGV, PtlGetRank(ni, NULL, &n));
	GIVES(PTL_SEGV, PtlGetRank(ni, &n, NULL));
	GIVES(PTL_SEGV, PtlGetRankId(ni, 0, NULL));
	GIVES(PTL_SEGV, PtlGetNIDMap(ni, NULL, 1));
	GIVES(PTL_SEGV, PtlGetPIDMap(ni, NULL, 1));
	OK(PtlEQFree(eq));
}

/* A handle that is none of its kind gives the code of its place. */
static void refused(ptl_handle_any_t h, int is_ni)
{
	ptl_md_t md = describe(bytes, 8, 0, PTL_EQ_NONE);
	ptl_handle_any_t out;
	ptl_sr_value_t value;
	ptl_event_t e;
	unsigned n;
	int which;

	GIVES(PTL_ME_INVALID, PtlMEUnlink(h));
	GIVES(PTL_ME_INVALID, PtlMEInsert(h, anyone, 0, 0, PTL_RETAIN, PTL_INS_AFTER, &out));
	GIVES(PTL_ME_INVALID, PtlMDAttach(h, md, PTL_RETAIN, &out));
	GIVES(PTL_ME_INVALID, PtlMEDump(h));
	GIVES(PTL_ME_INVALID, PtlMEMDPost(ni, h, anyone, 0, 0, PTL_RETAIN, PTL_INS_AFTER, md,
					  PTL_RETAIN, &out, &out, PTL_EQ_NONE));
	GIVES(PTL_MD_INVALID, PtlMDUnlink(h));
	GIVES(PTL_MD_INVALID, PtlMDUpdate(h, NULL, NULL, PTL_EQ_NONE));
	GIVES(PTL_MD_INVALID, PtlPut(h, PTL_ACK_REQ, anyone, 0, 0, 0, 0, 0));
	GIVES(PTL_MD_INVALID, PtlPutRegion(h, 0, 0, PTL_ACK_REQ, anyone, 0, 0, 0, 0, 0));
	GIVES(PTL_MD_INVALID, PtlGet(h, anyone, 0, 0, 0, 0));
	GIVES(PTL_MD_INVALID, PtlGetRegion(h, 0, 0, anyone, 0, 0, 0, 0));
	GIVES(PTL_MD_INVALID, PtlMDMDCopy(h, anyone, 0, 0, 0, 0));
	GIVES(PTL_MD_INVALID, PtlGetPut(h, h, anyone, 0, 0, 0, 0, 0));
	GIVES(PTL_MD_INVALID, PtlGetPutRegion(h, 0, h, 0, 0, anyone, 0, 0, 0, 0, 0));
	GIVES(PTL_EQ_INVALID, PtlEQFree(h));
	GIVES(PTL_EQ_INVALID, PtlEQGet(h, &e));
	GIVES(PTL_EQ_INVALID, PtlEQPeek(h, &e));
	GIVES(PTL_EQ_INVALID, PtlEQWait(h, &e));
	which = -1;
	GIVES(PTL_EQ_INVALID, PtlEQPoll(&h, 1, 50, &e, &which));
	CHECK(which == 0);
	if (h != PTL_EQ_NONE) {
		md.eq_handle = h;
		n = (unsigned)PtlMDBind(ni, md, PTL_RETAIN, &out);
		CHECK(n == PTL_EQ_INVALID || n == PTL_MD_ILLEGAL);
	}
	if (!is_ni) {
		GIVES(PTL_NI_INVALID, PtlNIFini(h));
		GIVES(PTL_NI_INVALID, PtlNIStatus(h, 0, &value));
		GIVES(PTL_NI_INVALID, PtlGetUid(h, &n));
		GIVES(PTL_NI_INVALID, PtlEQAlloc(h, 1, PTL_EQ_HANDLER_NONE, &out));
		GIVES(PTL_NI_INVALID, PtlMEAttach(h, 1, anyone, 0, 0, PTL_RETAIN, PTL_INS_AFTER,
						  &out));
		GIVES(PTL_NI_INVALID, PtlMDBind(h, md, PTL_RETAIN, &out));
		GIVES(PTL_NI_INVALID, PtlACEntry(h, 0, anyone, 0, 0, 0));
		GIVES(PTL_NI_INVALID, PtlTblDump(h, 0));
		GIVES(PTL_NI_INVALID, PtlProgress(h, 0));
		GIVES(PTL_HANDLE_INVALID, PtlNIHandle(h, &out));
		GIVES(PTL_HANDLE_INVALID, PtlGetRank(h == PTL_INVALID_HANDLE ? 1 : h, &n, &n));
	}
}

/* Scenario 9. */
static void handles(void)
{
	static const ptl_handle_any_t never[] = {PTL_INVALID_HANDLE, PTL_HANDLE_NONE, PTL_EQ_NONE,
						 0, 1, 0x70000, 0xdeadbeef};
	ptl_md_t md = describe(bytes, 8, 0, PTL_EQ_NONE);
	ptl_handle_any_t me, md_h, eq, out, again;
	ptl_event_t e;
	unsigned i;

	for (i = 0; i < sizeof never / sizeof *never; i++)
		refused(never[i], 0);
	refused(ni, 1);

	OK(PtlMEAttach(ni, 4, anyone, 0, 0, PTL_RETAIN, PTL_INS_AFTER, &me));
	OK(PtlMDAttach(me, md, PTL_RETAIN, &md_h));
	OK(PtlEQAlloc(ni, 4, PTL_EQ_HANDLER_NONE, &eq));
	OK(PtlNIHandle(me, &out));
	CHECK(out == ni);
	OK(PtlNIHandle(md_h, &out));
	CHECK(out == ni);
	OK(PtlNIHandle(eq, &out));
	CHECK(out == ni);
	OK(PtlNIHandle(ni, &out));
	CHECK(out == ni);
	GIVES(PTL_ME_IN_USE, PtlMDAttach(me, md, PTL_RETAIN, &out));
	/* Kinds are not exchanged. */
	GIVES(PTL_ME_INVALID, PtlMEUnlink(md_h));
	GIVES(PTL_MD_INVALID, PtlMDUnlink(me));
	GIVES(PTL_EQ_INVALID, PtlEQGet(md_h, &e));
	GIVES(PTL_NI_INVALID, PtlNIFini(eq));

	OK(PtlMDUnlink(md_h));
	OK(PtlMEUnlink(me));
	OK(PtlEQFree(eq));
	for (i = 0; i < 3000; i++) {
		ptl_handle_any_t m, d, q;

		OK(PtlMEAttach(ni, 4, anyone, 0, 0, PTL_RETAIN, PTL_INS_AFTER, &m));
		OK(PtlMDAttach(m, md, PTL_RETAIN, &d));
		OK(PtlEQAlloc(ni, 4, PTL_EQ_HANDLER_NONE, &q));
		if (i % 100 == 0) {
			refused(me, 0);
			refused(md_h, 0);
			refused(eq, 0);
		}
		OK(PtlMDUnlink(d));
		OK(PtlMEUnlink(m));
		OK(PtlEQFree(q));
	}

	/* Two interfaces do not mix. */
	OK(PtlMDBind(own, md, PTL_RETAIN, &again));
	OK(PtlEQAlloc(own, 4, PTL_EQ_HANDLER_NONE, &out));
	OK(PtlMDBind(ni, md, PTL_RETAIN, &md_h));
	OK(PtlEQAlloc(ni, 4, PTL_EQ_HANDLER_NONE, &eq));
	md.eq_handle = out;
	GIVES(PTL_MD_ILLEGAL, PtlMDBind(ni, md, PTL_RETAIN, &me));
	GIVES(PTL_MD_ILLEGAL, PtlGetPut(md_h, again, anyone, 0, 0, 0, 0, 0));
	{
		ptl_handle_eq_t both[2];
		int which = -1;

		both[0] = eq;
		both[1] = out;
		GIVES(PTL_EQ_INVALID, PtlEQPoll(both, 2, 0, &e, &which));
		CHECK(which == 1);
		GIVES(PTL_EQ_INVALID, PtlEQPoll(both, 0, 0, &e, &which));
		GIVES(PTL_EQ_INVALID, PtlEQPoll(both, -1, 0, &e, &which));
		both[1] = me;
		which = -1;
		GIVES(PTL_EQ_EMPTY, PtlEQPoll(both, 1, 0, &e, &which));
		CHECK(which == -1);
	}
	/* Nothing is read behind the first that is wrong. */
	{
		long page = sysconf(_SC_PAGESIZE);
		char *two = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		ptl_handle_eq_t *last = (ptl_handle_eq_t *)(two + page) - 3;
		int which = -1;

		CHECK(two != MAP_FAILED && munmap(two + page, page) == 0);
		last[0] = last[1] = eq;
		last[2] = PTL_INVALID_HANDLE;
		GIVES(PTL_EQ_INVALID, PtlEQPoll(last, 0x7fffffff, 0, &e, &which));
		CHECK(which == 2 && munmap(two, page) == 0);
	}
	OK(PtlMDUnlink(md_h));
	OK(PtlMDUnlink(again));
	OK(PtlEQFree(eq));
	OK(PtlEQFree(out));
}

static void values(void)
{
	ptl_md_t md, old, other;
	ptl_handle_any_t h, me, second_h, freed;
	ptl_md_iovec_t many[100];
	ptl_sr_value_t value;
	unsigned long distance;
	ptl_process_id_t own_id, nobody = {4000000, 5};
	long page = sysconf(_SC_PAGESIZE);
	char *hole;
	int i;

	OK(PtlGetId(ni, &own_id));
	CHECK(own_id.pid == 98);
	OK(PtlNIDist(ni, own_id, &distance));
	CHECK(distance == 0);
	GIVES(PTL_PROCESS_INVALID, PtlNIDist(ni, nobody, &distance));
	CHECK(distance == (unsigned long)-1);
	GIVES(PTL_SR_INDEX_INVALID, PtlNIStatus(ni, 999, &value));
	OK(PtlNIStatus(ni, PTL_SR_DROP_COUNT, &value));
	CHECK(value == 0);
	GIVES(PTL_PT_INDEX_INVALID,
	      PtlMEAttach(ni, 41, anyone, 0, 0, PTL_RETAIN, PTL_INS_AFTER, &h));
	OK(PtlMEAttach(ni, 40, anyone, 0, 0, PTL_RETAIN, PTL_INS_AFTER, &h));
	OK(PtlMEDump(h));
	OK(PtlMEUnlink(h));
	GIVES(PTL_PT_INDEX_INVALID, PtlTblDump(ni, 41));
	GIVES(PTL_PT_INDEX_INVALID, PtlTblDump(ni, -1));
	OK(PtlTblDump(ni, 40));
	OK(PtlNIEqDump(ni));
	GIVES(PTL_AC_INDEX_INVALID, PtlACEntry(ni, 8, anyone, PTL_UID_ANY, PTL_JID_ANY, 4));
	GIVES(PTL_PT_INDEX_INVALID, PtlACEntry(ni, 1, anyone, PTL_UID_ANY, PTL_JID_ANY, 41));
	/* Without a job, as in 3.2. */
	GIVES(PTL_PT_INDEX_INVALID, PtlACEntry(ni, 1, anyone, PTL_UID_ANY, 41));
	OK(PtlACEntry(ni, 1, anyone, PTL_UID_ANY, PTL_JID_ANY, PTL_PT_INDEX_ANY));
	CHECK(PtlNIDebug(ni, PTL_DBG_ALL) == PTL_DBG_NONE);
	CHECK(PtlNIDebug(ni, PTL_DBG_NONE) == PTL_DBG_ALL);

	/* Memory that wraps, is not there, or is in too many pieces. */
	md = describe(NULL, 8, 0, PTL_EQ_NONE);
	GIVES(PTL_MD_ILLEGAL, PtlMDBind(ni, md, PTL_RETAIN, &h));
	md = describe((void *)(uintptr_t)-4, 8, 0, PTL_EQ_NONE);
	GIVES(PTL_MD_ILLEGAL, PtlMDBind(ni, md, PTL_RETAIN, &h));
	md = describe(bytes, (ptl_size_t)-1, 0, PTL_EQ_NONE);
	GIVES(PTL_MD_ILLEGAL, PtlMDBind(ni, md, PTL_RETAIN, &h));
	hole = mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(hole != MAP_FAILED && munmap(hole + page, page) == 0);
	md = describe(hole + page - 4, 8, 0, PTL_EQ_NONE);
	GIVES(PTL_MD_ILLEGAL, PtlMDBind(ni, md, PTL_RETAIN, &h));
	md.length = 4;
	OK(PtlMDBind(ni, md, PTL_RETAIN, &h));
	OK(PtlMDUnlink(h));
	md = describe(NULL, 0, 0, PTL_EQ_NONE);
	OK(PtlMDBind(ni, md, PTL_RETAIN, &h));
	OK(PtlMDUnlink(h));
	memset(many, 0, sizeof many);
	md = describe(many, 100, PTL_MD_IOVEC, PTL_EQ_NONE);
	GIVES(PTL_MD_ILLEGAL, PtlMDBind(ni, md, PTL_RETAIN, &h));
	md = describe(NULL, 2, PTL_MD_IOVEC, PTL_EQ_NONE);
	GIVES(PTL_MD_ILLEGAL, PtlMDBind(ni, md, PTL_RETAIN, &h));
	many[1].iov_base = hole + page;
	many[1].iov_len = 1;
	md = describe(many, 2, PTL_MD_IOVEC, PTL_EQ_NONE);
	GIVES(PTL_MD_ILLEGAL, PtlMDBind(ni, md, PTL_RETAIN, &h));
	/* The array itself, all of it or its end. */
	GIVES(PTL_MD_ILLEGAL,
	      PtlMDBind(ni, describe(hole + page, 2, PTL_MD_IOVEC, PTL_EQ_NONE), PTL_RETAIN, &h));
	GIVES(PTL_MD_ILLEGAL, PtlMDBind(ni,
					describe(hole + page - sizeof many[0], 2, PTL_MD_IOVEC,
						 PTL_EQ_NONE),
					PTL_RETAIN, &h));
	/* Or that which old values go to: nothing is updated then. */
	many[1].iov_base = hole;
	OK(PtlMDBind(ni, describe(many, 2, PTL_MD_IOVEC, PTL_EQ_NONE), PTL_RETAIN, &h));
	old = describe(hole + page, 2, PTL_MD_IOVEC, PTL_EQ_NONE);
	other = describe(bytes, 8, 0, PTL_EQ_NONE);
	GIVES(PTL_SEGV, PtlMDUpdate(h, &old, &other, PTL_EQ_NONE));
	old.options = 0;
	OK(PtlMDUpdate(h, &old, NULL, PTL_EQ_NONE));
	CHECK(old.start == many && old.length == 2 && (old.options & PTL_MD_IOVEC));
	OK(PtlMDUnlink(h));
	many[1].iov_base = hole + page;
	/* What is wrong with the entry is said before what is wrong with the memory. */
	OK(PtlMEAttach(ni, 4, anyone, 0, 0, PTL_RETAIN, PTL_INS_AFTER, &me));
	GIVES(PTL_MD_ILLEGAL, PtlMDAttach(me, md, PTL_RETAIN, &h));
	OK(PtlMEUnlink(me));
	GIVES(PTL_ME_INVALID, PtlMDAttach(me, md, PTL_RETAIN, &h));
	for (i = 0; i < 2; i++) {
		GIVES(PTL_ME_INVALID, PtlMEMDInsert(ni, me, anyone, 0, 0, PTL_RETAIN, PTL_INS_AFTER, md, PTL_RETAIN,
						    &h, &second_h));
		GIVES(PTL_ME_INVALID, PtlMEMDPost(ni, me, anyone, 0, 0, PTL_RETAIN, PTL_INS_AFTER, md, PTL_RETAIN, &h,
						  &second_h, PTL_EQ_NONE));
		/* Another that is wrong: its queue was freed. */
		OK(PtlEQAlloc(ni, 4, PTL_EQ_HANDLER_NONE, &freed));
		OK(PtlEQFree(freed));
		md = describe(bytes, 8, 0, freed);
	}

	md = describe(bytes, sizeof bytes, 0, PTL_EQ_NONE);
	OK(PtlMDBind(ni, md, PTL_RETAIN, &h));
	GIVES(PTL_MD_ILLEGAL, PtlPutRegion(h, 250, 7, PTL_ACK_REQ, own_id, 4, 0, 0, 0, 0));
	GIVES(PTL_MD_ILLEGAL, PtlPutRegion(h, 257, 0, PTL_ACK_REQ, own_id, 4, 0, 0, 0, 0));
	GIVES(PTL_MD_ILLEGAL,
	      PtlGetRegion(h, 8, (ptl_size_t)-4, own_id, 4, 0, 0, 0));
	OK(PtlPutRegion(h, 256, 0, PTL_NO_ACK_REQ, own_id, 4, 0, 0, 0, 0));
	/* A handle before a length. */
	OK(PtlMDBind(ni, md, PTL_RETAIN, &second_h));
	OK(PtlMDUnlink(second_h));
	GIVES(PTL_MD_ILLEGAL, PtlGetPutRegion(h, 0, h, 250, 7, own_id, 4, 0, 0, 0, 0));
	GIVES(PTL_MD_INVALID, PtlGetPutRegion(second_h, 0, h, 250, 7, own_id, 4, 0, 0, 0, 0));
	GIVES(PTL_MD_INVALID, PtlGetPutRegion(h, 250, second_h, 0, 7, own_id, 4, 0, 0, 0, 0));
	OK(PtlMDUnlink(h));
	munmap(hole, page);
	munmap(hole + 2 * page, page);
}

/* Scenario 11. */
static void after_fini(void)
{
	ptl_handle_ni_t old = ni;
	ptl_process_id_t id;

	OK(PtlNIFini(own));
	GIVES(PTL_NI_INVALID, PtlNIFini(own));
	GIVES(PTL_NI_INVALID, PtlGetId(own, &id));
	PtlFini();
	GIVES(PTL_NO_INIT, PtlGetId(ni, &id));
	PtlFini();
	ni = open_default();
	CHECK(ni != old);
	OK(PtlGetId(ni, &id));
	GIVES(PTL_NI_INVALID, PtlGetId(old, &id));
	PtlFini();
}

int main(void)
{
	tested = tested_interface();
	second = tested == PTL_IFACE_SELF ? PTL_IFACE_DEFAULT : PTL_IFACE_SELF;
	before_init();
	init();
	pointers();
	handles();
	values();
	after_fini();
	return 0;
}
