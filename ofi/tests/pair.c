/* Two endpoints of a program: messages of all lengths keep their order, a peer that is removed from an address vector and inserted again
   loses nothing, and the one that closes ends what the other awaits of it. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/fi_errno.h>

#include "side.h"

/* A short message behind a long one, which is still on its way: lengths that travel in a header, with it and after it. */
static const size_t lengths[] = {3000, 1, 200, 0, 4096, 4, 0, 132, 128, 5000, 8, 300, 4095, 1};
enum { KINDS = sizeof lengths / sizeof *lengths, MESSAGES = 10 * KINDS, MOST = 5000 };

static struct side sides[2];
/* The other one, as each of them knows it. */
static fi_addr_t other[2];
static char in[MESSAGES][MOST], out[MESSAGES][MOST];

/* How many operations of a side have ended. Each receive gets the message that was sent as the same number, whichever ends first. */
static int ended(struct side *side, int *received)
{
    struct fi_cq_tagged_entry entry;
    ssize_t got = fi_cq_read(side->cq, &entry, 1);
    if (got == -FI_EAGAIN)
        return 0;
    IS(got, 1);
    if (entry.flags & FI_RECV) {
        size_t number = (size_t)((char *)entry.op_context - in[0]) / MOST;
        size_t len = lengths[number % KINDS];
        IS(entry.len, len);
        IS(memcmp(in[number], out[number], len), 0);
        ++*received;
    }
    return 1;
}

/* Messages with one tag, which are asked for before, after and while they come. */
static void keep_their_order(int ahead)
{
    int posted = 0, received = 0, sent = 0, started = 0;
    memset(in, 0, sizeof in);
    for (int i = 0; i < MESSAGES; i++)
        memset(out[i], i + 1, MOST);
    while (received < MESSAGES || sent < MESSAGES) {
        if (posted < MESSAGES && (posted < started + ahead || started == MESSAGES)) {
            IS(fi_trecv(sides[1].ep, in[posted], MOST, NULL, other[1], 5, 0, in[posted]), 0);
            posted++;
        }
        if (started < MESSAGES && (started <= posted - ahead || posted == MESSAGES)) {
            ssize_t begun = fi_tsend(sides[0].ep, out[started], lengths[started % KINDS], NULL, other[0], 5, NULL);
            if (begun != -FI_EAGAIN) {
                IS(begun, 0);
                started++;
            }
        }
        sent += ended(&sides[0], &received);
        (void)ended(&sides[1], &received);
    }
}

/* The context of a side's next completion, while both make progress. */
static void *next(struct side *side)
{
    struct fi_cq_tagged_entry entry;
    ssize_t got;
    while ((got = fi_cq_read(side->cq, &entry, 1)) == -FI_EAGAIN)
        (void)fi_cq_read(sides[side == &sides[0]].cq, NULL, 0);
    IS(got, 1);
    return entry.op_context;
}

/* A program removes a peer whenever it has what it wants, and inserts it again when it wants more: no operation fails by that, whether it
   is a new one or the peer's. */
static void come_and_go(void)
{
    struct side *asks = &sides[0], *answers = &sides[1];
    struct fi_cq_tagged_entry entry;
    char name[64];
    size_t len = sizeof name;
    IS(fi_getname(&answers->ep->fid, name, &len), 0);
    memset(out[0], 7, sizeof out);
    for (uint64_t i = 0; i < 20; i++) {
        char *question = in[0], *answer = in[1];
        memset(in, 0, sizeof in);
        /* The first is awaited before its sender comes back. */
        IS(fi_trecv(answers->ep, question, 1, NULL, other[1], i, 0, question), 0);
        IS(fi_cq_read(answers->cq, &entry, 1), -FI_EAGAIN);
        IS(fi_av_remove(asks->av, &other[0], 1, 0), 0);
        IS(fi_cq_read(answers->cq, &entry, 1), -FI_EAGAIN);
        IS(fi_av_insert(asks->av, name, 1, &other[0], 0, NULL), 1);
        IS(fi_trecv(asks->ep, answer, sizeof in - MOST, NULL, other[0], i, 0, answer), 0);
        IS(fi_tsend(asks->ep, "q", 1, NULL, other[0], i, asks), 0);
        IS(next(asks) == asks, 1);
        IS(next(answers) == question, 1);
        /* Short ones and long ones. */
        size_t bytes = i % 2 ? 1 : sizeof in - MOST;
        IS(fi_tsend(answers->ep, out, bytes, NULL, other[1], i, answers), 0);
        IS(next(asks) == answer, 1);
        IS(memcmp(answer, out, bytes), 0);
        /* The sender does not know yet that its message has arrived. */
        IS(fi_av_remove(asks->av, &other[0], 1, 0), 0);
        IS(fi_cq_read(asks->cq, &entry, 1), -FI_EAGAIN);
        IS(next(answers) == answers, 1);
        IS(fi_av_insert(asks->av, name, 1, &other[0], 0, NULL), 1);
    }
}

int main(void)
{
    open_domain(FI_TAGGED | FI_MSG | FI_DIRECTED_RECV);
    for (int i = 0; i < 2; i++) {
        open_side(&sides[i], info);
        IS(fi_enable(sides[i].ep), 0);
    }
    for (int i = 0; i < 2; i++) {
        char name[64];
        size_t len = sizeof name;
        IS(fi_getname(&sides[1 - i].ep->fid, name, &len), 0);
        IS(fi_av_insert(sides[i].av, name, 1, &other[i], 0, NULL), 1);
    }
    keep_their_order(3);
    keep_their_order(0);
    keep_their_order(-20);
    come_and_go();

    struct fi_cq_tagged_entry entry;
    struct fi_cq_err_entry failed = {0};
    IS(fi_trecv(sides[1].ep, in[0], MOST, NULL, other[1], 6, 0, in[0]), 0);
    close_side(&sides[0]);
    IS(fi_cq_sread(sides[1].cq, &entry, 1, NULL, -1), -FI_EAVAIL);
    IS(fi_cq_readerr(sides[1].cq, &failed, 0), 1);
    IS(failed.op_context == in[0], 1);
    IS(failed.err, FI_EHOSTUNREACH);
    close_side(&sides[1]);
    close_domain();
    puts("a pair is right");
    return 0;
}
