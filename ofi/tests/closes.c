/* A program with one thread closes an endpoint, and memory, while accesses of its own are under way: they end, though nobody else serves the
   endpoint that they are made to. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include "side.h"

enum { OPERATIONS = 20, LEN = 100000, KEY = 5 };

static struct side sides[2];
static fi_addr_t other;
static struct fid_mr *mr;
static struct fid_cntr *counter;
static char there[LEN], here[OPERATIONS][LEN], out[LEN];

static void open_all(void)
{
    struct fi_cntr_attr attr = {.events = FI_CNTR_EVENTS_COMP};
    for (int i = 0; i < 2; i++) {
        open_side(&sides[i], info);
        IS(fi_enable(sides[i].ep), 0);
    }
    other = meet(&sides[0], &sides[1]);
    /* Accesses that are counted are handled by whoever owns the memory. */
    IS(fi_mr_reg(domain, there, LEN, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, KEY, FI_RMA_EVENT, &mr, NULL), 0);
    IS(fi_cntr_open(domain, &attr, &counter, NULL), 0);
    IS(fi_mr_bind(mr, &counter->fid, FI_REMOTE_READ | FI_REMOTE_WRITE), 0);
    IS(fi_mr_enable(mr), 0);
}

static void begin_accesses(void)
{
    memset(there, 1, LEN);
    memset(out, 1, LEN);
    memset(here, 0, sizeof here);
    for (int i = 0; i < OPERATIONS; i++) {
        IS(fi_write(sides[0].ep, out, LEN, NULL, other, 0, KEY, NULL), 0);
        IS(fi_read(sides[0].ep, here[i], LEN, NULL, other, 0, KEY, here[i]), 0);
    }
}

/* Takes the ends of all accesses; returns how many were refused. */
static int ends(void)
{
    int refused = 0;
    for (int i = 0; i < 2 * OPERATIONS; i++) {
        struct fi_cq_tagged_entry entry;
        struct fi_cq_err_entry failure = {0};
        ssize_t got;
        while ((got = fi_cq_read(sides[0].cq, &entry, 1)) == -FI_EAGAIN)
            IS(fi_cq_read(sides[1].cq, &entry, 1), -FI_EAGAIN);
        if (got == -FI_EAVAIL) {
            IS(fi_cq_readerr(sides[0].cq, &failure, 0), 1);
            IS(failure.err, FI_EKEYREJECTED);
            refused++;
        } else {
            IS(got, 1);
            for (size_t k = 0; entry.op_context && k < LEN; k++)
                IS(((char *)entry.op_context)[k], 1);
        }
    }
    return refused;
}


int main(void)
{
    open_domain(FI_RMA | FI_TAGGED | FI_RMA_EVENT);
    /* First the endpoint. */
    open_all();
    begin_accesses();
    IS(fi_close(&sides[0].ep->fid), 0);
    struct fi_cq_tagged_entry entries[2 * OPERATIONS];
    IS(fi_cq_read(sides[0].cq, entries, 2 * OPERATIONS), 2 * OPERATIONS);
    for (int i = 0; i < OPERATIONS; i++)
        for (size_t k = 0; k < LEN; k++)
            IS(here[i][k], 1);
    IS(fi_cntr_read(counter), 2 * OPERATIONS);
    IS(fi_close(&sides[0].cq->fid), 0);
    IS(fi_close(&sides[0].av->fid), 0);
    close_side(&sides[1]);
    IS(fi_close(&mr->fid), 0);
    IS(fi_close(&counter->fid), 0);
    /* Then the memory, which nobody reaches afterwards. */
    open_all();
    begin_accesses();
    IS(fi_close(&mr->fid), 0);
    memset(there, 2, LEN);
    int refused = ends();
    for (size_t k = 0; k < LEN; k++)
        IS(there[k], 2);
    IS(fi_cntr_read(counter) + refused, 2 * OPERATIONS);
    IS(fi_close(&counter->fid), 0);
    close_side(&sides[0]);
    close_side(&sides[1]);
    close_domain();
    puts("all has ended");
    return 0;
}
