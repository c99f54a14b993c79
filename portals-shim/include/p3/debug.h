/* Where programs may send debug output. */
#ifndef PORTOLAN_P3_DEBUG_H
#define PORTOLAN_P3_DEBUG_H

#include <stdio.h>

#include <p3api/debug.h>

/* A program's own stream; the library writes nothing to it. */
static FILE *p3_out __attribute__((unused));

#endif
