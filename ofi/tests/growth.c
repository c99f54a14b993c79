/* Nothing grows with the number of calls: resident memory, mappings, descriptors and threads before and after many of each kind. The first
   argument is how many; the second, if there is one, a word of the rows that are wanted. */
#include <dirent.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include <rdma/fi_atomic.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include "side.h"

enum { LEN = 300000, KEY = 5, KIB = 2048, MAPPINGS = 16, WARM = 8, LEAST = 50 };

/* The first two stay; the third comes and goes. */
static struct side sides[3];
static struct fi_info *automatic;
/* The first and the second, as the other knows it. */
static fi_addr_t other[2];
static char out[LEN], in[LEN], there[LEN];
static struct fid_mr *mr;

struct use {
    long kib, mappings, descriptors, threads;
};

static long lines(const char *path)
{
    long n = 0;
    FILE *file = fopen(path, "r");
    for (int c; (c = fgetc(file)) != EOF;)
        n += c == '\n';
    fclose(file);
    return n;
}

static long entries(const char *path)
{
    long n = 0;
    DIR *folder = opendir(path);
    while (readdir(folder))
        n++;
    closedir(folder);
    return n;
}

/* After what a call has left to be done: the end of a peer is noticed by whoever serves its sockets. */
static struct use now(void)
{
    for (int i = 0; i < 1000; i++)
        for (int k = 0; k < 2; k++)
            IS(fi_cq_read(sides[k].cq, NULL, 0), -FI_EAGAIN);
    struct use use = {.mappings = lines("/proc/self/maps"), .descriptors = entries("/proc/self/fd"), .threads = entries("/proc/self/task")};
    char line[256];
    FILE *file = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "VmRSS: %ld", &use.kib) == 1)
            break;
    fclose(file);
    return use;
}

/* Begins an operation when there is room for it. */
#define BEGIN(call)                                                                            \
    do {                                                                                       \
        ssize_t begun;                                                                         \
        while ((begun = (call)) == -FI_EAGAIN)                                                 \
            for (int i_ = 0; i_ < 3; i_++)                                                     \
                (void)(sides[i_].cq && fi_cq_read(sides[i_].cq, NULL, 0));                     \
        IS(begun, 0);                                                                          \
    } while (0)

/* Takes so many completions of each, and the failures among them; returns how many those are. */
static int end(int first, int second, int third)
{
    struct fi_cq_tagged_entry entry;
    struct fi_cq_err_entry failure = {0};
    int due[3] = {first, second, third}, failures = 0;
    while (due[0] || due[1] || due[2]) {
        for (int i = 0; i < 3; i++) {
            if (!sides[i].cq)
                continue;
            ssize_t got = fi_cq_read(sides[i].cq, due[i] ? &entry : NULL, due[i] != 0);
            if (got == -FI_EAVAIL) {
                IS(fi_cq_readerr(sides[i].cq, &failure, 0), 1);
                failures++;
                due[i]--;
            } else if (got != -FI_EAGAIN) {
                IS(got, due[i] != 0);
                due[i] -= (int)got;
            }
        }
    }
    return failures;
}

static void message(size_t len)
{
    BEGIN(fi_trecv(sides[1].ep, in, len, NULL, other[1], 7, 0, NULL));
    BEGIN(fi_tsend(sides[0].ep, out, len, NULL, other[0], 7, NULL));
    IS(end(1, 1, 0), 0);
}

static void unexpected(size_t len)
{
    BEGIN(fi_tsend(sides[0].ep, out, len, NULL, other[0], 7, NULL));
    (void)fi_cq_read(sides[1].cq, NULL, 0);
    BEGIN(fi_trecv(sides[1].ep, in, len, NULL, FI_ADDR_UNSPEC, 7, 0, NULL));
    IS(end(1, 1, 0), 0);
}

static void truncated(size_t len)
{
    BEGIN(fi_trecv(sides[1].ep, in, len / 2, NULL, other[1], 7, 0, NULL));
    BEGIN(fi_tsend(sides[0].ep, out, len, NULL, other[0], 7, NULL));
    IS(end(1, 1, 0), 1);
}

static void cancelled(size_t len)
{
    static struct fi_context context;
    BEGIN(fi_trecv(sides[1].ep, in, len, NULL, other[1], 8, 0, &context));
    IS(fi_cancel(&sides[1].ep->fid, &context), 0);
    IS(end(0, 1, 0), 1);
}

static void multi(size_t len)
{
    struct iovec into = {in, 2 * len};
    struct fi_msg wish = {.msg_iov = &into, .iov_count = 1, .addr = FI_ADDR_UNSPEC};
    size_t least = len;
    IS(fi_setopt(&sides[1].ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof least), 0);
    BEGIN(fi_recvmsg(sides[1].ep, &wish, FI_MULTI_RECV));
    BEGIN(fi_send(sides[0].ep, out, len, NULL, other[0], NULL));
    BEGIN(fi_send(sides[0].ep, out, len, NULL, other[0], NULL));
    IS(end(2, 0, 0), 0);
    /* The buffer is given back with the last message, or behind it. */
    struct fi_cq_tagged_entry entry = {0};
    while (!(entry.flags & FI_MULTI_RECV)) {
        /* The sender's progress is its program's too. */
        IS(fi_cq_read(sides[0].cq, NULL, 0), -FI_EAGAIN);
        ssize_t got = fi_cq_read(sides[1].cq, &entry, 1);
        IS(got == 1 || got == -FI_EAGAIN, 1);
    }
}

static void looked_for(size_t len)
{
    struct fi_context context;
    struct fi_msg_tagged wish = {.addr = other[1], .tag = 9, .context = &context};
    (void)len;
    BEGIN(fi_trecvmsg(sides[1].ep, &wish, FI_PEEK));
    IS(end(0, 1, 0), 1);
}

static void written(size_t len)
{
    BEGIN(fi_write(sides[0].ep, out, len, NULL, other[0], 0, KEY, NULL));
    BEGIN(fi_read(sides[0].ep, in, len, NULL, other[0], 0, KEY, NULL));
    IS(end(2, 0, 0), 0);
}

static void counted(size_t len)
{
    uint64_t one = 1, was;
    (void)len;
    BEGIN(fi_fetch_atomic(sides[0].ep, &one, 1, NULL, &was, NULL, other[0], 0, KEY, FI_UINT64, FI_SUM, NULL));
    IS(end(1, 0, 0), 0);
}

static void wrong_key(size_t len)
{
    BEGIN(fi_write(sides[0].ep, out, len, NULL, other[0], 0, KEY + 1, NULL));
    IS(end(1, 0, 0), 1);
}

/* As an MPI does around each access. */
static void registered(size_t len)
{
    struct fid_mr *own;
    IS(fi_mr_reg(domain, out, len, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, KEY + 2, 0, &own, NULL), 0);
    BEGIN(fi_write(sides[0].ep, there, len, fi_mr_desc(own), other[0], 0, KEY + 2, NULL));
    IS(end(1, 0, 0), 0);
    IS(fi_close(&own->fid), 0);
}

static void asked_for(size_t len)
{
    struct fi_info *found, *hints = wishes(FI_TAGGED | FI_RMA);
    (void)len;
    IS(fi_getinfo(FI_VERSION(1, 9), NULL, NULL, 0, hints, &found), 0);
    fi_freeinfo(found);
    fi_freeinfo(hints);
}

static void domains(size_t len)
{
    struct fid_fabric *of;
    struct fid_domain *in_it;
    (void)len;
    IS(fi_fabric(info->fabric_attr, &of, NULL), 0);
    IS(fi_domain(of, info, &in_it, NULL), 0);
    IS(fi_close(&in_it->fid), 0);
    IS(fi_close(&of->fid), 0);
}

static void queues(size_t len)
{
    struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_DATA, .wait_obj = FI_WAIT_FD};
    struct fi_eq_attr eq = {.wait_obj = FI_WAIT_FD};
    struct fi_cntr_attr counter = {.events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_UNSPEC};
    struct fid_cq *a;
    struct fid_eq *b;
    struct fid_cntr *c;
    struct fid_poll *d;
    struct fi_poll_attr poll = {0};
    (void)len;
    /* The model has no descriptor that is ready when virtual time has passed. */
    if (fi_cq_open(domain, &cq, &a, NULL) == -FI_ENOSYS) {
        cq.wait_obj = FI_WAIT_UNSPEC;
        IS(fi_cq_open(domain, &cq, &a, NULL), 0);
    }
    IS(fi_eq_open(fabric, &eq, &b, NULL), 0);
    IS(fi_cntr_open(domain, &counter, &c, NULL), 0);
    IS(fi_poll_open(domain, &poll, &d), 0);
    IS(fi_poll_add(d, &a->fid, 0), 0);
    IS(fi_poll_del(d, &a->fid, 0), 0);
    IS(fi_close(&d->fid), 0);
    IS(fi_close(&a->fid), 0);
    IS(fi_close(&b->fid), 0);
    IS(fi_close(&c->fid), 0);
}

static void inserted(size_t len)
{
    (void)len;
    fi_addr_t again = meet(&sides[0], &sides[1]);
    IS(fi_av_remove(sides[0].av, &again, 1, 0), 0);
}

static void come_and_go(struct fi_info *of, int removes)
{
    open_side(&sides[2], of);
    IS(fi_enable(sides[2].ep), 0);
    fi_addr_t third = meet(&sides[0], &sides[2]), first = meet(&sides[2], &sides[0]);
    BEGIN(fi_trecv(sides[2].ep, in, 8, NULL, first, 7, 0, NULL));
    BEGIN(fi_tsend(sides[0].ep, out, 8, NULL, third, 7, NULL));
    IS(end(1, 0, 1), 0);
    BEGIN(fi_trecv(sides[0].ep, in, 8, NULL, third, 7, 0, NULL));
    BEGIN(fi_tsend(sides[2].ep, out, 8, NULL, first, 7, NULL));
    IS(end(1, 0, 1), 0);
    if (removes)
        IS(fi_av_remove(sides[0].av, &third, 1, 0), 0);
    close_side(&sides[2]);
    sides[2].cq = NULL;
    if (!removes)
        IS(fi_av_remove(sides[0].av, &third, 1, 0), 0);
}

static void peers(size_t len)
{
    (void)len;
    come_and_go(info, 0);
}

static void peers_that_are_removed_first(size_t len)
{
    (void)len;
    come_and_go(info, 1);
}

static void peers_that_serve_themselves(size_t len)
{
    (void)len;
    come_and_go(automatic, 0);
}

static const char *word;
static long count;
static int over;

/* One of so many is made. */
static void row(const char *what, void (*make)(size_t), size_t len, long of)
{
    long n = count / of > LEAST ? count / of : count < LEAST ? count : LEAST;
    if (word && !strstr(what, word))
        return;
    for (long i = 0; i < (n / WARM > LEAST ? n / WARM : LEAST); i++)
        make(len);
    struct timespec begun, done;
    struct use before = now();
    clock_gettime(CLOCK_MONOTONIC, &begun);
    for (long i = 0; i < n; i++)
        make(len);
    clock_gettime(CLOCK_MONOTONIC, &done);
    struct use after = now();
    double each = ((double)(done.tv_sec - begun.tv_sec) * 1e9 + (double)(done.tv_nsec - begun.tv_nsec)) / 1e3 / (double)n;
    after.kib -= before.kib;
    after.mappings -= before.mappings;
    after.descriptors -= before.descriptors;
    after.threads -= before.threads;
    printf("| %s | %zu | %ld | %.2f | %ld | %ld | %ld | %ld |\n", what, len, n, each, after.kib, after.mappings, after.descriptors, after.threads);
    fflush(stdout);
    over += after.kib > KIB || after.mappings > MAPPINGS || after.descriptors > 0 || after.threads > 0;
}

int main(int argc, char **argv)
{
    count = argc > 1 ? atol(argv[1]) : 1000;
    word = argc > 2 ? argv[2] : NULL;
    open_domain(FI_TAGGED | FI_MSG | FI_RMA | FI_ATOMIC | FI_MULTI_RECV | FI_DIRECTED_RECV);
    automatic = fi_dupinfo(info);
    automatic->domain_attr->data_progress = FI_PROGRESS_AUTO;
    for (int i = 0; i < 2; i++) {
        open_side(&sides[i], info);
        IS(fi_enable(sides[i].ep), 0);
    }
    other[0] = meet(&sides[0], &sides[1]);
    other[1] = meet(&sides[1], &sides[0]);
    IS(fi_mr_reg(domain, there, LEN, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, KEY, 0, &mr, NULL), 0);

    puts("| what | bytes | number | µs each | KiB more | mappings | descriptors | threads |\n|---|--:|--:|--:|--:|--:|--:|--:|");
    row("message", message, 8, 1);
    row("message", message, LEN, 10);
    row("message that nobody has asked for", unexpected, 8, 1);
    row("message that nobody has asked for", unexpected, LEN, 10);
    row("message that is cut", truncated, 64, 1);
    row("message that is cut", truncated, LEN, 10);
    row("receive that is cancelled", cancelled, 8, 1);
    row("receive of several messages", multi, 64, 1);
    row("look for a message", looked_for, 0, 1);
    row("write and read", written, 8, 1);
    row("write and read", written, LEN, 10);
    row("atomic operation", counted, 8, 1);
    row("write with a wrong key", wrong_key, 8, 1);
    row("registration around a write", registered, 8, 1);
    row("registration around a write", registered, LEN, 10);
    row("providers that are asked for", asked_for, 0, 100);
    row("fabric and domain", domains, 0, 10);
    row("queues, counter, poll set", queues, 0, 10);
    row("address inserted and removed", inserted, 0, 1);
    row("endpoint that comes and goes", peers, 8, 100);
    row("endpoint that is removed before it goes", peers_that_are_removed_first, 8, 100);
    row("endpoint that serves itself, comes and goes", peers_that_serve_themselves, 8, 100);

    IS(fi_close(&mr->fid), 0);
    close_side(&sides[0]);
    close_side(&sides[1]);
    fi_freeinfo(automatic);
    close_domain();
    IS(over, 0);
    puts("nothing grows");
    return 0;
}
