/* Status registers, limits, and what Cray's option for unlinks does. One rank. */
#include "check.h"

enum { PORTAL = 3, LIST = 3 };

static ptl_handle_ni_t ni;
static char bytes[256] __attribute__((aligned(256)));

static ptl_sr_value_t reg(ptl_sr_index_t index)
{
	ptl_sr_value_t value = ~(ptl_sr_value_t)0;

	OK(PtlNIStatus(ni, index, &value));
	return value;
}

/* A kind's four registers, from `first` on: made, gone, most, there. */
static void gauge(ptl_sr_index_t first, unsigned made, unsigned gone, unsigned most, unsigned there)
{
	CHECK(reg(first) == made);
	CHECK(reg(first + 1) == gone);
	CHECK(reg(first + 2) == most);
	CHECK(reg(first + 3) == there);
}

/* Scenarios 5 and 23. */
static void limits(void)
{
	ptl_handle_me_t me[LIST], more;
	ptl_ni_limits_t wish, got;
	int max_interfaces, i;

	memset(&wish, 0x7f, sizeof wish);
	wish.max_me_list = LIST;
	wish.max_pt_index = 3;
	wish.max_eqs = 2;
	OK(PtlInit(&max_interfaces));
	OK(PtlNIInit(tested_interface(), PTL_PID_ANY, &wish, &got, &ni));
	CHECK(got.max_me_list == LIST && got.max_pt_index == 3 && got.max_eqs == 2);
	GIVES(PTL_PT_INDEX_INVALID,
	      PtlMEAttach(ni, 4, anyone, 0, 0, PTL_RETAIN, PTL_INS_AFTER, &more));
	for (i = 0; i < LIST; i++)
		OK(PtlMEAttach(ni, PORTAL, anyone, 0, 0, PTL_RETAIN, PTL_INS_AFTER, &me[i]));
	GIVES(PTL_ME_LIST_TOO_LONG,
	      PtlMEAttach(ni, PORTAL, anyone, 0, 0, PTL_RETAIN, PTL_INS_BEFORE, &more));
	GIVES(PTL_ME_LIST_TOO_LONG,
	      PtlMEInsert(me[1], anyone, 0, 0, PTL_RETAIN, PTL_INS_BEFORE, &more));
	CHECK(reg(PTL_SR_LIST_CUR(PORTAL)) == LIST && reg(PTL_SR_LIST_MAX(PORTAL)) == LIST);
	OK(PtlMEUnlink(me[0]));
	OK(PtlMEUnlink(me[2]));
	CHECK(reg(PTL_SR_LIST_CUR(PORTAL)) == LIST - 2 && reg(PTL_SR_LIST_MAX(PORTAL)) == LIST);
	OK(PtlNIFini(ni));
}

static void registers(void)
{
	ptl_handle_md_t md[4], in;
	ptl_handle_me_t me, other;
	ptl_handle_eq_t eq;
	ptl_process_id_t own;
	ptl_sr_value_t value;
	ptl_sr_index_t i;
	unsigned n;

	for (i = 0; i <= PTL_SR_TWO_SIDED; i++)
		CHECK(reg(i) == 0);
	GIVES(PTL_SR_INDEX_INVALID, PtlNIStatus(ni, PTL_SR_TWO_SIDED + 1, &value));
	GIVES(PTL_SR_INDEX_INVALID, PtlNIStatus(ni, 0x7fffffff, &value));
	GIVES(PTL_SR_INDEX_INVALID, PtlNIStatus(ni, PTL_SR_LIST_CUR(64), &value));
	GIVES(PTL_SR_INDEX_INVALID, PtlNIStatus(ni, PTL_SR_LIST_CUR(1) - 2, &value));
	GIVES(PTL_SR_INDEX_INVALID, PtlNIStatus(ni, 0xffffffffu, &value));
	GIVES(PTL_SEGV, PtlNIStatus(ni, PTL_SR_MES_CUR, NULL));

	OK(PtlEQAlloc(ni, 16, PTL_EQ_HANDLER_NONE, &eq));
	gauge(PTL_SR_EQS_ALLOC, 1, 0, 1, 1);
	OK(PtlMEAttach(ni, PORTAL, anyone, 0, 0, PTL_RETAIN, PTL_INS_AFTER, &me));
	OK(PtlMEAttach(ni, PORTAL + 1, anyone, 0, 0, PTL_RETAIN, PTL_INS_AFTER, &other));
	CHECK(reg(PTL_SR_PTLS_CUR) == 2 && reg(PTL_SR_PTLS_MAX) == 2);
	OK(PtlMEUnlink(other));
	CHECK(reg(PTL_SR_PTLS_CUR) == 1 && reg(PTL_SR_PTLS_MAX) == 2);
	gauge(PTL_SR_MES_ALLOC, 2, 1, 2, 1);
	/* Memory of every alignment: 256, 64, 16, 8, 1. */
	OK(PtlMDAttach(me, describe(bytes, 8, PTL_MD_OP_PUT | PTL_MD_MANAGE_REMOTE, eq), PTL_RETAIN,
		       &in));
	for (n = 0; n < 4; n++) {
		static const unsigned at[] = {64, 16, 8, 1};

		OK(PtlMDBind(ni, describe(bytes + at[n], 8, 0, eq), PTL_RETAIN, &md[n]));
	}
	gauge(PTL_SR_MDS_ALLOC, 5, 0, 5, 5);
	CHECK(reg(PTL_SR_MD_ALIGN_128) == 1 && reg(PTL_SR_MD_ALIGN_64) == 1);
	CHECK(reg(PTL_SR_MD_ALIGN_32) == 0 && reg(PTL_SR_MD_ALIGN_16) == 1);
	CHECK(reg(PTL_SR_MD_ALIGN_8) == 1);

	OK(PtlGetId(ni, &own));
	OK(PtlPut(md[0], PTL_ACK_REQ, own, PORTAL, 0, 0, 0, 0));
	for (n = 0; n < 5; n++) {
		ptl_event_t event;

		OK(PtlEQWait(eq, &event));
	}
	CHECK(reg(PTL_SR_SEND_COUNT) == 1 && reg(PTL_SR_SEND_LENGTH) == 8);
	CHECK(reg(PTL_SR_RECV_COUNT) == 1 && reg(PTL_SR_RECV_LENGTH) == 8);
	/* The put at both ends. */
	CHECK(reg(PTL_SR_MSGS_ALLOC) == 2 && reg(PTL_SR_MSGS_FREED) == 2);
	CHECK(reg(PTL_SR_MSGS_MAX) >= 1 && reg(PTL_SR_MSGS_CUR) == 0);
	OK(PtlPut(md[0], PTL_NO_ACK_REQ, own, PORTAL, 0, 0, 1, 0));
	expect(eq, PTL_EVENT_SEND_START);
	expect(eq, PTL_EVENT_SEND_END);
	while (reg(PTL_SR_DROP_COUNT) == 0)
		OK(PtlProgress(ni, 0));
	CHECK(reg(PTL_SR_DROP_LENGTH) == 8);

	for (n = 0; n < 4; n++)
		OK(PtlMDUnlink(md[n]));
	OK(PtlMDUnlink(in));
	OK(PtlMEUnlink(me));
	OK(PtlEQFree(eq));
	gauge(PTL_SR_MDS_ALLOC, 5, 5, 5, 0);
	gauge(PTL_SR_MES_ALLOC, 2, 2, 2, 0);
	CHECK(reg(PTL_SR_EQS_CUR) <= 1);
	CHECK(reg(PTL_SR_PTLS_CUR) == 0);
}

/* Scenario 73, and row 10 of docs/src/portals-differences.md: an unlink by the program is silent unless
 * the option asks for an event. */
static void manual_unlinks(void)
{
	ptl_handle_eq_t eq;
	ptl_handle_me_t me;
	ptl_handle_md_t md;
	ptl_event_t e;
	int how;

	OK(PtlEQAlloc(ni, 16, PTL_EQ_HANDLER_NONE, &eq));
	for (how = 0; how < 4; how++) {
		unsigned told = how < 2 ? PTL_MD_EVENT_MANUAL_UNLINK_ENABLE : 0;

		OK(PtlMEAttach(ni, PORTAL, anyone, 0, 0, PTL_UNLINK, PTL_INS_AFTER, &me));
		OK(PtlMDAttach(me,
			       describe(bytes, 8,
					PTL_MD_OP_PUT | PTL_MD_EVENT_AUTO_UNLINK_ENABLE | told, eq),
			       PTL_UNLINK, &md));
		if (how % 2)
			OK(PtlMEUnlink(me));
		else
			OK(PtlMDUnlink(md));
		if (told) {
			e = expect(eq, PTL_EVENT_UNLINK);
			CHECK(e.md_handle == md && e.md.user_ptr == bytes);
			CHECK(e.link == e.sequence);
		}
		GIVES(PTL_EQ_EMPTY, PtlEQGet(eq, &e));
		GIVES(PTL_MD_INVALID, PtlMDUnlink(md));
		GIVES(PTL_ME_INVALID, PtlMEUnlink(me));
	}
	OK(PtlEQFree(eq));
}

int main(void)
{
	limits();
	PtlFini();
	ni = open_default();
	registers();
	manual_unlinks();
	PtlFini();
	return 0;
}
