/* Children that a node forks end, each in another way; the job is the node's, and goes on as if there had been none. The
 * standard descriptors of a node that is started without any are nothing of the library's. A node that closes all of its
 * descriptors ends the job, if it does, as itself. */
#include <gasnet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "gasnet_check.h"

enum { HEARD = 200, MESSAGES = 50 };

static volatile int heard;

static void hear(gasnet_token_t token)
{
	(void)token;
	heard++;
}

static void meet(void)
{
	gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
	if (gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS) != GASNET_OK) abort();
}

static void close_all(void)
{
	for (int fd = 3; fd < 1024; fd++) close(fd);
}

static void talk(void)
{
	gasnet_node_t next = (gasnet_mynode() + 1) % gasnet_nodes();
	int wanted = heard + MESSAGES;
	meet();
	for (int i = 0; i < MESSAGES; i++) gasnet_AMRequestShort0(next, HEARD);
	GASNET_BLOCKUNTIL(heard >= wanted);
	meet();
}

/* The status of a child that ends so. */
static int child(const char *how)
{
	int status;
	pid_t pid = fork();
	if (pid < 0) abort();
	if (pid == 0) {
		if (strchr(how, 'c')) close_all();
		if (strchr(how, 'a')) abort();
		if (strchr(how, 's')) raise(SIGSEGV);
		if (strchr(how, '0')) gasnet_exit(0);
		if (strchr(how, '5')) gasnet_exit(5);
		if (strchr(how, 'e')) exit(6);
		_exit(7);
	}
	while (waitpid(pid, &status, 0) != pid) { }
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static int is_null(int fd)
{
	char name[64], target[64];
	snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
	ssize_t length = readlink(name, target, sizeof target);
	return length == 9 && memcmp(target, "/dev/null", 9) == 0;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *how;
		int status;
	} ends[] = {{"0", 0}, {"5", 5}, {"e", 6}, {"_", 7}, {"a", 128 + SIGABRT}, {"s", 128 + SIGSEGV},
		    {"c0", 0}, {"c5", 5}, {"ce", 6}, {"ca", 128 + SIGABRT}};
	gasnet_handlerentry_t table[] = {{HEARD, (void (*)())hear}};
	static gasnet_seginfo_t info[64];

	gasnet_init(&argc, &argv);
	gasnet_attach(table, 1, GASNET_PAGESIZE, 0);
	if (argc > 1 && strcmp(argv[1], "all") == 0) {
		talk();
		if (gasnet_mynode() == 1) close_all();
		talk();
		gasnet_exit(0);
	}
	if (argc > 1) {
		const char *bytes;
		gasnet_getSegmentInfo(info, 64);
		bytes = info[gasnet_mynode()].addr;
		memset(info[gasnet_mynode()].addr, 0, GASNET_PAGESIZE);
		talk();
		for (int i = 0; i < 300; i++) {
			printf("line %d to standard output\n", i);
			fprintf(stderr, "line %d to standard error\n", i);
		}
		fflush(stdout);
		talk();
		for (size_t i = 0; i < GASNET_PAGESIZE; i++)
			if (bytes[i]) gasnet_exit(10);
		for (int fd = 0; fd < 3; fd++)
			if (!is_null(fd)) gasnet_exit(20 + fd);
		gasnet_exit(0);
	}
	talk();
	for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
		int status = child(ends[i].how);
		if (status != ends[i].status) {
			fprintf(stderr, "child %s: status %d\n", ends[i].how, status);
			gasnet_exit(30);
		}
		talk();
	}
	printf("node %d: all right\n", (int)gasnet_mynode());
	fflush(stdout);
	meet();
	gasnet_exit(0);
}
