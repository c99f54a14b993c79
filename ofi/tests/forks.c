/* A program that forks while its endpoint is in use: the child's calls on what it has inherited return, the parent does not notice, and the
 * child may have an endpoint of its own. */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
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

/* A call of a child that waits ends it by a signal, after so many seconds. */
enum { LIMIT = 60, CHILDREN = 20, LEN = 64 };

static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_ep *ep;
static struct fid_av *av;
static struct fid_cq *cq;
static struct fid_cntr *cntr;
static struct fid_eq *eq;
static struct fid_mr *mr;
static struct fid_poll *set;
static fi_addr_t self;
static char in[LEN], out[LEN], exposed[LEN];
static int modelled;

/* An endpoint of which a thread has atomic operations made all the time, and its operands: as many bytes as one operation takes. */
enum { MANY = 4000 };
static struct fid_ep *busy;
static struct fid_cq *busy_cq;
static struct fid_av *busy_av;
static struct fid_mr *busy_mr;
static fi_addr_t busy_self;
static uint8_t ones[MANY], sums[MANY];
static atomic_int is_busy;

static struct fi_info *info(void)
{
    struct fi_info *hints = fi_allocinfo(), *info = NULL;
    hints->caps = FI_TAGGED | FI_MSG | FI_RMA | FI_ATOMIC;
    hints->domain_attr->data_progress = modelled ? FI_PROGRESS_MANUAL : FI_PROGRESS_AUTO;
    hints->ep_attr->type = FI_EP_RDM;
    hints->fabric_attr->prov_name = strdup("portolan");
    IS(fi_getinfo(FI_VERSION(1, 9), NULL, NULL, 0, hints, &info), 0);
    fi_freeinfo(hints);
    return info;
}

static void open_all(void)
{
    struct fi_info *given = info();
    struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = modelled ? FI_WAIT_UNSPEC : FI_WAIT_FD};
    struct fi_cntr_attr cntr_attr = {.events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_UNSPEC};
    struct fi_eq_attr eq_attr = {.wait_obj = FI_WAIT_UNSPEC};
    struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
    struct fi_poll_attr poll_attr = {0};
    char name[64];
    size_t len = sizeof name;
    IS(fi_fabric(given->fabric_attr, &fabric, NULL), 0);
    IS(fi_eq_open(fabric, &eq_attr, &eq, NULL), 0);
    IS(fi_domain(fabric, given, &domain, NULL), 0);
    IS(fi_endpoint(domain, given, &ep, NULL), 0);
    IS(fi_cq_open(domain, &cq_attr, &cq, NULL), 0);
    IS(fi_cntr_open(domain, &cntr_attr, &cntr, NULL), 0);
    IS(fi_av_open(domain, &av_attr, &av, NULL), 0);
    IS(fi_poll_open(domain, &poll_attr, &set), 0);
    IS(fi_poll_add(set, &cq->fid, 0), 0);
    IS(fi_mr_reg(domain, exposed, LEN, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 7, 0, &mr, NULL), 0);
    IS(fi_ep_bind(ep, &cq->fid, FI_SEND | FI_RECV), 0);
    IS(fi_ep_bind(ep, &cntr->fid, FI_SEND), 0);
    IS(fi_ep_bind(ep, &av->fid, 0), 0);
    IS(fi_enable(ep), 0);
    IS(fi_getname(&ep->fid, name, &len), 0);
    IS(fi_av_insert(av, name, 1, &self, 0, NULL), 1);
    fi_freeinfo(given);
}

static void close_all(int own)
{
    if (own)
        IS(fi_poll_del(set, &cq->fid, 0), 0);
    struct fid *all[] = {&set->fid, &mr->fid, &ep->fid, &cq->fid, &cntr->fid, &av->fid, &domain->fid, &eq->fid, &fabric->fid};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        IS(fi_close(all[i]), 0);
}

static void open_busy(void)
{
    struct fi_info *given = info();
    struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_NONE};
    struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
    char name[64];
    size_t len = sizeof name;
    memset(ones, 1, MANY);
    IS(fi_endpoint(domain, given, &busy, NULL), 0);
    IS(fi_cq_open(domain, &cq_attr, &busy_cq, NULL), 0);
    IS(fi_av_open(domain, &av_attr, &busy_av, NULL), 0);
    IS(fi_mr_reg(domain, sums, MANY, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 9, 0, &busy_mr, NULL), 0);
    IS(fi_ep_bind(busy, &busy_cq->fid, FI_SEND | FI_RECV), 0);
    IS(fi_ep_bind(busy, &busy_av->fid, 0), 0);
    IS(fi_enable(busy), 0);
    IS(fi_getname(&busy->fid, name, &len), 0);
    IS(fi_av_insert(busy_av, name, 1, &busy_self, 0, NULL), 1);
    fi_freeinfo(given);
}

static void *keeps_busy(void *arg)
{
    struct fi_cq_tagged_entry entry;
    (void)arg;
    while (is_busy) {
        IS(fi_atomic(busy, ones, MANY, NULL, busy_self, 0, 9, FI_UINT8, FI_SUM, NULL), 0);
        ssize_t got;
        while ((got = fi_cq_read(busy_cq, &entry, 1)) == -FI_EAGAIN)
            ;
        IS(got, 1);
    }
    return NULL;
}

/* A message to itself, and an atomic operation. */
static void round_trip(void)
{
    struct fi_cq_tagged_entry entry;
    uint64_t one = 1;
    memset(exposed, 0, LEN);
    IS(fi_atomic(ep, &one, 1, NULL, self, 0, 7, FI_UINT64, FI_SUM, NULL), 0);
    IS(fi_cq_sread(cq, &entry, 1, NULL, -1), 1);
    IS(exposed[0], 1);
    uint64_t sent = fi_cntr_read(cntr);
    memset(in, 0, LEN);
    memset(out, 9, LEN);
    IS(fi_trecv(ep, in, LEN, NULL, self, 1, 0, in), 0);
    IS(fi_tsend(ep, out, LEN, NULL, self, 1, out), 0);
    for (int i = 0; i < 2; i++)
        IS(fi_cq_sread(cq, &entry, 1, NULL, -1), 1);
    IS(memcmp(in, out, LEN), 0);
    IS(fi_cntr_wait(cntr, sent + 1, -1), 0);
}

/* Calls on the child's own objects that name one of its parent's. */
static void others_of(struct fid *of_parent[5])
{
    struct fi_info *given = info();
    struct fid_ep *unbound;
    const int no = -FI_EOPBADSTATE;
    IS(fi_endpoint(domain, given, &unbound, NULL), 0);
    for (int i = 0; i < 4; i++)
        IS(fi_ep_bind(unbound, of_parent[i], FI_SEND), no);
    IS(fi_mr_bind(mr, of_parent[1], FI_REMOTE_WRITE), no);
    IS(fi_mr_bind(mr, of_parent[4], 0), no);
    IS(fi_av_bind(av, of_parent[3], 0), no);
    for (int i = 0; i < 2; i++) {
        IS(fi_poll_add(set, of_parent[i], 0), no);
        IS(fi_poll_del(set, of_parent[i], 0), no);
        IS(fi_trywait(fabric, &of_parent[i], 1), no);
    }
    IS(fi_trywait(fabric, &of_parent[3], 1), no);
    IS(fi_close(&unbound->fid), 0);
    fi_freeinfo(given);
}

/* Every call on what the child has of its parent: none waits, and none does anything. */
static void child(void)
{
    struct fi_cq_tagged_entry entry;
    struct fi_cq_err_entry failed = {0};
    struct fi_eq_entry event;
    struct fi_eq_err_entry error = {0};
    struct fi_cq_attr cq_attr = {0};
    struct fi_av_attr av_attr = {0};
    struct fi_atomic_attr attr;
    struct fid_cq *new_cq;
    struct fid_av *new_av;
    struct fid_ep *new_ep;
    struct fid_mr *new_mr;
    struct fid *fids[] = {&cq->fid};
    struct iovec iov = {out, LEN};
    struct fi_msg msg = {.msg_iov = &iov, .iov_count = 1, .addr = self};
    struct fi_msg_tagged tagged = {.msg_iov = &iov, .iov_count = 1, .addr = self, .tag = 1};
    char name[64];
    size_t len = sizeof name;
    uint32_t kind;
    void *contexts[1];
    int fd;
    const int no = -FI_EOPBADSTATE;

    alarm(LIMIT);
    IS(fi_send(ep, out, LEN, NULL, self, NULL), no);
    IS(fi_recv(ep, in, LEN, NULL, self, NULL), no);
    IS(fi_sendmsg(ep, &msg, 0), no);
    IS(fi_recvmsg(ep, &msg, FI_MULTI_RECV), no);
    IS(fi_inject(ep, out, LEN, self), no);
    IS(fi_tsend(ep, out, LEN, NULL, self, 1, NULL), no);
    IS(fi_trecv(ep, in, LEN, NULL, self, 1, 0, NULL), no);
    IS(fi_trecvmsg(ep, &tagged, FI_PEEK), no);
    IS(fi_tinject(ep, out, LEN, self, 1), no);
    IS(fi_write(ep, out, LEN, NULL, self, 0, 7, NULL), no);
    IS(fi_read(ep, in, LEN, NULL, self, 0, 7, NULL), no);
    IS(fi_inject_write(ep, out, LEN, self, 0, 7), no);
    IS(fi_atomic(ep, out, 1, NULL, self, 0, 7, FI_UINT64, FI_SUM, NULL), no);
    IS(fi_cancel(&ep->fid, in), no);
    IS(fi_getname(&ep->fid, name, &len), no);
    IS(fi_enable(ep), no);
    IS(ep->ops->tx_size_left(ep), no);
    IS(ep->ops->rx_size_left(ep), no);
    IS(fi_atomicvalid(ep, FI_UINT64, FI_SUM, &len), no);
    IS(fi_fetch_atomicvalid(ep, FI_UINT64, FI_SUM, &len), no);
    IS(fi_compare_atomicvalid(ep, FI_UINT64, FI_CSWAP, &len), no);
    IS(fi_query_atomic(domain, FI_UINT64, FI_SUM, &attr, 0), no);
    IS(fi_domain_bind(domain, &eq->fid, 0), no);
    IS(fi_mr_enable(mr), no);
    IS(fi_mr_bind(mr, &cntr->fid, FI_REMOTE_WRITE), no);
    IS(fi_ep_bind(ep, &cq->fid, FI_SEND), no);
    IS(fi_cq_read(cq, &entry, 1), no);
    IS(fi_cq_sread(cq, &entry, 1, NULL, -1), no);
    IS(fi_cq_readerr(cq, &failed, 0), no);
    IS(fi_cq_signal(cq), no);
    IS(fi_control(&cq->fid, FI_GETWAIT, &fd), no);
    IS(fi_trywait(fabric, fids, 1), no);
    IS(fi_cntr_read(cntr), 0);
    IS(fi_cntr_readerr(cntr), 0);
    IS(fi_cntr_add(cntr, 1), no);
    IS(fi_cntr_wait(cntr, 1 << 30, -1), no);
    IS(fi_eq_read(eq, &kind, &event, sizeof event, 0), no);
    IS(fi_eq_sread(eq, &kind, &event, sizeof event, -1, 0), no);
    IS(fi_eq_readerr(eq, &error, 0), no);
    IS(fi_poll(set, contexts, 1), no);
    IS(fi_poll_del(set, &cq->fid, 0), no);
    IS(fi_av_insert(av, name, 1, &self, 0, NULL), no);
    IS(fi_av_remove(av, &self, 1, 0), no);
    IS(fi_av_lookup(av, self, name, &len), no);
    IS(fi_cq_open(domain, &cq_attr, &new_cq, NULL), no);
    IS(fi_av_open(domain, &av_attr, &new_av, NULL), no);
    IS(fi_mr_reg(domain, exposed, LEN, FI_REMOTE_READ, 0, 8, 0, &new_mr, NULL), no);
    struct fi_info *given = info();
    IS(fi_endpoint(domain, given, &new_ep, NULL), no);
    fi_freeinfo(given);
    close_all(0);
    /* What it opens itself is its own. On the model it has no place for that. */
    if (!modelled) {
        struct fid *of_parent[] = {&cq->fid, &cntr->fid, &av->fid, &eq->fid, &ep->fid};
        open_all();
        round_trip();
        others_of(of_parent);
        close_all(1);
    }
}

static void *sleeps(void *arg)
{
    struct fi_cq_tagged_entry entry;
    (void)arg;
    IS(fi_cq_sread(cq, &entry, 1, NULL, -1), 1);
    return NULL;
}

int main(void)
{
    modelled = getenv("PORTOLAN_SIMULATION") != NULL;
    open_all();
    round_trip();
    pthread_t busy_thread;
    if (!modelled) {
        open_busy();
        is_busy = 1;
        IS(pthread_create(&busy_thread, NULL, keeps_busy, NULL), 0);
    }
    for (int i = 0; i < CHILDREN; i++) {
        /* With a thread in a call, and with one that makes progress, which have locks. */
        pthread_t thread;
        if (!modelled)
            IS(pthread_create(&thread, NULL, sleeps, NULL), 0);
        int status;
        pid_t pid = fork();
        if (pid == 0) {
            child();
            exit(0);
        }
        IS(waitpid(pid, &status, 0), pid);
        IS(status, 0);
        if (!modelled) {
            IS(fi_recv(ep, in, LEN, NULL, FI_ADDR_UNSPEC, NULL), 0);
            IS(fi_inject(ep, out, LEN, self), 0);
            IS(pthread_join(thread, NULL), 0);
        }
        round_trip();
    }
    if (!modelled) {
        is_busy = 0;
        IS(pthread_join(busy_thread, NULL), 0);
        IS(fi_close(&busy_mr->fid), 0);
        IS(fi_close(&busy->fid), 0);
        IS(fi_close(&busy_cq->fid), 0);
        IS(fi_close(&busy_av->fid), 0);
    }
    close_all(1);
    puts("all forks are right");
    return 0;
}
