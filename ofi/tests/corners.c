/* Corners of libfabric's manual pages that few programs visit: each call does what its page says, or gives the error that the page names. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include "domain.h"

/* One endpoint, which sends to itself; its receives complete only when they ask for it. */
static struct fid_ep *ep;
static struct fid_cq *sent, *received;
static struct fid_av *av;
static fi_addr_t self;

/* What it asks for. */
#define CAPS (FI_TAGGED | FI_MSG | FI_RMA | FI_MULTI_RECV)

static void open_all(void)
{
    struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_UNSPEC};
    struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
    char name[64];
    size_t len = sizeof name;
    open_domain(CAPS);
    IS(fi_endpoint(domain, info, &ep, NULL), 0);
    IS(fi_cq_open(domain, &cq, &sent, NULL), 0);
    IS(fi_cq_open(domain, &cq, &received, NULL), 0);
    IS(fi_av_open(domain, &av_attr, &av, NULL), 0);
    IS(fi_ep_bind(ep, &sent->fid, 0), -FI_EBADFLAGS);
    IS(fi_ep_bind(ep, &sent->fid, FI_TRANSMIT | FI_READ), -FI_EBADFLAGS);
    IS(fi_ep_bind(ep, &sent->fid, FI_TRANSMIT), 0);
    IS(fi_ep_bind(ep, &received->fid, FI_TRANSMIT | FI_RECV), -FI_EINVAL);
    IS(fi_ep_bind(ep, &received->fid, FI_RECV | FI_SELECTIVE_COMPLETION), 0);
    IS(fi_ep_bind(ep, &received->fid, FI_RECV), -FI_EINVAL);
    IS(fi_ep_bind(ep, &av->fid, 0), 0);
    IS(fi_ep_bind(ep, &av->fid, 0), -FI_EINVAL);
    IS(fi_enable(ep), 0);
    IS(fi_getname(&ep->fid, name, &len), 0);
    IS(fi_av_insert(av, name, 1, &self, 0, NULL), 1);
}

static struct fi_cq_tagged_entry next(struct fid_cq *cq)
{
    struct fi_cq_tagged_entry entry;
    IS(fi_cq_sread(cq, &entry, 1, NULL, 60000), 1);
    return entry;
}

static struct fi_cq_err_entry failure(struct fid_cq *cq, int why)
{
    struct fi_cq_tagged_entry entry;
    struct fi_cq_err_entry failed = {0};
    IS(fi_cq_sread(cq, &entry, 1, NULL, 60000), -FI_EAVAIL);
    IS(fi_cq_readerr(cq, &failed, 0), 1);
    IS(failed.err, why);
    return failed;
}

/* What is offered has what was asked for, or nothing is offered. */
#define REFUSED(wish)                                                                         \
    do {                                                                                      \
        struct fi_info *hints = wishes(CAPS), *offered = NULL;                                    \
        wish;                                                                                 \
        IS(fi_getinfo(FI_VERSION(1, 9), NULL, NULL, 0, hints, &offered), -FI_ENODATA);        \
        fi_freeinfo(hints);                                                                   \
    } while (0)
#define OFFERED(wish, got)                                                                    \
    do {                                                                                      \
        struct fi_info *hints = wishes(CAPS), *offered = NULL;                                    \
        wish;                                                                                 \
        IS(fi_getinfo(FI_VERSION(1, 9), NULL, NULL, 0, hints, &offered), 0);                  \
        IS(got, 1);                                                                           \
        fi_freeinfo(offered);                                                                 \
        fi_freeinfo(hints);                                                                   \
    } while (0)

static void offers(void)
{
    OFFERED(hints->tx_attr->iov_limit = 64, offered->tx_attr->iov_limit == 64);
    OFFERED(hints->rx_attr->iov_limit = 64, offered->rx_attr->iov_limit == 64);
    OFFERED(hints->domain_attr->mr_iov_limit = 64, offered->domain_attr->mr_iov_limit == 64);
    REFUSED(hints->tx_attr->iov_limit = 65);
    REFUSED(hints->rx_attr->iov_limit = 65);
    REFUSED(hints->domain_attr->mr_iov_limit = 65);
    REFUSED(hints->tx_attr->rma_iov_limit = 2);
    OFFERED(hints->tx_attr->size = 4096, offered->tx_attr->size == 4096);
    OFFERED(hints->rx_attr->size = 4096, offered->rx_attr->size == 4096);
    OFFERED(hints->tx_attr->size = 1, offered->tx_attr->size == 1024);
    REFUSED(hints->tx_attr->size = 1 << 20);
    REFUSED(hints->rx_attr->size = 1 << 20);
    REFUSED(hints->rx_attr->total_buffered_recv = 1);
    OFFERED(hints->domain_attr->cntr_cnt = 1 << 20, offered->domain_attr->cntr_cnt == 1 << 20);
    REFUSED(hints->domain_attr->mr_cnt = 1 << 20);
    REFUSED(hints->domain_attr->max_err_data = 1);
    REFUSED(hints->tx_attr->comp_order = FI_ORDER_STRICT);
    REFUSED(hints->rx_attr->comp_order = FI_ORDER_STRICT);
    OFFERED(hints->tx_attr->op_flags = FI_INJECT | FI_MATCH_COMPLETE, offered->tx_attr->op_flags == (FI_INJECT | FI_MATCH_COMPLETE));
    OFFERED(hints->rx_attr->op_flags = FI_MULTI_RECV, offered->rx_attr->op_flags == FI_MULTI_RECV);
    REFUSED(hints->tx_attr->op_flags = FI_FENCE);
    REFUSED(hints->rx_attr->op_flags = FI_INJECT);
    REFUSED(hints->tx_attr->caps = FI_HMEM);
    REFUSED(hints->rx_attr->caps = FI_HMEM);
    REFUSED(hints->ep_attr->protocol_version = 2);
    /* A tag leaves room for 4 bytes of data. */
    OFFERED(hints->domain_attr->cq_data_size = 4, offered->domain_attr->cq_data_size == 4);
    REFUSED(hints->domain_attr->cq_data_size = 5);
    OFFERED(hints->caps = FI_MSG | FI_RMA; hints->domain_attr->cq_data_size = 8, offered->domain_attr->cq_data_size == 8);
    REFUSED(hints->caps = FI_MSG | FI_RMA; hints->domain_attr->cq_data_size = 9);
    REFUSED(hints->ep_attr->max_order_raw_size = 8);
    REFUSED(hints->ep_attr->max_order_war_size = 8);
    REFUSED(hints->ep_attr->max_order_waw_size = SIZE_MAX);
    OFFERED(hints->ep_attr->max_order_waw_size = 8, offered->ep_attr->max_order_waw_size >= 8);
    REFUSED(hints->ep_attr->auth_key_size = 8; hints->ep_attr->auth_key = calloc(1, 8));
    REFUSED(hints->domain_attr->auth_key_size = 8; hints->domain_attr->auth_key = calloc(1, 8));
    REFUSED(hints->domain_attr->threading = 77);
    REFUSED(hints->domain_attr->control_progress = 9);
    REFUSED(hints->domain_attr->data_progress = -1);
    REFUSED(hints->domain_attr->resource_mgmt = 9);
    REFUSED(hints->domain_attr->av_type = 9);
    /* Modes of libfabric 1.4 are alone (FI_MR_BASIC, FI_MR_SCALABLE). */
    REFUSED(hints->domain_attr->mr_mode = 1 << 0 | FI_MR_VIRT_ADDR);
    REFUSED(hints->domain_attr->mr_mode = 1 << 1 | FI_MR_VIRT_ADDR);
    OFFERED(hints->domain_attr->mr_mode = 1 << 0 | 1 << 1, offered->domain_attr->mr_mode == 1 << 1);
    /* Who names no type of address vector may have either. */
    OFFERED(hints->domain_attr->av_type = FI_AV_UNSPEC, offered->domain_attr->av_type == FI_AV_UNSPEC);
    OFFERED(hints->domain_attr->av_type = FI_AV_MAP, offered->domain_attr->av_type == FI_AV_MAP);
    /* The peer that a program means to reach. */
    char name[64] = {0};
    size_t len = sizeof name;
    REFUSED(hints->dest_addr = memcpy(malloc(len), name, len); hints->dest_addrlen = len);
    IS(fi_getname(&ep->fid, name, &len), 0);
    OFFERED(hints->dest_addr = memcpy(malloc(len), name, len); hints->dest_addrlen = len,
            offered->dest_addrlen == len && memcmp(offered->dest_addr, name, len) == 0);
    REFUSED(hints->dest_addr = memcpy(malloc(len), name, len); hints->dest_addrlen = len - 1);
}

/* Objects of other kinds than there are, and flags and attributes that nobody acts on. */
static void refusals(void)
{
    static char memory[64];
    struct fi_info *other = fi_dupinfo(info);
    struct iovec whole = {memory, 8};
    struct fi_msg msg = {.msg_iov = &whole, .iov_count = 1, .addr = self};
    struct fi_msg_tagged tagged = {.msg_iov = &whole, .iov_count = 1, .addr = self};
    struct fi_rma_iov there = {0, 8, 1};
    struct fi_msg_rma rma = {.msg_iov = &whole, .iov_count = 1, .addr = self, .rma_iov = &there, .rma_iov_count = 1};
    struct fi_av_attr av_attr = {.type = 7};
    struct fi_cntr_attr cntr_attr = {.events = 1};
    struct fi_cq_attr cq_attr = {.wait_obj = FI_WAIT_UNSPEC, .wait_cond = 7};
    struct fid_domain *no_domain;
    struct fid_ep *no_ep;
    struct fid_av *no_av;
    struct fid_cntr *cntr;
    struct fid_cq *no_cq;
    struct fid_mr *no_mr;
    char name[64];
    size_t len = sizeof name;
    uint64_t flags = FI_TRANSMIT | FI_FENCE;
    fi_addr_t number;
    other->ep_attr->type = FI_EP_MSG;
    IS(fi_endpoint(domain, other, &no_ep, NULL), -FI_EINVAL);
    other->ep_attr->type = FI_EP_RDM;
    other->caps |= FI_HMEM;
    IS(fi_endpoint(domain, other, &no_ep, NULL), -FI_EINVAL);
    fi_freeinfo(other);
    IS(fi_domain2(fabric, info, &no_domain, FI_PEER, NULL), -FI_EBADFLAGS);
    IS(fi_scalable_ep(domain, info, &no_ep, NULL), -FI_ENOSYS);
    IS(fi_srx_context(domain, info->rx_attr, &no_ep, NULL), -FI_ENOSYS);
    /* An operation that is to wait for others, or for a trigger, is not one that does not. */
    const uint64_t kinds[] = {FI_FENCE, FI_TRIGGER, FI_MULTICAST, FI_VARIABLE_MSG};
    for (int i = 0; i < 4; i++) {
        IS(fi_sendmsg(ep, &msg, kinds[i]), -FI_EBADFLAGS);
        IS(fi_tsendmsg(ep, &tagged, kinds[i]), -FI_EBADFLAGS);
        IS(fi_recvmsg(ep, &msg, kinds[i]), -FI_EBADFLAGS);
        IS(fi_writemsg(ep, &rma, kinds[i]), -FI_EBADFLAGS);
        IS(fi_readmsg(ep, &rma, kinds[i]), -FI_EBADFLAGS);
    }
    /* What a peer's memory is named for is as long as what is here. */
    for (there.len = 7; there.len <= 9; there.len += 2) {
        IS(fi_writemsg(ep, &rma, 0), -FI_EINVAL);
        IS(fi_readmsg(ep, &rma, 0), -FI_EINVAL);
    }
    IS(fi_control(&ep->fid, FI_SETOPSFLAG, &flags), -FI_EBADFLAGS);
    flags = FI_RECV | FI_INJECT;
    IS(fi_control(&ep->fid, FI_SETOPSFLAG, &flags), -FI_EBADFLAGS);
    flags = FI_TRANSMIT | FI_COMPLETION;
    IS(fi_control(&ep->fid, FI_SETOPSFLAG, &flags), 0);
    IS(fi_av_open(domain, &av_attr, &no_av, NULL), -FI_EINVAL);
    av_attr = (struct fi_av_attr){.type = FI_AV_MAP, .flags = FI_READ};
    IS(fi_av_open(domain, &av_attr, &no_av, NULL), -FI_EBADFLAGS);
    IS(fi_getname(&ep->fid, name, &len), 0);
    IS(fi_av_insert(av, name, 1, &number, 1ULL << 41, NULL), -FI_EBADFLAGS);
    IS(fi_cntr_open(domain, &cntr_attr, &cntr, NULL), -FI_EINVAL);
    cntr_attr = (struct fi_cntr_attr){.flags = 1};
    IS(fi_cntr_open(domain, &cntr_attr, &cntr, NULL), -FI_EBADFLAGS);
    IS(fi_cntr_open(domain, NULL, &cntr, NULL), 0);
    IS(fi_ep_bind(ep, &cntr->fid, 0), -FI_EBADFLAGS);
    IS(fi_ep_bind(ep, &cntr->fid, FI_WRITE | FI_INJECT), -FI_EBADFLAGS);
    IS(fi_close(&cntr->fid), 0);
    IS(fi_cq_open(domain, &cq_attr, &no_cq, NULL), -FI_EINVAL);
    /* Memory that is described in another way, such as by the descriptor of a device. */
    const uint64_t described = 1ULL << 40;
    IS(fi_mr_reg(domain, memory, sizeof memory, FI_REMOTE_READ, 0, 1, described, &no_mr, NULL), -FI_EBADFLAGS);
    IS(fi_mr_regv(domain, &whole, 1, FI_REMOTE_READ, 0, 1, described, &no_mr, NULL), -FI_EBADFLAGS);
    struct fi_mr_attr mr_attr = {.mr_iov = &whole, .iov_count = 1, .access = FI_REMOTE_READ, .requested_key = 1};
    IS(fi_mr_regattr(domain, &mr_attr, described, &no_mr), -FI_EBADFLAGS);
    mr_attr.offset = 8;
    IS(fi_mr_regattr(domain, &mr_attr, 0, &no_mr), -FI_EINVAL);
    IS(fi_mr_reg(domain, memory, sizeof memory, FI_REMOTE_READ, 8, 1, 0, &no_mr, NULL), -FI_EINVAL);
    IS(fi_mr_reg(domain, memory, sizeof memory, 1ULL << 60, 0, 1, 0, &no_mr, NULL), -FI_EINVAL);
    /* The kinds of operations say no more than their directions do. */
    const uint64_t operations = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC;
    IS(fi_mr_reg(domain, memory, sizeof memory, operations | FI_REMOTE_READ, 0, 1, 0, &no_mr, NULL), 0);
    IS(fi_write(ep, name, 1, NULL, self, 0, 1, NULL), 0);
    failure(sent, FI_EKEYREJECTED);
    IS(fi_close(&no_mr->fid), 0);
}

/* Calls that take no entry make progress also while entries are there: a message comes that only this side's calls can bring. */
static void progress(void)
{
    static volatile char to;
    struct fi_cq_attr attr = {.format = FI_CQ_FORMAT_TAGGED};
    struct fi_poll_attr poll_attr = {0};
    struct fi_cq_tagged_entry entry;
    struct fid_ep *other;
    struct fid_cq *cq;
    struct fid_poll *set;
    void *news;
    fi_addr_t number;
    char name[64];
    size_t len = sizeof name;
    IS(fi_cq_open(domain, &attr, &cq, NULL), 0);
    IS(fi_poll_open(domain, &poll_attr, &set), 0);
    IS(fi_poll_add(set, &cq->fid, 0), 0);
    IS(fi_endpoint(domain, info, &other, NULL), 0);
    IS(fi_ep_bind(other, &cq->fid, FI_TRANSMIT | FI_RECV), 0);
    IS(fi_ep_bind(other, &av->fid, 0), 0);
    IS(fi_enable(other), 0);
    IS(fi_getname(&other->fid, name, &len), 0);
    IS(fi_av_insert(av, name, 1, &number, 0, NULL), 1);
    /* The end of a send, which nobody takes. */
    IS(fi_tsend(other, "x", 1, NULL, number, 1, NULL), 0);
    while (fi_cq_read(cq, NULL, 0) == -FI_EAGAIN)
        ;
    for (int polls = 0; polls < 2; polls++) {
        to = 0;
        IS(fi_trecv(other, (void *)&to, 1, NULL, FI_ADDR_UNSPEC, 2, 0, NULL), 0);
        IS(fi_tinject(ep, "y", 1, number, 2), 0);
        for (int i = 0; i < 10000 && to == 0; i++) {
            IS(polls ? fi_poll(set, &news, 1) : fi_cq_read(cq, NULL, 0), polls);
            IS(fi_cq_read(sent, &entry, 1), -FI_EAGAIN);
        }
        IS(to, 'y');
    }
    IS(fi_poll_del(set, &cq->fid, 0), 0);
    IS(fi_close(&set->fid), 0);
    IS(fi_close(&other->fid), 0);
    IS(fi_close(&cq->fid), 0);
    IS(fi_av_remove(av, &number, 1, 0), 0);
}

/* What a queue tells to who has named no format, no room for more about a failure, or too little for its text. */
static void queues(void)
{
    struct fi_cq_attr attr = {.wait_obj = FI_WAIT_NONE};
    struct fid_ep *other;
    struct fid_cq *cq;
    fi_addr_t number;
    char name[64], text[8], more[16];
    size_t len = sizeof name;
    void *contexts[4] = {text, text, text, text};
    IS(fi_cq_open(domain, &attr, &cq, NULL), 0);
    IS(attr.format, FI_CQ_FORMAT_CONTEXT);
    IS(fi_endpoint(domain, info, &other, NULL), 0);
    IS(fi_ep_bind(other, &cq->fid, FI_TRANSMIT | FI_RECV), 0);
    IS(fi_ep_bind(other, &av->fid, 0), 0);
    IS(fi_enable(other), 0);
    IS(fi_getname(&other->fid, name, &len), 0);
    IS(fi_av_insert(av, name, 1, &number, 0, NULL), 1);
    for (int i = 0; i < 2; i++)
        IS(fi_tsend(other, "x", 1, NULL, number, 1, name + i), 0);
    ssize_t got = 0;
    while (got < 2) {
        ssize_t now = fi_cq_read(cq, contexts + got, 2 - got);
        got += now == -FI_EAGAIN ? 0 : now;
    }
    IS(contexts[0] == name && contexts[1] == name + 1 && contexts[2] == text, 1);
    IS(fi_trecv(other, NULL, 0, NULL, FI_ADDR_UNSPEC, 1, 0, NULL), 0);
    while ((got = fi_cq_read(cq, contexts, 1)) == -FI_EAGAIN)
        ;
    IS(got, -FI_EAVAIL);
    struct fi_cq_err_entry failed = {.err_data = more, .err_data_size = sizeof more};
    IS(fi_cq_readerr(cq, &failed, 0), 1);
    IS(failed.err_data == more && failed.err_data_size == 0, 1);
    const char *all = fi_cq_strerror(cq, failed.prov_errno, NULL, text, sizeof text);
    IS(strlen(text), sizeof text - 1);
    IS(strncmp(text, all, sizeof text - 1), 0);
    IS(fi_close(&other->fid), 0);
    IS(fi_close(&cq->fid), 0);
    IS(fi_av_remove(av, &number, 1, 0), 0);
}

/* A wait ends with as many entries as it asks for, when its time is over, or with a failure. */
static void thresholds(void)
{
    struct fi_cq_attr attr = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_UNSPEC, .wait_cond = FI_CQ_COND_THRESHOLD};
    struct fi_cq_tagged_entry entries[4];
    struct fi_cq_err_entry failed = {0};
    struct fid_ep *other;
    struct fid_cq *cq;
    fi_addr_t number;
    char name[64];
    size_t len = sizeof name;
    void *three = (void *)3;
    IS(fi_cq_open(domain, &attr, &cq, NULL), 0);
    IS(fi_endpoint(domain, info, &other, NULL), 0);
    IS(fi_ep_bind(other, &cq->fid, FI_TRANSMIT | FI_RECV), 0);
    IS(fi_ep_bind(other, &av->fid, 0), 0);
    IS(fi_enable(other), 0);
    IS(fi_getname(&other->fid, name, &len), 0);
    IS(fi_av_insert(av, name, 1, &number, 0, NULL), 1);
    /* One end of a send, and two of a receive and its message. */
    IS(fi_tsend(other, "x", 1, NULL, number, 1, NULL), 0);
    IS(fi_cq_sread(cq, entries, 4, three, 1), 1);
    IS(fi_trecv(other, name, 1, NULL, number, 2, 0, NULL), 0);
    IS(fi_trecv(other, name, 1, NULL, number, 1, 0, NULL), 0);
    IS(fi_tsend(other, "x", 1, NULL, number, 2, NULL), 0);
    IS(fi_cq_sread(cq, entries, 4, three, 60000), 3);
    /* More than the caller has room for are not awaited. */
    IS(fi_tsend(other, "x", 1, NULL, number, 3, NULL), 0);
    IS(fi_cq_sread(cq, entries, 1, three, 60000), 1);
    IS(fi_trecv(other, name, 0, NULL, number, 3, 0, NULL), 0);
    IS(fi_cq_sread(cq, entries, 4, three, 60000), -FI_EAVAIL);
    IS(fi_cq_readerr(cq, &failed, 0), 1);
    IS(fi_close(&other->fid), 0);
    IS(fi_close(&cq->fid), 0);
    IS(fi_av_remove(av, &number, 1, 0), 0);
}

/* A wait on a counter ends with a failure that came before it, once: the program knows then, as it does when it reads the failures, or the
   failure in a completion queue. */
static void counted_failures(void)
{
    struct fi_cq_err_entry failed = {0};
    struct fi_cq_attr attr = {.format = FI_CQ_FORMAT_TAGGED};
    struct fid_cq *cq;
    struct fid_ep *other;
    struct fid_cntr *cntr;
    fi_addr_t number;
    char name[64];
    size_t len = sizeof name;
    IS(fi_cntr_open(domain, &(struct fi_cntr_attr){.wait_obj = FI_WAIT_UNSPEC}, &cntr, NULL), 0);
    IS(fi_endpoint(domain, info, &other, NULL), 0);
    IS(fi_cq_open(domain, &attr, &cq, NULL), 0);
    IS(fi_ep_bind(other, &cq->fid, FI_TRANSMIT | FI_RECV), 0);
    IS(fi_ep_bind(other, &cntr->fid, FI_WRITE), 0);
    IS(fi_ep_bind(other, &av->fid, 0), 0);
    IS(fi_enable(other), 0);
    IS(fi_getname(&other->fid, name, &len), 0);
    IS(fi_av_insert(av, name, 1, &number, 0, NULL), 1);
    for (uint64_t failures = 1; failures <= 3; failures++) {
        IS(fi_inject_write(other, name, 1, number, 0, 99), 0);
        /* It has failed, and nobody has said so. */
        while (fi_cq_read(cq, NULL, 0) != -FI_EAVAIL)
            ;
        IS(fi_cntr_read(cntr), 0);
        if (failures == 2)
            IS(fi_cntr_readerr(cntr), failures);
        else if (failures == 3)
            while (fi_cq_readerr(cq, &failed, 0) == 1)
                ;
        else
            IS(fi_cntr_wait(cntr, 1, 0), -FI_EAVAIL);
        IS(fi_cntr_wait(cntr, 1, 0), -FI_ETIMEDOUT);
        while (fi_cq_readerr(cq, &failed, 0) == 1)
            ;
    }
    IS(fi_cntr_seterr(cntr, 0), 0);
    IS(fi_cntr_wait(cntr, 1, 0), -FI_ETIMEDOUT);
    IS(fi_cntr_adderr(cntr, 1), 0);
    IS(fi_cntr_wait(cntr, 1, 0), -FI_EAVAIL);
    /* What is awaited and has come is no failure. */
    IS(fi_cntr_adderr(cntr, 1), 0);
    IS(fi_cntr_add(cntr, 1), 0);
    IS(fi_cntr_wait(cntr, 1, 0), 0);
    IS(fi_close(&other->fid), 0);
    IS(fi_close(&cntr->fid), 0);
    IS(fi_close(&cq->fid), 0);
    IS(fi_av_remove(av, &number, 1, 0), 0);
}

/* Everything that was sent has arrived. */
static void settle(void)
{
    struct fi_cq_tagged_entry entry;
    for (int i = 0; i < 100; i++)
        IS(fi_cq_read(sent, &entry, 1), -FI_EAGAIN);
}

/* Nothing that is longer than an operation may be is begun. */
static void lengths(void)
{
    static char byte;
    const size_t lens[] = {info->ep_attr->max_msg_size + 1, SIZE_MAX};
    for (int i = 0; i < 2; i++) {
        IS(fi_send(ep, &byte, lens[i], NULL, self, NULL), -FI_EMSGSIZE);
        IS(fi_tsend(ep, &byte, lens[i], NULL, self, 1, NULL), -FI_EMSGSIZE);
        IS(fi_write(ep, &byte, lens[i], NULL, self, 0, 1, NULL), -FI_EMSGSIZE);
        IS(fi_read(ep, &byte, lens[i], NULL, self, 0, 1, NULL), -FI_EMSGSIZE);
    }
    IS(fi_inject(ep, &byte, info->tx_attr->inject_size + 1, self), -FI_EMSGSIZE);
    IS(fi_inject_write(ep, &byte, info->tx_attr->inject_size + 1, self, 0, 1), -FI_EMSGSIZE);
    settle();
}

/* A multi-receive whose program wants no completions still says that it gives its buffer back, however little room it may leave. */
static void multi_receives(void)
{
    static char buffer[64], from[16] = "0123456789abcde";
    struct iovec whole = {buffer, 2 * sizeof from};
    struct fi_msg msg = {.msg_iov = &whole, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = buffer};
    size_t least = 0;
    IS(fi_setopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof least), 0);
    for (int early = 0; early < 2; early++) {
        memset(buffer, 0, sizeof buffer);
        if (!early)
            IS(fi_recvmsg(ep, &msg, FI_MULTI_RECV), 0);
        for (int i = 0; i < 3; i++)
            IS(fi_inject(ep, from, sizeof from, self), 0);
        settle();
        if (early)
            IS(fi_recvmsg(ep, &msg, FI_MULTI_RECV), 0);
        struct fi_cq_tagged_entry entry = next(received);
        IS(entry.flags, FI_MSG | FI_RECV | FI_MULTI_RECV);
        IS(entry.buf == buffer + sizeof from, 1);
        IS(memcmp(buffer, from, sizeof from) || memcmp(buffer + sizeof from, from, sizeof from), 0);
        /* The third is for the next receive. */
        IS(fi_recvmsg(ep, &(struct fi_msg){.msg_iov = &whole, .iov_count = 1, .addr = FI_ADDR_UNSPEC}, FI_COMPLETION), 0);
        IS(next(received).len, sizeof from);
    }
    IS(fi_recvmsg(ep, &msg, FI_MULTI_RECV), 0);
    IS(fi_cancel(&ep->fid, buffer), 0);
    struct fi_cq_err_entry failed = failure(received, FI_ECANCELED);
    IS(failed.flags, FI_MSG | FI_RECV | FI_MULTI_RECV);
    IS(failed.op_context == buffer, 1);
}

/* A look at messages without a tag takes none; one that is dropped says how long it was. */
static void looks(void)
{
    static char to[8];
    struct iovec whole = {to, sizeof to};
    struct fi_msg msg = {.msg_iov = &whole, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = to};
    struct fi_msg_tagged tagged = {.addr = FI_ADDR_UNSPEC, .tag = 5, .context = to};
    IS(fi_recvmsg(ep, &msg, FI_PEEK | FI_COMPLETION), 0);
    failure(received, FI_ENOMSG);
    IS(fi_inject(ep, "looked", 7, self), 0);
    IS(fi_tinject(ep, "dropped", 8, self, 5), 0);
    settle();
    for (int i = 0; i < 2; i++) {
        IS(fi_recvmsg(ep, &msg, FI_PEEK | FI_COMPLETION), 0);
        struct fi_cq_tagged_entry entry = next(received);
        IS(entry.len, 7);
        IS(entry.flags, FI_MSG | FI_RECV);
        IS(to[0], 0);
    }
    IS(fi_recvmsg(ep, &msg, FI_COMPLETION), 0);
    IS(next(received).len, 7);
    IS(strcmp(to, "looked"), 0);
    IS(fi_trecvmsg(ep, &tagged, FI_PEEK | FI_DISCARD | FI_COMPLETION), 0);
    IS(next(received).len, 8);
    IS(fi_trecvmsg(ep, &tagged, FI_PEEK | FI_DISCARD), 0);
    IS(failure(received, FI_ENOMSG).tag, 5);
}

/* A send that awaits its match has none before a receive takes the message. */
static void matches(void)
{
    static char from[3000], to[3000];
    const size_t lens[] = {0, 8, sizeof from};
    struct fi_cq_tagged_entry entry;
    for (int i = 0; i < 3; i++)
        for (int injected = 0; injected < 2; injected++) {
            struct iovec whole = {from, lens[i]};
            struct fi_msg_tagged msg = {.msg_iov = &whole, .iov_count = 1, .addr = self, .tag = 9, .context = from};
            memset(from, i + 1, sizeof from);
            IS(fi_tsendmsg(ep, &msg, FI_MATCH_COMPLETE | (injected ? FI_INJECT : 0)), 0);
            if (injected)
                memset(from, 0, sizeof from);
            settle();
            IS(fi_trecv(ep, to, sizeof to, NULL, FI_ADDR_UNSPEC, 9, 0, NULL), 0);
            entry = next(sent);
            IS(entry.op_context == from && entry.flags == (FI_TAGGED | FI_SEND), 1);
            IS(lens[i] > 0 && to[lens[i] - 1] != i + 1, 0);
        }
}

int main(void)
{
    struct fi_eq_attr eq_attr = {.wait_obj = FI_WAIT_NONE};
    struct fid_eq *eq;
    open_all();
    offers();
    refusals();
    progress();
    queues();
    thresholds();
    counted_failures();
    lengths();
    multi_receives();
    looks();
    matches();
    /* What others use does not close. */
    IS(fi_close(&av->fid), -FI_EBUSY);
    IS(fi_close(&fabric->fid), -FI_EBUSY);
    IS(fi_close(&ep->fid), 0);
    IS(fi_close(&sent->fid), 0);
    IS(fi_close(&received->fid), 0);
    IS(fi_close(&av->fid), 0);
    IS(fi_close(&domain->fid), 0);
    IS(fi_eq_open(fabric, &eq_attr, &eq, NULL), 0);
    IS(fi_close(&fabric->fid), -FI_EBUSY);
    IS(fi_close(&eq->fid), 0);
    IS(fi_close(&fabric->fid), 0);
    fi_freeinfo(info);
    puts("all corners are right");
    return 0;
}
