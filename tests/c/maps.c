/* Ranks and job ids that the environment gives wrongly, or in part. One rank. */
#include "check.h"

/* Sets the three variables; NULL is not set. */
static void environment(const char *rid, const char *nids, const char *pids)
{
	const char *names[] = {"PTL_MY_RID", "PTL_NIDMAP", "PTL_PIDMAP"};
	const char *values[] = {NULL, NULL, NULL};
	int i;

	values[0] = rid;
	values[1] = nids;
	values[2] = pids;
	for (i = 0; i < 3; i++)
		if (values[i])
			setenv(names[i], values[i], 1);
		else
			unsetenv(names[i]);
}

/* Scenario 103. */
static void maps(void)
{
	static const struct {
		const char *rid, *nids, *pids;
		int code;
	} wrong[] = {
		{NULL, "0:1", "7:8", PTL_NO_INIT},
		{"0", NULL, "7:8", PTL_NO_INIT},
		{"0", "0:1", NULL, PTL_NO_INIT},
		{"0", NULL, NULL, PTL_NO_INIT},
		{"0", "0:1:2", "7:8", PTL_FAIL},
		{"0", "0:1", "7", PTL_FAIL},
		{"2", "0:1", "7:8", PTL_FAIL},
		{"4294967295", "0:1", "7:8", PTL_FAIL},
		{"4294967296", "0:1", "7:8", PTL_FAIL},
		{"-1", "0:1", "7:8", PTL_FAIL},
		{"one", "0:1", "7:8", PTL_FAIL},
		{"0", "0:x", "7:8", PTL_FAIL},
		{"0", "0:1", "7:99999999999", PTL_FAIL},
		{"0", ":::", ":", PTL_FAIL},
	};
	unsigned i, rank, size;
	ptl_process_id_t id;
	int max_interfaces;

	OK(PtlInit(&max_interfaces));
	for (i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		environment(wrong[i].rid, wrong[i].nids, wrong[i].pids);
		GIVES(wrong[i].code, PtlSetRank(PTL_INVALID_HANDLE, (unsigned)-1, (unsigned)-1));
		GIVES(PTL_NO_INIT, PtlGetRank(PTL_INVALID_HANDLE, &rank, &size));
	}
	environment("0x1", "0:010", ":300::0x12d:");
	OK(PtlSetRank(PTL_INVALID_HANDLE, (unsigned)-1, (unsigned)-1));
	OK(PtlGetRank(PTL_INVALID_HANDLE, &rank, &size));
	CHECK(rank == 1 && size == 2);
	OK(PtlGetRankId(PTL_INVALID_HANDLE, 1, &id));
	CHECK(id.nid == 8 && id.pid == 301);
	GIVES(PTL_NO_INIT, PtlGetRankId(PTL_INVALID_HANDLE, 2, &id));
	GIVES(PTL_FAIL, PtlSetRank(PTL_INVALID_HANDLE, 0, 1));
	environment(NULL, NULL, NULL);
	PtlFini();
}

/* The job id: PTL_MY_JID, unless PtlSetJID was called. */
static void job_ids(void)
{
	static const char *const wrong[] = {"65536", "-1", "job", "0x"};
	ptl_handle_ni_t ni = PTL_INVALID_HANDLE;
	ptl_event_t e;
	ptl_handle_eq_t eq;
	ptl_handle_me_t me;
	ptl_handle_md_t in, out;
	ptl_process_id_t own;
	ptl_jid_t jid;
	char byte = 0;
	unsigned i;
	int max_interfaces;

	OK(PtlInit(&max_interfaces));
	for (i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		setenv("PTL_MY_JID", wrong[i], 1);
		GIVES(PTL_FAIL, PtlNIInit(tested_interface(), PTL_PID_ANY, NULL, NULL, &ni));
		CHECK(ni == PTL_INVALID_HANDLE);
	}
	setenv("PTL_MY_JID", "0x141", 1);
	OK(PtlNIInit(tested_interface(), PTL_PID_ANY, NULL, NULL, &ni));
	OK(PtlGetJid(ni, &jid));
	CHECK(jid == 321);

	/* Events tell it, and access control looks at it. */
	OK(PtlEQAlloc(ni, 8, PTL_EQ_HANDLER_NONE, &eq));
	OK(PtlMEAttach(ni, 1, anyone, 0, 0, PTL_RETAIN, PTL_INS_AFTER, &me));
	OK(PtlMDAttach(me,
		       describe(&byte, 1,
				PTL_MD_OP_PUT | PTL_MD_MANAGE_REMOTE | PTL_MD_EVENT_START_DISABLE,
				eq),
		       PTL_RETAIN, &in));
	OK(PtlMDBind(ni, describe(&byte, 1, 0, PTL_EQ_NONE), PTL_RETAIN, &out));
	OK(PtlGetId(ni, &own));
	OK(PtlACEntry(ni, 1, anyone, PTL_UID_ANY, 320, PTL_PT_INDEX_ANY));
	OK(PtlACEntry(ni, 2, anyone, PTL_UID_ANY, 321, PTL_PT_INDEX_ANY));
	OK(PtlPut(out, PTL_NO_ACK_REQ, own, 1, 1, 0, 0, 1));
	OK(PtlPut(out, PTL_NO_ACK_REQ, own, 1, 2, 0, 0, 2));
	e = expect(eq, PTL_EVENT_PUT_END);
	CHECK(e.hdr_data == 2 && e.jid == 321);
	OK(PtlNIFini(ni));

	GIVES(PTL_FAIL, PtlSetJID(0x10000));
	OK(PtlSetJID(5));
	OK(PtlNIInit(tested_interface(), PTL_PID_ANY, NULL, NULL, &ni));
	OK(PtlGetJid(ni, &jid));
	CHECK(jid == 5);
	PtlFini();
}

int main(void)
{
	maps();
	job_ids();
	return 0;
}
