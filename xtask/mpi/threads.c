/* Four threads of each rank talk to the other ranks at once (MPI_THREAD_MULTIPLE). Prints "N ranks, 0 failures". */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 4, ROUNDS = 1000, LONGEST = 9000 };

static int me, ranks, bad;

static void *talk(void *number)
{
    int tag = (int)(long)number;
    int right = (me + 1) % ranks, left = (me + ranks - 1) % ranks;
    char *out = malloc(LONGEST), *in = malloc(LONGEST);

    for (int round = 0; round < ROUNDS; round++) {
        int len = (round * 37) % LONGEST;
        MPI_Request both[2];

        for (int i = 0; i < len; i++)
            out[i] = (char)(i + tag + round);
        MPI_Irecv(in, len, MPI_CHAR, left, tag, MPI_COMM_WORLD, &both[0]);
        MPI_Isend(out, len, MPI_CHAR, right, tag, MPI_COMM_WORLD, &both[1]);
        MPI_Waitall(2, both, MPI_STATUSES_IGNORE);
        for (int i = 0; i < len; i++)
            if (in[i] != (char)(i + tag + round)) {
                __sync_fetch_and_add(&bad, 1);
                break;
            }
    }
    free(out);
    free(in);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    int level, all = 0;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    bad += level != MPI_THREAD_MULTIPLE;
    for (long i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, talk, (void *)i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    MPI_Reduce(&bad, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (me == 0)
        printf("%d ranks, %d failures\n", ranks, all);
    MPI_Finalize();
    return bad != 0;
}
