/* The path that Cray's programs include. */
#include "../cnos_mpi_os.h"
