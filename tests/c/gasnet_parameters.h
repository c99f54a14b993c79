/* Parameters and arguments of a handler of each number: P3 is `, arg a0, arg a1, arg a2`, A3 the same without the type. */
#ifndef GASNET_PARAMETERS_H
#define GASNET_PARAMETERS_H

#include <gasnet.h>

typedef gasnet_handlerarg_t arg;

#define P0
#define P1 , arg a0
#define P2 P1, arg a1
#define P3 P2, arg a2
#define P4 P3, arg a3
#define P5 P4, arg a4
#define P6 P5, arg a5
#define P7 P6, arg a6
#define P8 P7, arg a7
#define P9 P8, arg a8
#define P10 P9, arg a9
#define P11 P10, arg a10
#define P12 P11, arg a11
#define P13 P12, arg a12
#define P14 P13, arg a13
#define P15 P14, arg a14
#define P16 P15, arg a15
#define A0
#define A1 , a0
#define A2 A1, a1
#define A3 A2, a2
#define A4 A3, a3
#define A5 A4, a4
#define A6 A5, a5
#define A7 A6, a6
#define A8 A7, a7
#define A9 A8, a8
#define A10 A9, a9
#define A11 A10, a10
#define A12 A11, a11
#define A13 A12, a12
#define A14 A13, a13
#define A15 A14, a14
#define A16 A15, a15

#endif
