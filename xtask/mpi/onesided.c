/* Windows of any MPI: put, get, atomic sums, in fences and locks. Prints "N ranks, 0 failures". */
#include <mpi.h>
#include <stdio.h>

enum { WORDS = 1024, ROUNDS = 100 };

int main(int argc, char **argv)
{
    int me, ranks, bad = 0, all = 0, got = -5, one = 1, old;
    int *words;
    MPI_Win window;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int right = (me + 1) % ranks, left = (me + ranks - 1) % ranks;
    MPI_Win_allocate(WORDS * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &words, &window);
    for (int i = 0; i < WORDS; i++)
        words[i] = -1;
    words[5] = 0;
    MPI_Win_fence(0, window);
    MPI_Put(&me, 1, MPI_INT, right, 3, 1, MPI_INT, window);
    MPI_Win_fence(0, window);
    bad += words[3] != left;
    MPI_Get(&got, 1, MPI_INT, right, 3, 1, MPI_INT, window);
    MPI_Win_fence(0, window);
    bad += got != me;
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
        MPI_Fetch_and_op(&one, &old, MPI_INT, 0, 5, MPI_SUM, window);
        MPI_Win_unlock(0, window);
        bad += old < 0 || old >= ranks * ROUNDS;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
    MPI_Get(&got, 1, MPI_INT, 0, 5, 1, MPI_INT, window);
    MPI_Win_unlock(0, window);
    bad += got != ranks * ROUNDS;
    MPI_Win_free(&window);
    MPI_Reduce(&bad, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (me == 0)
        printf("%d ranks, %d failures\n", ranks, all);
    MPI_Finalize();
    return bad != 0;
}
