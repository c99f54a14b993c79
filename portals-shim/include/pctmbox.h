/* The older header of Cray's start-up functions. */
#include "cnos_mpi_os.h"
