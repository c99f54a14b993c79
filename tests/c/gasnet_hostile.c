/* Every node exchanges messages and data of every kind and size with its neighbours, checks each byte, and node 0 writes one
 * checksum of what all have received to a file. Arguments: the file, and what the nodes do to themselves after the first exchange:
 *   plain         nothing
 *   descriptors   node 1 uses up its file descriptors
 *   undumpable    each node clears PR_SET_DUMPABLE
 *   user          each node becomes user 65534
 *   child         each node forks a child that closes every descriptor and exits
 */
#include "gasnet_check.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define LARGEST ((size_t)1 << 20)
#define ROUNDS 3
#define MESSAGES 200

static const size_t sizes[] = { 1, 8, 100, 512, 4096, 70000, 300000, LARGEST };

static int me, nodes;
static gasnet_seginfo_t *segment;
static volatile int asked, answered;
static uint64_t sum;

/* FNV-1a. */
static void add(const void *bytes, size_t length)
{
	const unsigned char *byte = bytes;

	for (size_t i = 0; i < length; i++) sum = (sum ^ byte[i]) * 0x100000001b3u;
}

static unsigned char value(int node, size_t size, int round, size_t i)
{
	return (unsigned char)(node * 31 + round * 7 + size % 251 + i % 253);
}

static void fill(unsigned char *to, int node, size_t size, int round)
{
	for (size_t i = 0; i < size; i++) to[i] = value(node, size, round, i);
}

static void expect(const unsigned char *from, int node, size_t size, int round)
{
	for (size_t i = 0; i < size; i++) CHECK(from[i] == value(node, size, round, i));
	add(from, size);
}

static void meet(void)
{
	gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
	OK(gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS));
}

static void medium(gasnet_token_t token, void *bytes, size_t length, gasnet_handlerarg_t round)
{
	gasnet_node_t from;

	OK(gasnet_AMGetMsgSource(token, &from));
	expect(bytes, (int)from, length, round);
	asked++;
	OK(gasnet_AMReplyShort0(token, 202));
}

static void answer(gasnet_token_t token)
{
	(void)token;
	answered++;
}

static void exchange(int round)
{
	int right = (me + 1) % nodes, left = (me + nodes - 1) % nodes;
	unsigned char *there = segment[right].addr, *own = segment[me].addr;
	unsigned char *out = malloc(LARGEST + 1), *in = malloc(LARGEST + 1);

	CHECK(out && in);
	for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
		size_t size = sizes[s];

		fill(out, me, size, round);
		memset(own, 0, size);
		meet();
		gasnet_put_bulk(right, there, out, size);
		meet();
		expect(own, left, size, round);
		in[size] = 0xa5;
		gasnet_get_bulk(in, right, there, size);
		expect(in, me, size, round);
		CHECK(in[size] == 0xa5);
		meet();
	}
	/* A neighbour may be ahead: the counts go on from round to round. */
	for (int i = 0; i < MESSAGES; i++) {
		fill(out, me, 512, round);
		OK(gasnet_AMRequestMedium1(right, 201, out, 512, round));
	}
	GASNET_BLOCKUNTIL(answered == MESSAGES * (round + 1) && asked == MESSAGES * (round + 1));
	meet();
	free(out);
	free(in);
}

static void child(void)
{
	int status;
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		for (int fd = 0; fd < 1024; fd++) close(fd);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void harm(const char *how)
{
	if (strcmp(how, "descriptors") == 0 && me == nodes - 1)
		while (open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0);
	if (strcmp(how, "undumpable") == 0) CHECK(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0);
	if (strcmp(how, "user") == 0) CHECK(setgid(65534) == 0 && setuid(65534) == 0);
	if (strcmp(how, "child") == 0) child();
}

/* Node 0 adds the sums of all, in their order, and writes the result; the descriptor was opened before the harm. */
static void report(int fd)
{
	uint64_t *shared = segment[me].addr, total = 0;
	char line[64];
	int length;

	*shared = sum;
	meet();
	if (me == 0) {
		for (int node = 0; node < nodes; node++) {
			uint64_t one;

			gasnet_get(&one, node, segment[node].addr, sizeof one);
			total = total * 31 + one;
		}
		length = snprintf(line, sizeof line, "checksum 0x%016llx\n", (unsigned long long)total);
		CHECK(write(fd, line, (size_t)length) == length);
	}
	meet();
}

int main(int argc, char **argv)
{
	gasnet_handlerentry_t table[] = { { 201, (void (*)())medium }, { 202, (void (*)())answer } };
	int fd = -1;

	if (gasnet_init(&argc, &argv) != GASNET_OK) return 3;
	if (argc != 3) return 2;
	OK(gasnet_attach(table, 2, (2 * LARGEST + GASNET_PAGESIZE - 1) / GASNET_PAGESIZE * GASNET_PAGESIZE, 0));
	me = (int)gasnet_mynode();
	nodes = (int)gasnet_nodes();
	segment = calloc((size_t)nodes, sizeof *segment);
	CHECK(segment);
	OK(gasnet_getSegmentInfo(segment, nodes));
	sum = 0xcbf29ce484222325u;
	if (me == 0) {
		fd = open(argv[1], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
		CHECK(fd >= 3);
	}
	for (int round = 0; round < ROUNDS; round++) {
		exchange(round);
		if (round == 0) harm(argv[2]);
	}
	report(fd);
	printf("node %d of %d: all as expected\n", me, nodes);
	fprintf(stderr, "node %d of %d: a word on standard error\n", me, nodes);
	fflush(NULL);
	gasnet_exit(0);
}
