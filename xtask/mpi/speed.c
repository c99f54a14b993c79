/* Times two ranks: `speed pingpong BYTES` a message there and back, halved; `speed rate BYTES` one of a window of 64. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 9, WINDOW = 64, LONGEST = 1 << 22 };

static char buffer[LONGEST];
static int me;

static void ping_pong(int len)
{
    for (int turn = 0; turn < 2; turn++)
        if (me == turn)
            MPI_Send(buffer, len, MPI_CHAR, !me, 1, MPI_COMM_WORLD);
        else
            MPI_Recv(buffer, len, MPI_CHAR, !me, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void window(int len)
{
    MPI_Request all[WINDOW];
    for (int n = 0; n < WINDOW; n++)
        if (me == 0)
            MPI_Isend(buffer, len, MPI_CHAR, 1, 1, MPI_COMM_WORLD, &all[n]);
        else
            MPI_Irecv(buffer, len, MPI_CHAR, 0, 1, MPI_COMM_WORLD, &all[n]);
    MPI_Waitall(WINDOW, all, MPI_STATUSES_IGNORE);
    if (me == 0)
        MPI_Recv(NULL, 0, MPI_CHAR, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else
        MPI_Send(NULL, 0, MPI_CHAR, 0, 2, MPI_COMM_WORLD);
}

static int order(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int len = argc > 2 ? atoi(argv[2]) : -1;
    if (ranks != 2 || len < 0 || len > LONGEST) {
        fprintf(stderr, "two ranks: speed pingpong|rate BYTES\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    int rate = strcmp(argv[1], "rate") == 0;
    int times = len > 100000 ? 40 : len > 10000 ? 200 : rate ? 200 : 2000;
    double per = rate ? WINDOW : 2, blocks[BLOCKS];
    /* The first block warms up. */
    for (int block = -1; block < BLOCKS; block++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double begun = MPI_Wtime();
        for (int n = 0; n < times; n++)
            (rate ? window : ping_pong)(len);
        if (block >= 0)
            blocks[block] = (MPI_Wtime() - begun) / times / per * 1e6;
    }
    qsort(blocks, BLOCKS, sizeof *blocks, order);
    if (me == 0)
        printf("median of %d: %.4f us\n", BLOCKS, blocks[BLOCKS / 2]);
    MPI_Finalize();
    return 0;
}
