/* Point to point and collectives of any MPI: every message checked byte by byte. Prints "N ranks, 0 failures". */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int me, ranks, bad;

#define CHECK(what)                                                              \
    do {                                                                         \
        if (!(what)) {                                                           \
            bad++;                                                               \
            fprintf(stderr, "rank %d, line %d: not %s\n", me, __LINE__, #what); \
        }                                                                        \
    } while (0)

static void fill(char *bytes, size_t len, int from)
{
    for (size_t i = 0; i < len; i++)
        bytes[i] = (char)(i * 7 + (size_t)from);
}

static int is_of(const char *bytes, size_t len, int from)
{
    for (size_t i = 0; i < len; i++)
        if (bytes[i] != (char)(i * 7 + (size_t)from))
            return 0;
    return 1;
}

/* Each length to the right, once into a posted receive, and once before anybody has asked for it. */
static void ring(int left, int right)
{
    for (size_t len = 0; len <= 4u << 20; len = len ? len * 4 : 1) {
        char *out = malloc(len + 1), *in = calloc(len + 1, 1);
        MPI_Request request;
        MPI_Status status;
        int count;

        fill(out, len, me);
        MPI_Irecv(in, (int)len, MPI_CHAR, left, 5, MPI_COMM_WORLD, &request);
        MPI_Send(out, (int)len, MPI_CHAR, right, 5, MPI_COMM_WORLD);
        MPI_Wait(&request, &status);
        CHECK(is_of(in, len, left));
        CHECK(status.MPI_SOURCE == left);

        memset(in, 0, len);
        MPI_Isend(out, (int)len, MPI_CHAR, right, 6, MPI_COMM_WORLD, &request);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Probe(MPI_ANY_SOURCE, 6, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_CHAR, &count);
        CHECK(count == (int)len);
        MPI_Recv(in, (int)len, MPI_CHAR, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        CHECK(status.MPI_TAG == 6);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        CHECK(is_of(in, len, left));
        free(out);
        free(in);
    }
}

static void kinds(int left, int right)
{
    MPI_Request request;
    MPI_Status status;
    MPI_Message message;
    char sent = 3, got = 0;
    int value = -1, cancelled = 0;

    MPI_Issend(&sent, 1, MPI_CHAR, right, 9, MPI_COMM_WORLD, &request);
    MPI_Recv(&got, 1, MPI_CHAR, left, 9, MPI_COMM_WORLD, &status);
    MPI_Wait(&request, &status);
    CHECK(got == 3);

    MPI_Isend(&me, 1, MPI_INT, right, 11, MPI_COMM_WORLD, &request);
    MPI_Mprobe(left, 11, MPI_COMM_WORLD, &message, &status);
    MPI_Mrecv(&value, 1, MPI_INT, &message, &status);
    MPI_Wait(&request, &status);
    CHECK(value == left);

    MPI_Irecv(&value, 1, MPI_INT, left, 77, MPI_COMM_WORLD, &request);
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &cancelled);
    CHECK(cancelled);
}

/* Received in another order than sent. */
static void many(int left, int right)
{
    enum { MANY = 32 };
    MPI_Request requests[2 * MANY];
    int values[MANY];

    for (int i = 0; i < MANY; i++)
        MPI_Irecv(&values[i], 1, MPI_INT, left, i, MPI_COMM_WORLD, &requests[i]);
    for (int i = MANY - 1; i >= 0; i--)
        MPI_Isend(&me, 1, MPI_INT, right, i, MPI_COMM_WORLD, &requests[MANY + i]);
    MPI_Waitall(2 * MANY, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < MANY; i++)
        CHECK(values[i] == left);
}

static void collectives(void)
{
    enum { LONG = 100000 };
    int sum = 0, wrong = 0;
    int *from = malloc(LONG * sizeof(int)), *to = malloc(LONG * sizeof(int));
    int *each = malloc(sizeof(int) * (size_t)ranks), *all = malloc(sizeof(int) * (size_t)ranks);
    MPI_Comm half;

    MPI_Allreduce(&me, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(sum == ranks * (ranks - 1) / 2);
    for (int i = 0; i < LONG; i++)
        from[i] = me + i;
    MPI_Allreduce(from, to, LONG, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < LONG; i++)
        wrong += to[i] != ranks * i + ranks * (ranks - 1) / 2;
    CHECK(wrong == 0);
    MPI_Allgather(&me, 1, MPI_INT, all, 1, MPI_INT, MPI_COMM_WORLD);
    for (int i = 0; i < ranks; i++) {
        CHECK(all[i] == i);
        each[i] = me * 100 + i;
    }
    MPI_Alltoall(each, 1, MPI_INT, all, 1, MPI_INT, MPI_COMM_WORLD);
    for (int i = 0; i < ranks; i++)
        CHECK(all[i] == i * 100 + me);
    MPI_Comm_split(MPI_COMM_WORLD, me & 1, me, &half);
    MPI_Bcast(from, LONG, MPI_INT, 0, half);
    wrong = 0;
    for (int i = 0; i < LONG; i++)
        wrong += from[i] != (me & 1) + i;
    CHECK(wrong == 0);
    MPI_Comm_free(&half);
    free(from);
    free(to);
    free(each);
    free(all);
}

int main(int argc, char **argv)
{
    int all = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int right = (me + 1) % ranks, left = (me + ranks - 1) % ranks;
    ring(left, right);
    kinds(left, right);
    many(left, right);
    collectives();
    MPI_Reduce(&bad, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (me == 0)
        printf("%d ranks, %d failures\n", ranks, all);
    MPI_Finalize();
    return bad != 0;
}
