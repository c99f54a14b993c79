/* The definitions with which DART bridges systems, as for Cray's machines, where a process id has 16 bits: its PTL_PID_ANY
 * opens an interface, and is anyone in match entries and in the access control list. One rank. */
#include "check.h"
#include <p3nal_tcp.h>

#undef PTL_NID_ANY
#undef PTL_PID_ANY
#define PTL_NID_ANY ((ptl_nid_t)0xFFFFFFFF)
#define PTL_PID_ANY ((ptl_pid_t)0xFFFF)

enum { PORTAL = 6 };

static const ptl_process_id_t any = {PTL_NID_ANY, PTL_PID_ANY};
static char bytes[64], source[8];

int main(void)
{
	int max_interfaces;
	ptl_handle_ni_t ni;
	ptl_handle_eq_t eq;
	ptl_handle_me_t last, me;
	ptl_handle_md_t from, md;
	ptl_process_id_t own;
	ptl_event_t e;
	ptl_match_bits_t bits;

	OK(PtlInit(&max_interfaces));
	GIVES(PTL_PID_INVALID, PtlNIInit(tested_interface(), 0x10000, NULL, NULL, &ni));
	OK(PtlNIInit(tested_interface(), PTL_PID_ANY, NULL, NULL, &ni));
	OK(PtlGetId(ni, &own));
	CHECK(own.pid != PTL_PID_ANY && own.pid != any.pid);
	OK(PtlACEntry(ni, 1, any, PTL_UID_ANY, PTL_JID_ANY, PTL_PT_INDEX_ANY));

	OK(PtlEQAlloc(ni, 16, PTL_EQ_HANDLER_NONE, &eq));
	OK(PtlMDBind(ni, describe(source, sizeof source, PTL_MD_EVENT_START_DISABLE | PTL_MD_EVENT_END_DISABLE, eq), PTL_RETAIN,
		     &from));
	OK(PtlMEAttach(ni, PORTAL, any, 1, 0, PTL_UNLINK, PTL_INS_AFTER, &last));
	OK(PtlMDAttach(last, describe(bytes, sizeof bytes, PTL_MD_OP_PUT | PTL_MD_EVENT_START_DISABLE, eq), PTL_UNLINK,
		       &md));
	OK(PtlMEInsert(last, any, 2, 0, PTL_UNLINK, PTL_INS_BEFORE, &me));
	OK(PtlMDAttach(me, describe(bytes, sizeof bytes, PTL_MD_OP_PUT | PTL_MD_EVENT_START_DISABLE, eq), PTL_UNLINK, &md));
	OK(PtlMEMDPost(ni, last, any, 3, 0, PTL_UNLINK, PTL_INS_BEFORE,
		       describe(bytes, sizeof bytes, PTL_MD_OP_PUT | PTL_MD_EVENT_START_DISABLE, eq), PTL_UNLINK, &me, &md,
		       PTL_EQ_NONE));
	for (bits = 1; bits <= 3; bits++) {
		OK(PtlPut(from, PTL_NO_ACK_REQ, own, PORTAL, 1, bits, 0, 0));
		e = expect(eq, PTL_EVENT_PUT_END);
		CHECK(e.match_bits == bits && e.initiator.pid == own.pid);
	}
	PtlFini();
	return 0;
}
