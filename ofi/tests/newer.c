/* What programs over newer libfabrics call than the headers here have: each call does what its page says, or says that there is no such. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <rdma/providers/fi_prov.h>

#include "domain.h"

static struct fid_ep *ep;
static struct fid_cq *cq;
static struct fid_cntr *cntr;
static struct fid_av *av;
static fi_addr_t self;

#define CAPS (FI_TAGGED | FI_MSG | FI_RMA | FI_ATOMIC)

static void open_all(void)
{
    struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_UNSPEC};
    struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
    char name[64];
    size_t len = sizeof name;
    open_domain(CAPS);
    IS(fi_endpoint(domain, info, &ep, NULL), 0);
    IS(fi_cq_open(domain, &cq_attr, &cq, NULL), 0);
    IS(fi_cntr_open(domain, NULL, &cntr, NULL), 0);
    IS(fi_av_open(domain, &av_attr, &av, NULL), 0);
    IS(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), 0);
    IS(fi_ep_bind(ep, &av->fid, 0), 0);
    IS(fi_enable(ep), 0);
    IS(fi_getname(&ep->fid, name, &len), 0);
    IS(fi_av_insert(av, name, 1, &self, 0, NULL), 1);
}

/* The last entry of a table of so many, which newer headers call without a look at the table's size. */
static int last_of(const void *table, size_t entries, void *object)
{
    IS(*(const size_t *)table >= (entries + 1) * sizeof(void *), 1);
    int (*last)(void *, uint64_t, void *) = ((int (*const *)(void *, uint64_t, void *))table)[entries];
    return last(object, 0, NULL);
}

static void tables(void)
{
    /* `fi_ep_export_xpu`, `fi_cq_export_xpu`, `fi_cntr_export_xpu` */
    IS(last_of(ep->ops, 8, ep), -FI_ENOSYS);
    IS(last_of(cq->ops, 8, cq), -FI_ENOSYS);
    IS(last_of(cntr->ops, 8, cntr), -FI_ENOSYS);
    /* `fi_av_lookup2`, `fi_xpu_ctx` */
    IS(last_of(av->ops, 11, av), -FI_ENOSYS);
    IS(last_of(domain->ops, 12, domain), -FI_ENOSYS);
}

/* Options of libfabric 2: `FI_OPT_MAX_MSG_SIZE` and so on, `FI_OPT_INJECT_MSG_SIZE` and so on. */
enum { MAX_SIZE = 12, INJECT_SIZE = 16, KINDS = 4 };

static size_t option(int name)
{
    size_t value = 0, len = sizeof value;
    IS(fi_getopt(&ep->fid, FI_OPT_ENDPOINT, name, &value, &len), 0);
    IS(len, sizeof value);
    return value;
}

static int set(int name, size_t value)
{
    return fi_setopt(&ep->fid, FI_OPT_ENDPOINT, name, &value, sizeof value);
}

static void options(void)
{
    static char bytes[5000];
    const size_t atomic = option(MAX_SIZE + 3);
    size_t most;
    IS(option(FI_OPT_MIN_MULTI_RECV), 64);
    for (int kind = 0; kind < KINDS - 1; kind++) {
        IS(option(MAX_SIZE + kind), info->ep_attr->max_msg_size);
        IS(option(INJECT_SIZE + kind), info->tx_attr->inject_size);
    }
    IS(fi_atomicvalid(ep, FI_UINT8, FI_SUM, &most), 0);
    IS(atomic, most);
    IS(option(INJECT_SIZE + 3), atomic);
    /* They may be lowered, each for itself, and raised no further than they were. */
    for (int kind = 0; kind < KINDS; kind++)
        for (int first = MAX_SIZE; first <= INJECT_SIZE; first += INJECT_SIZE - MAX_SIZE) {
            const size_t before = option(first + kind);
            IS(set(first + kind, before + 1), -FI_EINVAL);
            IS(set(first + kind, 100 + first + kind), 0);
            IS(option(first + kind), 100 + first + kind);
        }
    IS(fi_send(ep, bytes, 113, NULL, self, NULL), -FI_EMSGSIZE);
    IS(fi_tsend(ep, bytes, 114, NULL, self, 1, NULL), -FI_EMSGSIZE);
    IS(fi_write(ep, bytes, 115, NULL, self, 0, 1, NULL), -FI_EMSGSIZE);
    IS(fi_read(ep, bytes, 115, NULL, self, 0, 1, NULL), -FI_EMSGSIZE);
    IS(fi_atomic(ep, bytes, 116, NULL, self, 0, 1, FI_UINT8, FI_SUM, NULL), -FI_EMSGSIZE);
    IS(fi_inject(ep, bytes, 117, self), -FI_EMSGSIZE);
    IS(fi_tinject(ep, bytes, 118, self, 1), -FI_EMSGSIZE);
    IS(fi_inject_write(ep, bytes, 119, self, 0, 1), -FI_EMSGSIZE);
    IS(fi_inject_atomic(ep, bytes, 120, self, 0, 1, FI_UINT8, FI_SUM), -FI_EMSGSIZE);
    IS(fi_inject(ep, bytes, 116, self), 0);
    IS(fi_tinject(ep, bytes, 117, self, 1), 0);
    for (int kind = 0; kind < KINDS; kind++) {
        IS(set(MAX_SIZE + kind, kind < KINDS - 1 ? info->ep_attr->max_msg_size : atomic), 0);
        IS(set(INJECT_SIZE + kind, kind < KINDS - 1 ? info->tx_attr->inject_size : atomic), 0);
    }
    /* What the endpoint has not: `FI_OPT_CM_DATA_SIZE`, `FI_OPT_CUDA_API_PERMITTED`, `FI_OPT_FIREWALL_ADDR`, names of providers, levels. */
    const int others[] = {1, 10, 11, 20, 21, INT32_MAX, -1, INT32_MIN};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        size_t value, len = sizeof value;
        IS(set(others[i], 1), -FI_ENOPROTOOPT);
        IS(fi_getopt(&ep->fid, FI_OPT_ENDPOINT, others[i], &value, &len), -FI_ENOPROTOOPT);
    }
    IS(fi_setopt(&ep->fid, 1, MAX_SIZE, &most, sizeof most), -FI_ENOPROTOOPT);
    IS(fi_setopt(&ep->fid, FI_OPT_ENDPOINT, MAX_SIZE, &most, 4), -FI_EINVAL);
    IS(fi_setopt(&ep->fid, FI_OPT_ENDPOINT, MAX_SIZE, NULL, sizeof most), -FI_EINVAL);
}

/* More elements than one atomic operation has. */
static void long_atomics(void)
{
    static uint64_t values[1024], more[1024], before[1024];
    size_t most;
    IS(fi_atomicvalid(ep, FI_UINT64, FI_SUM, &most), 0);
    IS(fi_atomic(ep, values, most + 1, NULL, self, 0, 1, FI_UINT64, FI_SUM, NULL), -FI_EMSGSIZE);
    IS(fi_inject_atomic(ep, values, most + 1, self, 0, 1, FI_UINT64, FI_SUM), -FI_EMSGSIZE);
    IS(fi_fetch_atomicvalid(ep, FI_UINT64, FI_ATOMIC_READ, &most), 0);
    IS(fi_fetch_atomic(ep, NULL, most + 1, NULL, before, NULL, self, 0, 1, FI_UINT64, FI_ATOMIC_READ, NULL), -FI_EMSGSIZE);
    IS(fi_compare_atomicvalid(ep, FI_UINT64, FI_CSWAP, &most), 0);
    IS(fi_compare_atomic(ep, values, most + 1, NULL, more, NULL, before, NULL, self, 0, 1, FI_UINT64, FI_CSWAP, NULL), -FI_EMSGSIZE);
}

/* Capabilities of libfabric 2: `FI_TAGGED_DIRECTED_RECV`, `FI_TAGGED_MULTI_RECV`, `FI_EXACT_DIRECTED_RECV`. */
#define TAGGED_DIRECTED (1ULL << 45)
#define TAGGED_MULTI (1ULL << 46)
#define EXACT_DIRECTED (1ULL << 48)
/* Whatever there is. */
#define UNASKED UINT64_MAX

/* The provider's own `fi_getinfo`, which is asked for a newer version than this libfabric may have. */
static int offer(uint32_t version, uint64_t caps, struct fi_info **offered)
{
    static struct fi_provider *provider;
    if (!provider) {
        char path[4096];
        snprintf(path, sizeof path, "%s/libportolan_fi.so", getenv("FI_PROVIDER_PATH"));
        void *library = dlopen(path, RTLD_NOW);
        IS(library != NULL, 1);
        provider = ((struct fi_provider * (*)(void)) dlsym(library, "fi_prov_ini"))();
    }
    struct fi_info *hints = wishes(CAPS);
    hints->caps = caps == UNASKED ? 0 : hints->caps | caps;
    int got = provider->getinfo(version, NULL, NULL, 0, hints, offered);
    fi_freeinfo(hints);
    return got;
}

/* An endpoint with such capabilities, and one that never sends. */
static fi_addr_t silent;
static struct fid_ep *open_with(uint64_t caps, struct fid_ep **quiet)
{
    struct fi_info *offered;
    struct fid_ep *both[2];
    char name[64];
    size_t len = sizeof name;
    /* To programs of libfabric 1 the bits are other things. */
    if (caps & (TAGGED_DIRECTED | TAGGED_MULTI | EXACT_DIRECTED))
        IS(offer(FI_VERSION(1, 21), caps, &offered), -FI_ENODATA);
    IS(offer(FI_VERSION(2, 0), caps, &offered), 0);
    IS(offered->caps & caps, caps);
    IS(offered->rx_attr->caps & caps, caps);
    for (int i = 0; i < 2; i++) {
        IS(fi_endpoint(domain, offered, &both[i], NULL), 0);
        IS(fi_ep_bind(both[i], &cq->fid, FI_TRANSMIT | FI_RECV), 0);
        IS(fi_ep_bind(both[i], &av->fid, 0), 0);
        IS(fi_enable(both[i]), 0);
        IS(fi_getname(&both[i]->fid, name, &len), 0);
        IS(fi_av_insert(av, name, 1, i ? &silent : &self, 0, NULL), 1);
    }
    fi_freeinfo(offered);
    *quiet = both[1];
    return both[0];
}

/* Whose receive takes the next message. */
static void *taken(void)
{
    struct fi_cq_tagged_entry entry;
    IS(fi_cq_sread(cq, &entry, 1, NULL, 60000), 1);
    IS(entry.flags & FI_RECV, FI_RECV);
    return entry.op_context;
}

static void receives(uint64_t caps, int tagged, int untagged)
{
    static char buffer[64];
    struct fid_ep *quiet, *one = open_with(caps, &quiet);
    const int exact = (caps & EXACT_DIRECTED) != 0;
    IS(fi_trecv(one, buffer, 8, NULL, silent, 1, 0, buffer), 0);
    IS(fi_trecv(one, buffer, 8, NULL, self, 1, 0, buffer + 1), 0);
    IS(fi_recv(one, buffer, 8, NULL, silent, buffer), 0);
    IS(fi_recv(one, buffer, 8, NULL, self, buffer + 1), 0);
    IS(fi_tinject(one, "x", 1, self, 1), 0);
    IS((char *)taken() - buffer, tagged);
    IS(fi_inject(one, "x", 1, self), 0);
    IS((char *)taken() - buffer, untagged);
    IS(fi_trecv(one, buffer, 8, NULL, FI_ADDR_UNSPEC, 2, 0, buffer), exact && tagged ? -FI_EINVAL : 0);
    IS(fi_recv(one, buffer, 8, NULL, FI_ADDR_UNSPEC, buffer), exact && untagged ? -FI_EINVAL : 0);
    IS(fi_close(&one->fid), 0);
    IS(fi_close(&quiet->fid), 0);
}

/* A buffer for several messages with a tag. */
static void tagged_multi_receive(void)
{
    static char buffer[64];
    struct iovec whole = {buffer, sizeof buffer};
    struct fi_msg_tagged msg = {.msg_iov = &whole, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .tag = 3, .context = buffer};
    struct fid_ep *quiet, *one = open_with(TAGGED_MULTI, &quiet);
    size_t least = 20;
    IS(fi_setopt(&one->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof least), 0);
    IS(fi_trecvmsg(one, &msg, FI_MULTI_RECV), 0);
    for (int i = 0; i < 2; i++) {
        struct fi_cq_tagged_entry entry;
        IS(fi_tinject(one, i ? "01234567890123456789012" : "abcdefghijabcdefghijabc", 24, self, 3), 0);
        IS(fi_cq_sread(cq, &entry, 1, NULL, 60000), 1);
        IS(entry.flags, FI_TAGGED | FI_RECV | (i ? FI_MULTI_RECV : 0));
        IS((char *)entry.buf - buffer, 24 * i);
    }
    IS(memcmp(buffer, "abcdefghijabcdefghijabc\0" "01234567890123456789012", 48), 0);
    IS(fi_close(&one->fid), 0);
    IS(fi_close(&quiet->fid), 0);
}

/* MPICH asks for nothing first, and opens endpoints with what it is offered: those receive from everybody. */
static void unasked(void)
{
    struct fi_info *offered;
    IS(offer(FI_VERSION(2, 0), UNASKED, &offered), 0);
    IS(offered->caps & (EXACT_DIRECTED | FI_DIRECTED_RECV), FI_DIRECTED_RECV);
    fi_freeinfo(offered);
}

int main(void)
{
    open_all();
    unasked();
    tables();
    options();
    long_atomics();
    receives(0, 0, 0);
    receives(FI_DIRECTED_RECV, 1, 1);
    receives(TAGGED_DIRECTED, 1, 0);
    receives(EXACT_DIRECTED, 1, 1);
    receives(EXACT_DIRECTED | TAGGED_DIRECTED, 1, 0);
    tagged_multi_receive();
    IS(fi_close(&ep->fid), 0);
    IS(fi_close(&cq->fid), 0);
    IS(fi_close(&cntr->fid), 0);
    IS(fi_close(&av->fid), 0);
    close_domain();
    puts("all that is newer is right");
    return 0;
}
