/* Cray's start-up functions. */
#ifndef PORTOLAN_CNOS_MPI_OS_H
#define PORTOLAN_CNOS_MPI_OS_H

#include "p3api/types.h"

typedef struct {
	ptl_nid_t nid;
	ptl_pid_t pid;
} cnos_nidpid_map_t;

#define CNOS_LAUNCHER_YOD 0
#define CNOS_LAUNCHER_APRUN 1

#ifdef __cplusplus
extern "C" {
#endif

int cnos_get_rank(void);
int cnos_get_size(void);
/* Points *map to an array indexed by rank that the library keeps; returns its length, or -1. */
int cnos_get_nidpid_map(cnos_nidpid_map_t **map);
void cnos_barrier_init(ptl_handle_ni_t ni_handle);
/* 0 where `id` is the process's own. */
int cnos_register_ptlid(ptl_process_id_t id);
/* Waits for all ranks. */
int cnos_barrier(void);
/* Waits for all ranks; with `clean` not 0 this rank has then left the job in good order. */
void cnos_pm_barrier(int clean);
/* CNOS_LAUNCHER_APRUN. */
int cnos_launcher(void);

#ifdef __cplusplus
}
#endif

#endif
