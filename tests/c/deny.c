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

#define CALL(name) { #name, SYS_##name }

struct named {
	const char *name;
	int number;
};

static const struct named calls[] = {
	CALL(accept), CALL(accept4), CALL(bind), CALL(brk), CALL(clock_gettime), CALL(clock_nanosleep), CALL(clone),
	CALL(connect), CALL(dup), CALL(dup3), CALL(epoll_create1), CALL(epoll_ctl), CALL(epoll_pwait), CALL(eventfd2),
	CALL(faccessat), CALL(fallocate), CALL(fchmodat), CALL(fcntl), CALL(flock), CALL(fstat), CALL(fstatfs),
	CALL(ftruncate), CALL(futex), CALL(getcwd), CALL(getdents64), CALL(getegid), CALL(geteuid), CALL(getgid),
	CALL(getpgid), CALL(getpid), CALL(getppid), CALL(getrandom), CALL(getsid), CALL(getsockname), CALL(getsockopt),
	CALL(gettid), CALL(getuid), CALL(ioctl), CALL(kill), CALL(listen), CALL(lseek), CALL(madvise), CALL(membarrier),
	CALL(memfd_create), CALL(mkdirat), CALL(mlock), CALL(mprotect), CALL(mremap), CALL(munmap), CALL(nanosleep),
	CALL(openat), CALL(personality), CALL(pidfd_open), CALL(pipe2), CALL(ppoll), CALL(prctl), CALL(pread64),
	CALL(prlimit64), CALL(process_vm_readv), CALL(process_vm_writev), CALL(pwrite64), CALL(readlinkat), CALL(recvfrom),
	CALL(recvmsg), CALL(rseq), CALL(rt_sigaction), CALL(rt_sigprocmask), CALL(sched_getaffinity), CALL(sched_setaffinity),
	CALL(sched_yield), CALL(sendmsg), CALL(sendto), CALL(set_robust_list), CALL(setsid), CALL(setsockopt), CALL(shutdown),
	CALL(sigaltstack), CALL(signalfd4), CALL(socket), CALL(socketpair), CALL(statfs), CALL(statx), CALL(sysinfo),
	CALL(tgkill), CALL(timerfd_create), CALL(timerfd_settime), CALL(umask), CALL(uname), CALL(unlinkat), CALL(wait4),
	CALL(waitid), CALL(writev),
#ifdef SYS_access
	CALL(access),
#endif
#ifdef SYS_arch_prctl
	CALL(arch_prctl),
#endif
#ifdef SYS_clone3
	CALL(clone3),
#endif
#ifdef SYS_close_range
	CALL(close_range),
#endif
#ifdef SYS_dup2
	CALL(dup2),
#endif
#ifdef SYS_epoll_create
	CALL(epoll_create),
#endif
#ifdef SYS_epoll_wait
	CALL(epoll_wait),
#endif
#ifdef SYS_eventfd
	CALL(eventfd),
#endif
#ifdef SYS_fork
	CALL(fork),
#endif
#ifdef SYS_getpgrp
	CALL(getpgrp),
#endif
#ifdef SYS_getrlimit
	CALL(getrlimit),
#endif
#ifdef SYS_gettimeofday
	CALL(gettimeofday),
#endif
#ifdef SYS_lstat
	CALL(lstat),
#endif
#ifdef SYS_mkdir
	CALL(mkdir),
#endif
#ifdef SYS_newfstatat
	CALL(newfstatat),
#endif
#ifdef SYS_open
	CALL(open),
#endif
#ifdef SYS_pidfd_send_signal
	CALL(pidfd_send_signal),
#endif
#ifdef SYS_pipe
	CALL(pipe),
#endif
#ifdef SYS_poll
	CALL(poll),
#endif
#ifdef SYS_readlink
	CALL(readlink),
#endif
#ifdef SYS_select
	CALL(select),
#endif
#ifdef SYS_stat
	CALL(stat),
#endif
#ifdef SYS_time
	CALL(time),
#endif
#ifdef SYS_unlink
	CALL(unlink),
#endif
#ifdef SYS_vfork
	CALL(vfork),
#endif
};
static const struct named errors[] = {
	{ "EACCES", EACCES }, { "EAGAIN", EAGAIN }, { "ECONNABORTED", ECONNABORTED }, { "EINVAL", EINVAL },
	{ "ENOMEM", ENOMEM }, { "ENOSYS", ENOSYS }, { "EPERM", EPERM },
};

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
