/* Two processes that sleep until the other has sent something, or until what they have sent has ended. */
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include "is.h"

/* A wake-up that is lost is a wait of this long, in milliseconds, and a failure. */
enum { LIMIT = 60000, ROUNDS = 3000, LONG = 1 << 18 };

static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_ep *ep;
static struct fid_av *av;
static struct fid_cq *tx, *rx;
static struct fid_cntr *sends;
static fi_addr_t other;
static char out[LONG], in[LONG];
static enum fi_progress progress;

static int descriptor(struct fid *fid)
{
    int fd = -1;
    IS(fi_control(fid, FI_GETWAIT, &fd), 0);
    return fd;
}

/* Sleeps on the descriptor until fi_trywait says that there is something, and fails if nobody wakes it. */
static void until_there(struct fid *fid)
{
    int fd = descriptor(fid);
    for (;;) {
        int tried = fi_trywait(fabric, &fid, 1);
        if (tried == -FI_EAGAIN)
            return;
        IS(tried, 0);
        struct pollfd p = {.fd = fd, .events = POLLIN};
        IS(poll(&p, 1, LIMIT), 1);
    }
}

static void taken(struct fid_cq *cq, void *context)
{
    struct fi_cq_tagged_entry entry;
    until_there(&cq->fid);
    IS(fi_cq_read(cq, &entry, 1), 1);
    IS(entry.op_context == context, 1);
}

static void open_all(enum fi_wait_obj wait_obj)
{
    struct fi_info *hints = fi_allocinfo(), *info = NULL;
    hints->caps = FI_TAGGED | FI_RMA | FI_ATOMIC;
    hints->domain_attr->data_progress = progress;
    hints->ep_attr->type = FI_EP_RDM;
    hints->fabric_attr->prov_name = strdup("portolan");
    IS(fi_getinfo(FI_VERSION(1, 9), NULL, NULL, 0, hints, &info), 0);
    struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = wait_obj};
    struct fi_cntr_attr cntr = {.events = FI_CNTR_EVENTS_COMP, .wait_obj = wait_obj};
    struct fi_av_attr attr = {.type = FI_AV_UNSPEC};
    IS(info->domain_attr->data_progress, progress == FI_PROGRESS_AUTO ? progress : FI_PROGRESS_MANUAL);
    IS(fi_fabric(info->fabric_attr, &fabric, NULL), 0);
    IS(fi_domain(fabric, info, &domain, NULL), 0);
    IS(fi_endpoint(domain, info, &ep, NULL), 0);
    IS(fi_cq_open(domain, &cq, &tx, NULL), 0);
    IS(fi_cq_open(domain, &cq, &rx, NULL), 0);
    IS(fi_cntr_open(domain, &cntr, &sends, NULL), 0);
    IS(fi_av_open(domain, &attr, &av, NULL), 0);
    IS(fi_ep_bind(ep, &tx->fid, FI_SEND), 0);
    IS(fi_ep_bind(ep, &rx->fid, FI_RECV), 0);
    IS(fi_ep_bind(ep, &sends->fid, FI_SEND), 0);
    IS(fi_ep_bind(ep, &av->fid, 0), 0);
    IS(fi_enable(ep), 0);
    fi_freeinfo(info);
    fi_freeinfo(hints);
}

static void close_all(void)
{
    struct fid *all[] = {&ep->fid, &tx->fid, &rx->fid, &sends->fid, &av->fid, &domain->fid, &fabric->fid};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        IS(fi_close(all[i]), 0);
}

static void meet(int to, int from)
{
    char mine[64], theirs[64];
    size_t len = sizeof mine;
    IS(fi_getname(&ep->fid, mine, &len), 0);
    IS(write(to, mine, sizeof mine), sizeof mine);
    for (size_t got = 0; got < sizeof theirs;) {
        ssize_t n = read(from, theirs + got, sizeof theirs - got);
        IS(n > 0, 1);
        got += (size_t)n;
    }
    IS(fi_av_insert(av, theirs, 1, &other, 0, NULL), 1);
}

static void post(size_t len)
{
    IS(fi_trecv(ep, in, len, NULL, other, 1, 0, in), 0);
}

static void send_to(size_t len)
{
    ssize_t sent;
    while ((sent = fi_tsend(ep, out, len, NULL, other, 1, out)) == -FI_EAGAIN)
        fi_cntr_read(sends);
    IS(sent, 0);
}

/* Both sleep on descriptors: for the other's message, and for the end of their own. */
static void alternate(int first)
{
    for (int round = 0; round < ROUNDS; round++) {
        /* Long ones end when the other has fetched them. */
        size_t len = round % 50 == 0 ? LONG : 8;
        post(len);
        if (first)
            send_to(len);
        taken(rx, in);
        if (!first)
            send_to(len);
        taken(tx, out);
    }
    IS(fi_cntr_wait(sends, ROUNDS, LIMIT), 0);
}

/* The same in calls that sleep. */
static void alternate_asleep(int first)
{
    struct fi_cq_tagged_entry entry;
    for (int round = 1; round <= ROUNDS; round++) {
        post(8);
        if (first)
            send_to(8);
        IS(fi_cq_sread(rx, &entry, 1, NULL, LIMIT), 1);
        if (!first)
            send_to(8);
        IS(fi_cntr_wait(sends, (uint64_t)(ROUNDS + round), LIMIT), 0);
        IS(fi_cq_sread(tx, &entry, 1, NULL, LIMIT), 1);
    }
}

static void *signal_queue(void *cq)
{
    IS(fi_cq_signal(cq), 0);
    return NULL;
}

static void *send_one(void *nothing)
{
    send_to(8);
    return nothing;
}

/* What ends a sleep beside the other's messages. */
static void others_of_this_process(void)
{
    struct fi_cq_tagged_entry entry;
    struct fid *fid = &rx->fid;
    pthread_t thread;
    IS(fi_trywait(fabric, &fid, 1), 0);
    IS(pthread_create(&thread, NULL, signal_queue, rx), 0);
    struct pollfd p = {.fd = descriptor(fid), .events = POLLIN};
    IS(poll(&p, 1, LIMIT), 1);
    IS(pthread_join(thread, NULL), 0);
    IS(fi_trywait(fabric, &fid, 1), -FI_EAGAIN);
    IS(fi_cq_read(rx, &entry, 1), -FI_EAGAIN);
    IS(fi_trywait(fabric, &fid, 1), 0);
    IS(pthread_create(&thread, NULL, signal_queue, rx), 0);
    IS(fi_cq_sread(rx, &entry, 1, NULL, -1), -FI_EAGAIN);
    IS(pthread_join(thread, NULL), 0);
    /* A send of another thread, which does nothing for its end. */
    fid = &tx->fid;
    IS(fi_trywait(fabric, &fid, 1), 0);
    IS(pthread_create(&thread, NULL, send_one, NULL), 0);
    p.fd = descriptor(fid);
    IS(poll(&p, 1, LIMIT), 1);
    IS(fi_cq_read(tx, &entry, 1), 1);
    IS(pthread_join(thread, NULL), 0);
}

/* Calls that come while a thread of the provider sleeps for this queue do not wait for its next look. */
static void prompt(void)
{
    struct fid *fid = &rx->fid;
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (int i = 0; i < 100; i++) {
        IS(fi_trywait(fabric, &fid, 1), 0);
        struct pollfd p = {.fd = descriptor(fid), .events = POLLIN};
        IS(poll(&p, 1, 2), 0);
        IS(fi_cancel(&ep->fid, out), 0);
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    if (to.tv_sec - from.tv_sec > 4) {
        fprintf(stderr, "100 calls took %ld s\n", (long)(to.tv_sec - from.tv_sec));
        exit(1);
    }
}

/* A child has the endpoint and not the thread that waits with its lock: it closes its copy, and the parent's stays open. */
static void forked(void)
{
    struct fid *fid = &rx->fid;
    IS(fi_trywait(fabric, &fid, 1), 0);
    struct pollfd p = {.fd = descriptor(fid), .events = POLLIN};
    IS(poll(&p, 1, 2), 0);
    pid_t child = fork();
    if (child == 0) {
        alarm(LIMIT / 1000);
        IS(fi_close(&ep->fid), 0);
        _exit(0);
    }
    int status = -1;
    IS(waitpid(child, &status, 0), child);
    IS(status, 0);
}

/* Who sleeps uses no processor. */
static void sleeps(void)
{
    struct fi_cq_tagged_entry entry;
    struct timespec from, to;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
    IS(fi_cq_sread(rx, &entry, 1, NULL, 500), -FI_EAGAIN);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
    long used = (to.tv_sec - from.tv_sec) * 1000 + (to.tv_nsec - from.tv_nsec) / 1000000;
    if (used > 100) {
        fprintf(stderr, "a sleep of 500 ms used the processor for %ld ms\n", used);
        exit(1);
    }
}

/* The peer waits for something else, in no call of the provider, and its progress is automatic. */
static void ask(int to, int from)
{
    static uint64_t one = 1, was;
    struct fi_cq_tagged_entry entry;
    meet(to, from);
    for (uint64_t i = 0; i < 100; i++) {
        IS(fi_fetch_atomic(ep, &one, 1, NULL, &was, NULL, other, 0, 5, FI_UINT64, FI_SUM, NULL), 0);
        IS(fi_cq_sread(tx, &entry, 1, NULL, LIMIT), 1);
        IS(was, i);
    }
    memset(out, 9, sizeof out);
    send_to(LONG);
    IS(fi_cq_sread(tx, &entry, 1, NULL, LIMIT), 1);
    IS(write(to, "e", 1), 1);
}

static void be_asked(int to, int from)
{
    static uint64_t memory;
    struct fi_cq_tagged_entry entry;
    struct fid_mr *mr;
    char end;
    IS(fi_mr_reg(domain, &memory, 8, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 5, 0, &mr, NULL), 0);
    meet(to, from);
    post(LONG);
    IS(read(from, &end, 1), 1);
    IS(memory, 100);
    IS(fi_cq_sread(rx, &entry, 1, NULL, LIMIT), 1);
    memset(out, 9, sizeof out);
    IS(memcmp(in, out, LONG), 0);
    IS(fi_close(&mr->fid), 0);
}

static void automatic(int me, int to, int from)
{
    progress = FI_PROGRESS_AUTO;
    open_all(FI_WAIT_UNSPEC);
    if (me)
        be_asked(to, from);
    else
        ask(to, from);
    close_all();
}

int main(int argc, char **argv)
{
    (void)argv;
    int pipes[2][2];
    IS(pipe(pipes[0]) || pipe(pipes[1]), 0);
    pid_t child = fork();
    int me = child == 0;
    if (argc > 1) {
        automatic(me, pipes[me][1], pipes[!me][0]);
        goto end;
    }
    open_all(FI_WAIT_FD);
    meet(pipes[me][1], pipes[!me][0]);
    alternate(me);
    alternate_asleep(me);
    /* One message each is left, as nobody receives it. */
    others_of_this_process();
    prompt();
    forked();
    sleeps();
    /* The other may still want its message to be taken. */
    post(8);
    taken(rx, in);
    IS(write(pipes[me][1], "e", 1), 1);
    char end;
    IS(read(pipes[!me][0], &end, 1), 1);
    close_all();
end:
    if (me)
        return 0;
    int status = -1;
    IS(waitpid(child, &status, 0), child);
    IS(status, 0);
    puts("all sleeps have ended");
    return 0;
}
