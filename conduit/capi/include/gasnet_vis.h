/* gasnet_vis.h: puts and gets of scattered memory (the vector, indexed and strided drafts). */
#ifndef GASNET_VIS_H
#define GASNET_VIS_H
#define _GASNET_VIS_H

#ifndef _GASNET_H
#error "include gasnet.h first"
#endif
#include <stdio.h>

GASNETT_BEGIN_EXTERNC

void gasnet_putv_bulk(gasnet_node_t dstnode, size_t dstcount, gasnet_memvec_t const dstlist[], size_t srccount,
    gasnet_memvec_t const srclist[]);
void gasnet_getv_bulk(size_t dstcount, gasnet_memvec_t const dstlist[], gasnet_node_t srcnode, size_t srccount,
    gasnet_memvec_t const srclist[]);
void gasnet_puti_bulk(gasnet_node_t dstnode, size_t dstcount, void *const dstlist[], size_t dstlen, size_t srccount,
    void *const srclist[], size_t srclen);
void gasnet_geti_bulk(size_t dstcount, void *const dstlist[], size_t dstlen, gasnet_node_t srcnode, size_t srccount,
    void *const srclist[], size_t srclen);
void gasnet_puts_bulk(gasnet_node_t dstnode, void *dstaddr, const size_t dststrides[], void *srcaddr,
    const size_t srcstrides[], const size_t count[], size_t stridelevels);
void gasnet_gets_bulk(void *dstaddr, const size_t dststrides[], gasnet_node_t srcnode, void *srcaddr,
    const size_t srcstrides[], const size_t count[], size_t stridelevels);

gasnet_handle_t gasnet_putv_nb_bulk(gasnet_node_t dstnode, size_t dstcount, gasnet_memvec_t const dstlist[], size_t srccount,
    gasnet_memvec_t const srclist[]);
gasnet_handle_t gasnet_getv_nb_bulk(size_t dstcount, gasnet_memvec_t const dstlist[], gasnet_node_t srcnode, size_t srccount,
    gasnet_memvec_t const srclist[]);
gasnet_handle_t gasnet_puti_nb_bulk(gasnet_node_t dstnode, size_t dstcount, void *const dstlist[], size_t dstlen, size_t srccount,
    void *const srclist[], size_t srclen);
gasnet_handle_t gasnet_geti_nb_bulk(size_t dstcount, void *const dstlist[], size_t dstlen, gasnet_node_t srcnode, size_t srccount,
    void *const srclist[], size_t srclen);
gasnet_handle_t gasnet_puts_nb_bulk(gasnet_node_t dstnode, void *dstaddr, const size_t dststrides[], void *srcaddr,
    const size_t srcstrides[], const size_t count[], size_t stridelevels);
gasnet_handle_t gasnet_gets_nb_bulk(void *dstaddr, const size_t dststrides[], gasnet_node_t srcnode, void *srcaddr,
    const size_t srcstrides[], const size_t count[], size_t stridelevels);

void gasnet_putv_nbi_bulk(gasnet_node_t dstnode, size_t dstcount, gasnet_memvec_t const dstlist[], size_t srccount,
    gasnet_memvec_t const srclist[]);
void gasnet_getv_nbi_bulk(size_t dstcount, gasnet_memvec_t const dstlist[], gasnet_node_t srcnode, size_t srccount,
    gasnet_memvec_t const srclist[]);
void gasnet_puti_nbi_bulk(gasnet_node_t dstnode, size_t dstcount, void *const dstlist[], size_t dstlen, size_t srccount,
    void *const srclist[], size_t srclen);
void gasnet_geti_nbi_bulk(size_t dstcount, void *const dstlist[], size_t dstlen, gasnet_node_t srcnode, size_t srccount,
    void *const srclist[], size_t srclen);
void gasnet_puts_nbi_bulk(gasnet_node_t dstnode, void *dstaddr, const size_t dststrides[], void *srcaddr,
    const size_t srcstrides[], const size_t count[], size_t stridelevels);
void gasnet_gets_nbi_bulk(void *dstaddr, const size_t dststrides[], gasnet_node_t srcnode, void *srcaddr,
    const size_t srcstrides[], const size_t count[], size_t stridelevels);

#ifdef GASNET_DEBUG
#define gasnet_putv_bulk(a, b, c, d, e) GASNETI_CALL(gasnet_putv_bulk)(a, b, c, d, e)
#define gasnet_getv_bulk(a, b, c, d, e) GASNETI_CALL(gasnet_getv_bulk)(a, b, c, d, e)
#define gasnet_puti_bulk(a, b, c, d, e, f, g) GASNETI_CALL(gasnet_puti_bulk)(a, b, c, d, e, f, g)
#define gasnet_geti_bulk(a, b, c, d, e, f, g) GASNETI_CALL(gasnet_geti_bulk)(a, b, c, d, e, f, g)
#define gasnet_puts_bulk(a, b, c, d, e, f, g) GASNETI_CALL(gasnet_puts_bulk)(a, b, c, d, e, f, g)
#define gasnet_gets_bulk(a, b, c, d, e, f, g) GASNETI_CALL(gasnet_gets_bulk)(a, b, c, d, e, f, g)
#define gasnet_putv_nb_bulk(a, b, c, d, e) GASNETI_CALL(gasnet_putv_nb_bulk)(a, b, c, d, e)
#define gasnet_getv_nb_bulk(a, b, c, d, e) GASNETI_CALL(gasnet_getv_nb_bulk)(a, b, c, d, e)
#define gasnet_puti_nb_bulk(a, b, c, d, e, f, g) GASNETI_CALL(gasnet_puti_nb_bulk)(a, b, c, d, e, f, g)
#define gasnet_geti_nb_bulk(a, b, c, d, e, f, g) GASNETI_CALL(gasnet_geti_nb_bulk)(a, b, c, d, e, f, g)
#define gasnet_puts_nb_bulk(a, b, c, d, e, f, g) GASNETI_CALL(gasnet_puts_nb_bulk)(a, b, c, d, e, f, g)
#define gasnet_gets_nb_bulk(a, b, c, d, e, f, g) GASNETI_CALL(gasnet_gets_nb_bulk)(a, b, c, d, e, f, g)
#define gasnet_putv_nbi_bulk(a, b, c, d, e) GASNETI_CALL(gasnet_putv_nbi_bulk)(a, b, c, d, e)
#define gasnet_getv_nbi_bulk(a, b, c, d, e) GASNETI_CALL(gasnet_getv_nbi_bulk)(a, b, c, d, e)
#define gasnet_puti_nbi_bulk(a, b, c, d, e, f, g) GASNETI_CALL(gasnet_puti_nbi_bulk)(a, b, c, d, e, f, g)
#define gasnet_geti_nbi_bulk(a, b, c, d, e, f, g) GASNETI_CALL(gasnet_geti_nbi_bulk)(a, b, c, d, e, f, g)
#define gasnet_puts_nbi_bulk(a, b, c, d, e, f, g) GASNETI_CALL(gasnet_puts_nbi_bulk)(a, b, c, d, e, f, g)
#define gasnet_gets_nbi_bulk(a, b, c, d, e, f, g) GASNETI_CALL(gasnet_gets_nbi_bulk)(a, b, c, d, e, f, g)
#endif

/* Descriptions as text; *_bufsz is the room they need. */
typedef struct {
    void *minaddr;
    void *maxaddr;
    size_t totalsz;
} gasneti_memveclist_stats_t;
typedef gasneti_memveclist_stats_t gasneti_addrlist_stats_t;

GASNETI_INLINE_WORDS size_t gasnett_format_memveclist_bufsz(size_t count) {
    return 200 + 50 * count;
}
GASNETI_INLINE_WORDS gasneti_memveclist_stats_t gasnett_format_memveclist(char *text, size_t count,
                                                                          gasnet_memvec_t const *list) {
    gasneti_memveclist_stats_t stats = { 0, 0, 0 };
    size_t i;
    text += sprintf(text, "%lu entries:", (unsigned long)count);
    for (i = 0; i < count; i++) {
        char *start = (char *)list[i].addr, *end = start + list[i].len;
        if (stats.minaddr == 0 || start < (char *)stats.minaddr) stats.minaddr = start;
        if (end > (char *)stats.maxaddr) stats.maxaddr = end;
        stats.totalsz += list[i].len;
        text += sprintf(text, " {%p, %lu}", list[i].addr, (unsigned long)list[i].len);
    }
    return stats;
}
GASNETI_INLINE_WORDS size_t gasnett_format_addrlist_bufsz(size_t count) {
    return 200 + 25 * count;
}
GASNETI_INLINE_WORDS gasneti_addrlist_stats_t gasnett_format_addrlist(char *text, size_t count, void *const *list,
                                                                      size_t len) {
    gasneti_addrlist_stats_t stats = { 0, 0, 0 };
    size_t i;
    text += sprintf(text, "%lu entries of %lu bytes:", (unsigned long)count, (unsigned long)len);
    for (i = 0; i < count; i++) {
        char *start = (char *)list[i];
        if (stats.minaddr == 0 || start < (char *)stats.minaddr) stats.minaddr = start;
        if (start + len > (char *)stats.maxaddr) stats.maxaddr = start + len;
        text += sprintf(text, " %p", list[i]);
    }
    stats.totalsz = count * len;
    return stats;
}
GASNETI_INLINE_WORDS size_t gasnett_format_strides_bufsz(size_t count) {
    return 10 + 25 * count;
}
GASNETI_INLINE_WORDS void gasnett_format_strides(char *text, size_t count, const size_t *list) {
    size_t i;
    text += sprintf(text, "[");
    for (i = 0; i < count; i++) text += sprintf(text, i ? ", %lu" : "%lu", (unsigned long)list[i]);
    sprintf(text, "]");
}
GASNETI_INLINE_WORDS size_t gasnett_format_putvgetv_bufsz(size_t dstcount, size_t srccount) {
    return 100 + gasnett_format_memveclist_bufsz(dstcount) + gasnett_format_memveclist_bufsz(srccount);
}
GASNETI_INLINE_WORDS size_t gasnett_format_putvgetv(char *text, gasnet_node_t node, size_t dstcount,
                                                    gasnet_memvec_t const *dst, size_t srccount,
                                                    gasnet_memvec_t const *src) {
    size_t total;
    text += sprintf(text, "node %lu, to ", (unsigned long)node);
    total = gasnett_format_memveclist(text, dstcount, dst).totalsz;
    while (*text) text++;
    text += sprintf(text, " from ");
    (void)gasnett_format_memveclist(text, srccount, src);
    return total;
}
GASNETI_INLINE_WORDS size_t gasnett_format_putigeti_bufsz(size_t dstcount, size_t srccount) {
    return 100 + gasnett_format_addrlist_bufsz(dstcount) + gasnett_format_addrlist_bufsz(srccount);
}
GASNETI_INLINE_WORDS size_t gasnett_format_putigeti(char *text, gasnet_node_t node, size_t dstcount, void *const *dst,
                                                    size_t dstlen, size_t srccount, void *const *src, size_t srclen) {
    size_t total;
    text += sprintf(text, "node %lu, to ", (unsigned long)node);
    total = gasnett_format_addrlist(text, dstcount, dst, dstlen).totalsz;
    while (*text) text++;
    text += sprintf(text, " from ");
    (void)gasnett_format_addrlist(text, srccount, src, srclen);
    return total;
}
GASNETI_INLINE_WORDS size_t gasnett_format_putsgets_bufsz(size_t levels) {
    return 300 + 3 * gasnett_format_strides_bufsz(levels + 1);
}
GASNETI_INLINE_WORDS size_t gasnett_format_putsgets(char *text, void *stats, gasnet_node_t node, void *dst,
                                                    const size_t *dststrides, void *src, const size_t *srcstrides,
                                                    const size_t *count, size_t levels) {
    size_t total = count[0], i;
    (void)stats;
    for (i = 1; i <= levels; i++) total *= count[i];
    text += sprintf(text, "node %lu, to %p strides ", (unsigned long)node, dst);
    gasnett_format_strides(text, levels, dststrides);
    while (*text) text++;
    text += sprintf(text, " from %p strides ", src);
    gasnett_format_strides(text, levels, srcstrides);
    while (*text) text++;
    text += sprintf(text, " count ");
    gasnett_format_strides(text, levels + 1, count);
    return total;
}

GASNETT_END_EXTERNC

#endif
