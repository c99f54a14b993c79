/* The integer types of C99, for programs that include this name. */
#ifndef PORTABLE_INTTYPES_H
#define PORTABLE_INTTYPES_H
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#endif
