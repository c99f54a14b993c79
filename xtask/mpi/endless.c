/* Sums and messages until it is killed. */
#include <mpi.h>

int main(int argc, char **argv)
{
    int me, ranks, sum;
    static char out[20000], in[20000];

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int round = 0;; round++) {
        MPI_Allreduce(&round, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        MPI_Sendrecv(out, round % 20000, MPI_CHAR, (me + 1) % ranks, 1, in, 20000, MPI_CHAR,
                     (me + ranks - 1) % ranks, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}
