/* Runs a program whose named system calls fail, as container profiles and old kernels make them: deny ERROR NAME[,NAME...] PROGRAM... */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

struct named {
	const char *name;
	int number;
};

static const struct named calls[] = {
	{ "pidfd_open", SYS_pidfd_open },
	{ "process_vm_readv", SYS_process_vm_readv },
	{ "process_vm_writev", SYS_process_vm_writev },
	{ "memfd_create", SYS_memfd_create },
	{ "membarrier", SYS_membarrier },
	{ "madvise", SYS_madvise },
	{ "sched_getaffinity", SYS_sched_getaffinity },
	{ "prlimit64", SYS_prlimit64 },
	{ "getrandom", SYS_getrandom },
};
static const struct named errors[] = { { "ENOSYS", ENOSYS }, { "EPERM", EPERM }, { "ENOMEM", ENOMEM } };

static int number(const char *name, const struct named *table, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (strcmp(name, table[i].name) == 0) return table[i].number;
	fprintf(stderr, "deny: unknown name %s\n", name);
	exit(2);
}

#define NUMBER(name, table) number(name, table, sizeof(table) / sizeof *(table))

int main(int argc, char **argv)
{
	struct sock_filter filter[64];
	struct sock_fprog program = { 0, filter };
	int error;

	if (argc < 4) return 2;
	error = NUMBER(argv[1], errors);
	filter[program.len++] =
		(struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	for (char *name = strtok(argv[2], ","); name; name = strtok(NULL, ",")) {
		if (program.len + 3 > 64) return 2;
		filter[program.len++] =
			(struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NUMBER(name, calls), 0, 1);
		filter[program.len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error);
	}
	filter[program.len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
		perror("deny: seccomp");
		return 2;
	}
	execvp(argv[3], argv + 3);
	perror(argv[3]);
	return 127;
}
