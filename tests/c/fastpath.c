/* What a put and a look into a queue cost in locks: at most one each, taken without a system call. The
 * program is followed instruction by instruction; a lock is taken by a "lock cmpxchg". One rank, x86-64.
 *
 * Rule 73: any thread may call, and who calls alone does not pay for it. */
#include "check.h"

#if defined(__x86_64__) && defined(__linux__)

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PORTAL = 2, MOST = 200000 };

static char bytes[16];
static ptl_handle_md_t out;
static ptl_handle_eq_t eq;
static ptl_process_id_t own;

/* The traced process stops here, before and behind what is counted. */
static void mark(void)
{
	__asm__ volatile("int3" ::: "memory");
}

static void traced(void)
{
	ptl_handle_ni_t ni;
	ptl_handle_me_t me;
	ptl_handle_md_t in;
	ptl_event_t event;
	int i, max_interfaces, rc;

	OK(PtlInit(&max_interfaces));
	OK(PtlNIInit(PTL_IFACE_SELF, PTL_PID_ANY, NULL, NULL, &ni));
	OK(PtlGetId(ni, &own));
	OK(PtlEQAlloc(ni, 16, PTL_EQ_HANDLER_NONE, &eq));
	OK(PtlMEAttach(ni, PORTAL, anyone, 0, 0, PTL_RETAIN, PTL_INS_AFTER, &me));
	OK(PtlMDAttach(me, describe(bytes, 8, PTL_MD_OP_PUT | PTL_MD_MANAGE_REMOTE, PTL_EQ_NONE),
		       PTL_RETAIN, &in));
	OK(PtlMDBind(ni, describe(bytes + 8, 8, PTL_MD_EVENT_START_DISABLE, eq), PTL_RETAIN, &out));
	for (i = 0; i < 20; i++) {
		OK(PtlPut(out, PTL_NO_ACK_REQ, own, PORTAL, 0, 0, 0, 0));
		OK(PtlEQGet(eq, &event));
		while (PtlEQGet(eq, &event) != PTL_EQ_EMPTY)
			;
	}
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
		_exit(77);
	mark();
	rc = PtlPut(out, PTL_NO_ACK_REQ, own, PORTAL, 0, 0, 0, 0);
	mark();
	OK(rc);
	mark();
	rc = PtlEQGet(eq, &event);
	mark();
	OK(rc);
	CHECK(event.type == PTL_EVENT_SEND_END);
	_exit(0);
}

/* Steps to the next mark, which it does not pass. Counts the locks that are taken on the way, the
 * system calls, and the instructions. */
static int count(pid_t child, int *calls, int *steps)
{
	int locks = 0;

	*calls = 0;
	for (*steps = 0; *steps < MOST; (*steps)++) {
		struct user_regs_struct regs;
		unsigned long word;
		const unsigned char *code = (const unsigned char *)&word;
		int status;

		CHECK(ptrace(PTRACE_GETREGS, child, NULL, &regs) == 0);
		word = (unsigned long)ptrace(PTRACE_PEEKTEXT, child, (void *)regs.rip, NULL);
		if (code[0] == 0xf0) {
			/* Behind the prefixes: 0f b0 and 0f b1 are cmpxchg. */
			int at = 1;

			while (code[at] == 0x66 || (code[at] & 0xf0) == 0x40)
				at++;
			if (code[at] == 0x0f && (code[at + 1] & 0xfe) == 0xb0)
				locks++;
		}
		if (code[0] == 0x0f && code[1] == 0x05)
			(*calls)++;
		if (code[0] == 0xcc)
			return locks;
		CHECK(ptrace(PTRACE_SINGLESTEP, child, NULL, NULL) == 0);
		CHECK(waitpid(child, &status, 0) == child && WIFSTOPPED(status) &&
		      WSTOPSIG(status) == SIGTRAP);
	}
	CHECK(!"the call ends");
	return -1;
}

/* Runs to the next mark, and passes it. */
static void resume(pid_t child)
{
	int status;

	CHECK(ptrace(PTRACE_CONT, child, NULL, NULL) == 0);
	CHECK(waitpid(child, &status, 0) == child && WIFSTOPPED(status) &&
	      WSTOPSIG(status) == SIGTRAP);
}

int main(void)
{
	pid_t child = fork();
	int status, calls, steps, locks, i;

	CHECK(child >= 0);
	if (child == 0)
		traced();
	CHECK(waitpid(child, &status, 0) == child);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
		printf("skipped: a process cannot be followed here\n");
		return 0;
	}
	CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP);
	for (i = 0; i < 2; i++) {
		locks = count(child, &calls, &steps);
		printf("%s: %d lock, %d system calls, %d instructions\n",
		       i ? "PtlEQGet" : "PtlPut", locks, calls, steps);
		CHECK(locks == 1 && calls == 0);
		resume(child);
		if (i == 0)
			resume(child);
	}
	CHECK(ptrace(PTRACE_CONT, child, NULL, NULL) == 0);
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) &&
	      WEXITSTATUS(status) == 0);
	return 0;
}

#else

int main(void)
{
	printf("skipped: only on x86-64\n");
	return 0;
}

#endif
