/* gasnet_am.h: the calls that send active messages, included by gasnet.h.
 *
 * gasnet_AMRequestShort3(node, handler, a, b, c) and its kin convert each argument and pass their
 * number on; the names without a number take it as an argument.
 */
#ifndef GASNET_AM_H
#define GASNET_AM_H

int gasneti_AMRequestShort(gasnet_node_t node, gasnet_handler_t handler, int count, const gasnet_handlerarg_t *args);
int gasneti_AMRequestMedium(gasnet_node_t node, gasnet_handler_t handler, void *source, size_t nbytes, int count,
                            const gasnet_handlerarg_t *args);
int gasneti_AMRequestLong(gasnet_node_t node, gasnet_handler_t handler, void *source, size_t nbytes, void *dest,
                          int count, const gasnet_handlerarg_t *args);
int gasneti_AMRequestLongAsync(gasnet_node_t node, gasnet_handler_t handler, void *source, size_t nbytes, void *dest,
                               int count, const gasnet_handlerarg_t *args);
int gasneti_AMReplyShort(gasnet_token_t token, gasnet_handler_t handler, int count, const gasnet_handlerarg_t *args);
int gasneti_AMReplyMedium(gasnet_token_t token, gasnet_handler_t handler, void *source, size_t nbytes, int count,
                          const gasnet_handlerarg_t *args);
int gasneti_AMReplyLong(gasnet_token_t token, gasnet_handler_t handler, void *source, size_t nbytes, void *dest,
                        int count, const gasnet_handlerarg_t *args);

/* Numbers above 16 are refused by the call; only 16 arguments are looked at. */
#define GASNETI_AM_COLLECT(count)                                                     \
    gasnet_handlerarg_t gasneti_args[16];                                             \
    int gasneti_i;                                                                    \
    va_list gasneti_rest;                                                             \
    va_start(gasneti_rest, count);                                                    \
    for (gasneti_i = 0; gasneti_i < (count) && gasneti_i < 16; gasneti_i++)           \
        gasneti_args[gasneti_i] = va_arg(gasneti_rest, gasnet_handlerarg_t);          \
    va_end(gasneti_rest)

GASNETI_INLINE_WORDS int gasnet_AMRequestShort(gasnet_node_t node, gasnet_handler_t handler,
                                        int count, ...) {
    GASNETI_AM_COLLECT(count);
    return gasneti_AMRequestShort(node, handler, count, gasneti_args);
}
GASNETI_INLINE_WORDS int gasnet_AMRequestMedium(gasnet_node_t node, gasnet_handler_t handler, void *source, size_t nbytes,
                                        int count, ...) {
    GASNETI_AM_COLLECT(count);
    return gasneti_AMRequestMedium(node, handler, source, nbytes, count, gasneti_args);
}
GASNETI_INLINE_WORDS int gasnet_AMRequestLong(gasnet_node_t node, gasnet_handler_t handler, void *source, size_t nbytes, void *dest,
                                        int count, ...) {
    GASNETI_AM_COLLECT(count);
    return gasneti_AMRequestLong(node, handler, source, nbytes, dest, count, gasneti_args);
}
GASNETI_INLINE_WORDS int gasnet_AMRequestLongAsync(gasnet_node_t node, gasnet_handler_t handler, void *source, size_t nbytes, void *dest,
                                        int count, ...) {
    GASNETI_AM_COLLECT(count);
    return gasneti_AMRequestLongAsync(node, handler, source, nbytes, dest, count, gasneti_args);
}
GASNETI_INLINE_WORDS int gasnet_AMReplyShort(gasnet_token_t token, gasnet_handler_t handler,
                                        int count, ...) {
    GASNETI_AM_COLLECT(count);
    return gasneti_AMReplyShort(token, handler, count, gasneti_args);
}
GASNETI_INLINE_WORDS int gasnet_AMReplyMedium(gasnet_token_t token, gasnet_handler_t handler, void *source, size_t nbytes,
                                        int count, ...) {
    GASNETI_AM_COLLECT(count);
    return gasneti_AMReplyMedium(token, handler, source, nbytes, count, gasneti_args);
}
GASNETI_INLINE_WORDS int gasnet_AMReplyLong(gasnet_token_t token, gasnet_handler_t handler, void *source, size_t nbytes, void *dest,
                                        int count, ...) {
    GASNETI_AM_COLLECT(count);
    return gasneti_AMReplyLong(token, handler, source, nbytes, dest, count, gasneti_args);
}

#define GASNETI_A(argument) ((gasnet_handlerarg_t)(argument))

#define gasnet_AMRequestShort0(n, h) gasnet_AMRequestShort(n, h, 0)
#define gasnet_AMRequestShort1(n, h, a0) gasnet_AMRequestShort(n, h, 1, GASNETI_A(a0))
#define gasnet_AMRequestShort2(n, h, a0, a1) gasnet_AMRequestShort(n, h, 2, GASNETI_A(a0), GASNETI_A(a1))
#define gasnet_AMRequestShort3(n, h, a0, a1, a2) \
    gasnet_AMRequestShort(n, h, 3, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2))
#define gasnet_AMRequestShort4(n, h, a0, a1, a2, a3) \
    gasnet_AMRequestShort(n, h, 4, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), GASNETI_A(a3))
#define gasnet_AMRequestShort5(n, h, a0, a1, a2, a3, a4) \
    gasnet_AMRequestShort(n, h, 5, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), GASNETI_A(a3), \
        GASNETI_A(a4))
#define gasnet_AMRequestShort6(n, h, a0, a1, a2, a3, a4, a5) \
    gasnet_AMRequestShort(n, h, 6, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), GASNETI_A(a3), \
        GASNETI_A(a4), GASNETI_A(a5))
#define gasnet_AMRequestShort7(n, h, a0, a1, a2, a3, a4, a5, a6) \
    gasnet_AMRequestShort(n, h, 7, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), GASNETI_A(a3), \
        GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6))
#define gasnet_AMRequestShort8(n, h, a0, a1, a2, a3, a4, a5, a6, a7) \
    gasnet_AMRequestShort(n, h, 8, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), GASNETI_A(a3), \
        GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7))
#define gasnet_AMRequestShort9(n, h, a0, a1, a2, a3, a4, a5, a6, a7, a8) \
    gasnet_AMRequestShort(n, h, 9, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), GASNETI_A(a3), \
        GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8))
#define gasnet_AMRequestShort10(n, h, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9) \
    gasnet_AMRequestShort(n, h, 10, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), GASNETI_A(a3), \
        GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8), GASNETI_A(a9))
#define gasnet_AMRequestShort11(n, h, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10) \
    gasnet_AMRequestShort(n, h, 11, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), GASNETI_A(a3), \
        GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8), GASNETI_A(a9), GASNETI_A(a10))
#define gasnet_AMRequestShort12(n, h, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11) \
    gasnet_AMRequestShort(n, h, 12, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), GASNETI_A(a3), \
        GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8), GASNETI_A(a9), GASNETI_A(a10), \
        GASNETI_A(a11))
#define gasnet_AMRequestShort13(n, h, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12) \
    gasnet_AMRequestShort(n, h, 13, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), GASNETI_A(a3), \
        GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8), GASNETI_A(a9), GASNETI_A(a10), \
        GASNETI_A(a11), GASNETI_A(a12))
#define gasnet_AMRequestShort14(n, h, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13) \
    gasnet_AMRequestShort(n, h, 14, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), GASNETI_A(a3), \
        GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8), GASNETI_A(a9), GASNETI_A(a10), \
        GASNETI_A(a11), GASNETI_A(a12), GASNETI_A(a13))
#define gasnet_AMRequestShort15(n, h, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14) \
    gasnet_AMRequestShort(n, h, 15, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), GASNETI_A(a3), \
        GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8), GASNETI_A(a9), GASNETI_A(a10), \
        GASNETI_A(a11), GASNETI_A(a12), GASNETI_A(a13), GASNETI_A(a14))
#define gasnet_AMRequestShort16(n, h, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15) \
    gasnet_AMRequestShort(n, h, 16, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), GASNETI_A(a3), \
        GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8), GASNETI_A(a9), GASNETI_A(a10), \
        GASNETI_A(a11), GASNETI_A(a12), GASNETI_A(a13), GASNETI_A(a14), GASNETI_A(a15))

#define gasnet_AMRequestMedium0(n, h, s, b) gasnet_AMRequestMedium(n, h, s, b, 0)
#define gasnet_AMRequestMedium1(n, h, s, b, a0) gasnet_AMRequestMedium(n, h, s, b, 1, GASNETI_A(a0))
#define gasnet_AMRequestMedium2(n, h, s, b, a0, a1) \
    gasnet_AMRequestMedium(n, h, s, b, 2, GASNETI_A(a0), GASNETI_A(a1))
#define gasnet_AMRequestMedium3(n, h, s, b, a0, a1, a2) \
    gasnet_AMRequestMedium(n, h, s, b, 3, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2))
#define gasnet_AMRequestMedium4(n, h, s, b, a0, a1, a2, a3) \
    gasnet_AMRequestMedium(n, h, s, b, 4, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3))
#define gasnet_AMRequestMedium5(n, h, s, b, a0, a1, a2, a3, a4) \
    gasnet_AMRequestMedium(n, h, s, b, 5, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3), GASNETI_A(a4))
#define gasnet_AMRequestMedium6(n, h, s, b, a0, a1, a2, a3, a4, a5) \
    gasnet_AMRequestMedium(n, h, s, b, 6, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3), GASNETI_A(a4), GASNETI_A(a5))
#define gasnet_AMRequestMedium7(n, h, s, b, a0, a1, a2, a3, a4, a5, a6) \
    gasnet_AMRequestMedium(n, h, s, b, 7, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3), GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6))
#define gasnet_AMRequestMedium8(n, h, s, b, a0, a1, a2, a3, a4, a5, a6, a7) \
    gasnet_AMRequestMedium(n, h, s, b, 8, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3), GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7))
#define gasnet_AMRequestMedium9(n, h, s, b, a0, a1, a2, a3, a4, a5, a6, a7, a8) \
    gasnet_AMRequestMedium(n, h, s, b, 9, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3), GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8))
#define gasnet_AMRequestMedium10(n, h, s, b, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9) \
    gasnet_AMRequestMedium(n, h, s, b, 10, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3), GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8), GASNETI_A(a9))
#define gasnet_AMRequestMedium11(n, h, s, b, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10) \
    gasnet_AMRequestMedium(n, h, s, b, 11, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3), GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8), GASNETI_A(a9), \
        GASNETI_A(a10))
#define gasnet_AMRequestMedium12(n, h, s, b, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11) \
    gasnet_AMRequestMedium(n, h, s, b, 12, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3), GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8), GASNETI_A(a9), \
        GASNETI_A(a10), GASNETI_A(a11))
#define gasnet_AMRequestMedium13(n, h, s, b, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12) \
    gasnet_AMRequestMedium(n, h, s, b, 13, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3), GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8), GASNETI_A(a9), \
        GASNETI_A(a10), GASNETI_A(a11), GASNETI_A(a12))
#define gasnet_AMRequestMedium14(n, h, s, b, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13) \
    gasnet_AMRequestMedium(n, h, s, b, 14, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3), GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8), GASNETI_A(a9), \
        GASNETI_A(a10), GASNETI_A(a11), GASNETI_A(a12), GASNETI_A(a13))
#define gasnet_AMRequestMedium15(n, h, s, b, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14) \
    gasnet_AMRequestMedium(n, h, s, b, 15, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3), GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8), GASNETI_A(a9), \
        GASNETI_A(a10), GASNETI_A(a11), GASNETI_A(a12), GASNETI_A(a13), GASNETI_A(a14))
#define gasnet_AMRequestMedium16(n, h, s, b, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15) \
    gasnet_AMRequestMedium(n, h, s, b, 16, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3), GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8), GASNETI_A(a9), \
        GASNETI_A(a10), GASNETI_A(a11), GASNETI_A(a12), GASNETI_A(a13), GASNETI_A(a14), GASNETI_A(a15))

#define gasnet_AMRequestLong0(n, h, s, b, d) gasnet_AMRequestLong(n, h, s, b, d, 0)
#define gasnet_AMRequestLong1(n, h, s, b, d, a0) gasnet_AMRequestLong(n, h, s, b, d, 1, GASNETI_A(a0))
#define gasnet_AMRequestLong2(n, h, s, b, d, a0, a1) \
    gasnet_AMRequestLong(n, h, s, b, d, 2, GASNETI_A(a0), GASNETI_A(a1))
#define gasnet_AMRequestLong3(n, h, s, b, d, a0, a1, a2) \
    gasnet_AMRequestLong(n, h, s, b, d, 3, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2))
#define gasnet_AMRequestLong4(n, h, s, b, d, a0, a1, a2, a3) \
    gasnet_AMRequestLong(n, h, s, b, d, 4, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3))
#define gasnet_AMRequestLong5(n, h, s, b, d, a0, a1, a2, a3, a4) \
    gasnet_AMRequestLong(n, h, s, b, d, 5, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3), GASNETI_A(a4))
#define gasnet_AMRequestLong6(n, h, s, b, d, a0, a1, a2, a3, a4, a5) \
    gasnet_AMRequestLong(n, h, s, b, d, 6, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3), GASNETI_A(a4), GASNETI_A(a5))
#define gasnet_AMRequestLong7(n, h, s, b, d, a0, a1, a2, a3, a4, a5, a6) \
    gasnet_AMRequestLong(n, h, s, b, d, 7, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3), GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6))
#define gasnet_AMRequestLong8(n, h, s, b, d, a0, a1, a2, a3, a4, a5, a6, a7) \
    gasnet_AMRequestLong(n, h, s, b, d, 8, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3), GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7))
#define gasnet_AMRequestLong9(n, h, s, b, d, a0, a1, a2, a3, a4, a5, a6, a7, a8) \
    gasnet_AMRequestLong(n, h, s, b, d, 9, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3), GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8))
#define gasnet_AMRequestLong10(n, h, s, b, d, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9) \
    gasnet_AMRequestLong(n, h, s, b, d, 10, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3), GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8), GASNETI_A(a9))
#define gasnet_AMRequestLong11(n, h, s, b, d, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10) \
    gasnet_AMRequestLong(n, h, s, b, d, 11, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3), GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8), GASNETI_A(a9), \
        GASNETI_A(a10))
#define gasnet_AMRequestLong12(n, h, s, b, d, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11) \
    gasnet_AMRequestLong(n, h, s, b, d, 12, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3), GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8), GASNETI_A(a9), \
        GASNETI_A(a10), GASNETI_A(a11))
#define gasnet_AMRequestLong13(n, h, s, b, d, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12) \
    gasnet_AMRequestLong(n, h, s, b, d, 13, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3), GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8), GASNETI_A(a9), \
        GASNETI_A(a10), GASNETI_A(a11), GASNETI_A(a12))
#define gasnet_AMRequestLong14(n, h, s, b, d, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13) \
    gasnet_AMRequestLong(n, h, s, b, d, 14, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3), GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8), GASNETI_A(a9), \
        GASNETI_A(a10), GASNETI_A(a11), GASNETI_A(a12), GASNETI_A(a13))
#define gasnet_AMRequestLong15(n, h, s, b, d, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14) \
    gasnet_AMRequestLong(n, h, s, b, d, 15, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3), GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8), GASNETI_A(a9), \
        GASNETI_A(a10), GASNETI_A(a11), GASNETI_A(a12), GASNETI_A(a13), GASNETI_A(a14))
#define gasnet_AMRequestLong16(n, h, s, b, d, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15) \
    gasnet_AMRequestLong(n, h, s, b, d, 16, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3), GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8), GASNETI_A(a9), \
        GASNETI_A(a10), GASNETI_A(a11), GASNETI_A(a12), GASNETI_A(a13), GASNETI_A(a14), GASNETI_A(a15))

#define gasnet_AMRequestLongAsync0(n, h, s, b, d) gasnet_AMRequestLongAsync(n, h, s, b, d, 0)
#define gasnet_AMRequestLongAsync1(n, h, s, b, d, a0) \
    gasnet_AMRequestLongAsync(n, h, s, b, d, 1, GASNETI_A(a0))
#define gasnet_AMRequestLongAsync2(n, h, s, b, d, a0, a1) \
    gasnet_AMRequestLongAsync(n, h, s, b, d, 2, GASNETI_A(a0), GASNETI_A(a1))
#define gasnet_AMRequestLongAsync3(n, h, s, b, d, a0, a1, a2) \
    gasnet_AMRequestLongAsync(n, h, s, b, d, 3, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2))
#define gasnet_AMRequestLongAsync4(n, h, s, b, d, a0, a1, a2, a3) \
    gasnet_AMRequestLongAsync(n, h, s, b, d, 4, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3))
#define gasnet_AMRequestLongAsync5(n, h, s, b, d, a0, a1, a2, a3, a4) \
    gasnet_AMRequestLongAsync(n, h, s, b, d, 5, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3), GASNETI_A(a4))
#define gasnet_AMRequestLongAsync6(n, h, s, b, d, a0, a1, a2, a3, a4, a5) \
    gasnet_AMRequestLongAsync(n, h, s, b, d, 6, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3), GASNETI_A(a4), GASNETI_A(a5))
#define gasnet_AMRequestLongAsync7(n, h, s, b, d, a0, a1, a2, a3, a4, a5, a6) \
    gasnet_AMRequestLongAsync(n, h, s, b, d, 7, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3), GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6))
#define gasnet_AMRequestLongAsync8(n, h, s, b, d, a0, a1, a2, a3, a4, a5, a6, a7) \
    gasnet_AMRequestLongAsync(n, h, s, b, d, 8, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3), GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7))
#define gasnet_AMRequestLongAsync9(n, h, s, b, d, a0, a1, a2, a3, a4, a5, a6, a7, a8) \
    gasnet_AMRequestLongAsync(n, h, s, b, d, 9, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3), GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8))
#define gasnet_AMRequestLongAsync10(n, h, s, b, d, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9) \
    gasnet_AMRequestLongAsync(n, h, s, b, d, 10, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3), GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8), GASNETI_A(a9))
#define gasnet_AMRequestLongAsync11(n, h, s, b, d, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10) \
    gasnet_AMRequestLongAsync(n, h, s, b, d, 11, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3), GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8), GASNETI_A(a9), \
        GASNETI_A(a10))
#define gasnet_AMRequestLongAsync12(n, h, s, b, d, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11) \
    gasnet_AMRequestLongAsync(n, h, s, b, d, 12, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3), GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8), GASNETI_A(a9), \
        GASNETI_A(a10), GASNETI_A(a11))
#define gasnet_AMRequestLongAsync13(n, h, s, b, d, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12) \
    gasnet_AMRequestLongAsync(n, h, s, b, d, 13, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3), GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8), GASNETI_A(a9), \
        GASNETI_A(a10), GASNETI_A(a11), GASNETI_A(a12))
#define gasnet_AMRequestLongAsync14(n, h, s, b, d, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13) \
    gasnet_AMRequestLongAsync(n, h, s, b, d, 14, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3), GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8), GASNETI_A(a9), \
        GASNETI_A(a10), GASNETI_A(a11), GASNETI_A(a12), GASNETI_A(a13))
#define gasnet_AMRequestLongAsync15(n, h, s, b, d, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14) \
    gasnet_AMRequestLongAsync(n, h, s, b, d, 15, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3), GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8), GASNETI_A(a9), \
        GASNETI_A(a10), GASNETI_A(a11), GASNETI_A(a12), GASNETI_A(a13), GASNETI_A(a14))
#define gasnet_AMRequestLongAsync16(n, h, s, b, d, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15) \
    gasnet_AMRequestLongAsync(n, h, s, b, d, 16, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3), GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8), GASNETI_A(a9), \
        GASNETI_A(a10), GASNETI_A(a11), GASNETI_A(a12), GASNETI_A(a13), GASNETI_A(a14), GASNETI_A(a15))

#define gasnet_AMReplyShort0(t, h) gasnet_AMReplyShort(t, h, 0)
#define gasnet_AMReplyShort1(t, h, a0) gasnet_AMReplyShort(t, h, 1, GASNETI_A(a0))
#define gasnet_AMReplyShort2(t, h, a0, a1) gasnet_AMReplyShort(t, h, 2, GASNETI_A(a0), GASNETI_A(a1))
#define gasnet_AMReplyShort3(t, h, a0, a1, a2) \
    gasnet_AMReplyShort(t, h, 3, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2))
#define gasnet_AMReplyShort4(t, h, a0, a1, a2, a3) \
    gasnet_AMReplyShort(t, h, 4, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), GASNETI_A(a3))
#define gasnet_AMReplyShort5(t, h, a0, a1, a2, a3, a4) \
    gasnet_AMReplyShort(t, h, 5, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), GASNETI_A(a3), \
        GASNETI_A(a4))
#define gasnet_AMReplyShort6(t, h, a0, a1, a2, a3, a4, a5) \
    gasnet_AMReplyShort(t, h, 6, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), GASNETI_A(a3), \
        GASNETI_A(a4), GASNETI_A(a5))
#define gasnet_AMReplyShort7(t, h, a0, a1, a2, a3, a4, a5, a6) \
    gasnet_AMReplyShort(t, h, 7, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), GASNETI_A(a3), \
        GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6))
#define gasnet_AMReplyShort8(t, h, a0, a1, a2, a3, a4, a5, a6, a7) \
    gasnet_AMReplyShort(t, h, 8, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), GASNETI_A(a3), \
        GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7))
#define gasnet_AMReplyShort9(t, h, a0, a1, a2, a3, a4, a5, a6, a7, a8) \
    gasnet_AMReplyShort(t, h, 9, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), GASNETI_A(a3), \
        GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8))
#define gasnet_AMReplyShort10(t, h, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9) \
    gasnet_AMReplyShort(t, h, 10, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), GASNETI_A(a3), \
        GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8), GASNETI_A(a9))
#define gasnet_AMReplyShort11(t, h, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10) \
    gasnet_AMReplyShort(t, h, 11, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), GASNETI_A(a3), \
        GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8), GASNETI_A(a9), GASNETI_A(a10))
#define gasnet_AMReplyShort12(t, h, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11) \
    gasnet_AMReplyShort(t, h, 12, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), GASNETI_A(a3), \
        GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8), GASNETI_A(a9), GASNETI_A(a10), \
        GASNETI_A(a11))
#define gasnet_AMReplyShort13(t, h, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12) \
    gasnet_AMReplyShort(t, h, 13, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), GASNETI_A(a3), \
        GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8), GASNETI_A(a9), GASNETI_A(a10), \
        GASNETI_A(a11), GASNETI_A(a12))
#define gasnet_AMReplyShort14(t, h, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13) \
    gasnet_AMReplyShort(t, h, 14, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), GASNETI_A(a3), \
        GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8), GASNETI_A(a9), GASNETI_A(a10), \
        GASNETI_A(a11), GASNETI_A(a12), GASNETI_A(a13))
#define gasnet_AMReplyShort15(t, h, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14) \
    gasnet_AMReplyShort(t, h, 15, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), GASNETI_A(a3), \
        GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8), GASNETI_A(a9), GASNETI_A(a10), \
        GASNETI_A(a11), GASNETI_A(a12), GASNETI_A(a13), GASNETI_A(a14))
#define gasnet_AMReplyShort16(t, h, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15) \
    gasnet_AMReplyShort(t, h, 16, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), GASNETI_A(a3), \
        GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8), GASNETI_A(a9), GASNETI_A(a10), \
        GASNETI_A(a11), GASNETI_A(a12), GASNETI_A(a13), GASNETI_A(a14), GASNETI_A(a15))

#define gasnet_AMReplyMedium0(t, h, s, b) gasnet_AMReplyMedium(t, h, s, b, 0)
#define gasnet_AMReplyMedium1(t, h, s, b, a0) gasnet_AMReplyMedium(t, h, s, b, 1, GASNETI_A(a0))
#define gasnet_AMReplyMedium2(t, h, s, b, a0, a1) \
    gasnet_AMReplyMedium(t, h, s, b, 2, GASNETI_A(a0), GASNETI_A(a1))
#define gasnet_AMReplyMedium3(t, h, s, b, a0, a1, a2) \
    gasnet_AMReplyMedium(t, h, s, b, 3, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2))
#define gasnet_AMReplyMedium4(t, h, s, b, a0, a1, a2, a3) \
    gasnet_AMReplyMedium(t, h, s, b, 4, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), GASNETI_A(a3))
#define gasnet_AMReplyMedium5(t, h, s, b, a0, a1, a2, a3, a4) \
    gasnet_AMReplyMedium(t, h, s, b, 5, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), GASNETI_A(a3), \
        GASNETI_A(a4))
#define gasnet_AMReplyMedium6(t, h, s, b, a0, a1, a2, a3, a4, a5) \
    gasnet_AMReplyMedium(t, h, s, b, 6, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), GASNETI_A(a3), \
        GASNETI_A(a4), GASNETI_A(a5))
#define gasnet_AMReplyMedium7(t, h, s, b, a0, a1, a2, a3, a4, a5, a6) \
    gasnet_AMReplyMedium(t, h, s, b, 7, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), GASNETI_A(a3), \
        GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6))
#define gasnet_AMReplyMedium8(t, h, s, b, a0, a1, a2, a3, a4, a5, a6, a7) \
    gasnet_AMReplyMedium(t, h, s, b, 8, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), GASNETI_A(a3), \
        GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7))
#define gasnet_AMReplyMedium9(t, h, s, b, a0, a1, a2, a3, a4, a5, a6, a7, a8) \
    gasnet_AMReplyMedium(t, h, s, b, 9, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), GASNETI_A(a3), \
        GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8))
#define gasnet_AMReplyMedium10(t, h, s, b, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9) \
    gasnet_AMReplyMedium(t, h, s, b, 10, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3), GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8), GASNETI_A(a9))
#define gasnet_AMReplyMedium11(t, h, s, b, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10) \
    gasnet_AMReplyMedium(t, h, s, b, 11, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3), GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8), GASNETI_A(a9), \
        GASNETI_A(a10))
#define gasnet_AMReplyMedium12(t, h, s, b, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11) \
    gasnet_AMReplyMedium(t, h, s, b, 12, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3), GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8), GASNETI_A(a9), \
        GASNETI_A(a10), GASNETI_A(a11))
#define gasnet_AMReplyMedium13(t, h, s, b, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12) \
    gasnet_AMReplyMedium(t, h, s, b, 13, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3), GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8), GASNETI_A(a9), \
        GASNETI_A(a10), GASNETI_A(a11), GASNETI_A(a12))
#define gasnet_AMReplyMedium14(t, h, s, b, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13) \
    gasnet_AMReplyMedium(t, h, s, b, 14, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3), GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8), GASNETI_A(a9), \
        GASNETI_A(a10), GASNETI_A(a11), GASNETI_A(a12), GASNETI_A(a13))
#define gasnet_AMReplyMedium15(t, h, s, b, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14) \
    gasnet_AMReplyMedium(t, h, s, b, 15, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3), GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8), GASNETI_A(a9), \
        GASNETI_A(a10), GASNETI_A(a11), GASNETI_A(a12), GASNETI_A(a13), GASNETI_A(a14))
#define gasnet_AMReplyMedium16(t, h, s, b, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15) \
    gasnet_AMReplyMedium(t, h, s, b, 16, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3), GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8), GASNETI_A(a9), \
        GASNETI_A(a10), GASNETI_A(a11), GASNETI_A(a12), GASNETI_A(a13), GASNETI_A(a14), GASNETI_A(a15))

#define gasnet_AMReplyLong0(t, h, s, b, d) gasnet_AMReplyLong(t, h, s, b, d, 0)
#define gasnet_AMReplyLong1(t, h, s, b, d, a0) gasnet_AMReplyLong(t, h, s, b, d, 1, GASNETI_A(a0))
#define gasnet_AMReplyLong2(t, h, s, b, d, a0, a1) \
    gasnet_AMReplyLong(t, h, s, b, d, 2, GASNETI_A(a0), GASNETI_A(a1))
#define gasnet_AMReplyLong3(t, h, s, b, d, a0, a1, a2) \
    gasnet_AMReplyLong(t, h, s, b, d, 3, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2))
#define gasnet_AMReplyLong4(t, h, s, b, d, a0, a1, a2, a3) \
    gasnet_AMReplyLong(t, h, s, b, d, 4, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), GASNETI_A(a3))
#define gasnet_AMReplyLong5(t, h, s, b, d, a0, a1, a2, a3, a4) \
    gasnet_AMReplyLong(t, h, s, b, d, 5, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3), GASNETI_A(a4))
#define gasnet_AMReplyLong6(t, h, s, b, d, a0, a1, a2, a3, a4, a5) \
    gasnet_AMReplyLong(t, h, s, b, d, 6, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3), GASNETI_A(a4), GASNETI_A(a5))
#define gasnet_AMReplyLong7(t, h, s, b, d, a0, a1, a2, a3, a4, a5, a6) \
    gasnet_AMReplyLong(t, h, s, b, d, 7, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3), GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6))
#define gasnet_AMReplyLong8(t, h, s, b, d, a0, a1, a2, a3, a4, a5, a6, a7) \
    gasnet_AMReplyLong(t, h, s, b, d, 8, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3), GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7))
#define gasnet_AMReplyLong9(t, h, s, b, d, a0, a1, a2, a3, a4, a5, a6, a7, a8) \
    gasnet_AMReplyLong(t, h, s, b, d, 9, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3), GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8))
#define gasnet_AMReplyLong10(t, h, s, b, d, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9) \
    gasnet_AMReplyLong(t, h, s, b, d, 10, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3), GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8), GASNETI_A(a9))
#define gasnet_AMReplyLong11(t, h, s, b, d, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10) \
    gasnet_AMReplyLong(t, h, s, b, d, 11, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3), GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8), GASNETI_A(a9), \
        GASNETI_A(a10))
#define gasnet_AMReplyLong12(t, h, s, b, d, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11) \
    gasnet_AMReplyLong(t, h, s, b, d, 12, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3), GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8), GASNETI_A(a9), \
        GASNETI_A(a10), GASNETI_A(a11))
#define gasnet_AMReplyLong13(t, h, s, b, d, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12) \
    gasnet_AMReplyLong(t, h, s, b, d, 13, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3), GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8), GASNETI_A(a9), \
        GASNETI_A(a10), GASNETI_A(a11), GASNETI_A(a12))
#define gasnet_AMReplyLong14(t, h, s, b, d, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13) \
    gasnet_AMReplyLong(t, h, s, b, d, 14, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3), GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8), GASNETI_A(a9), \
        GASNETI_A(a10), GASNETI_A(a11), GASNETI_A(a12), GASNETI_A(a13))
#define gasnet_AMReplyLong15(t, h, s, b, d, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14) \
    gasnet_AMReplyLong(t, h, s, b, d, 15, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3), GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8), GASNETI_A(a9), \
        GASNETI_A(a10), GASNETI_A(a11), GASNETI_A(a12), GASNETI_A(a13), GASNETI_A(a14))
#define gasnet_AMReplyLong16(t, h, s, b, d, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15) \
    gasnet_AMReplyLong(t, h, s, b, d, 16, GASNETI_A(a0), GASNETI_A(a1), GASNETI_A(a2), \
        GASNETI_A(a3), GASNETI_A(a4), GASNETI_A(a5), GASNETI_A(a6), GASNETI_A(a7), GASNETI_A(a8), GASNETI_A(a9), \
        GASNETI_A(a10), GASNETI_A(a11), GASNETI_A(a12), GASNETI_A(a13), GASNETI_A(a14), GASNETI_A(a15))

#endif
