/* Endpoints by a host and a port: one process names its endpoint so, another finds it by the name and sends to it. */
#include <errno.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rdma/fi_errno.h>

#include "side.h"

/* Bytes of an address: over shared memory fewer than elsewhere. */
static size_t length(const struct fi_info *of)
{
    return strcmp(of->domain_attr->name, "shm") == 0 ? 32 : 64;
}

static char port[8];

/* What fi_getinfo says of a host and the port. */
static int ask(const char *host, const char *service, uint64_t flags, const struct fi_info *like, struct fi_info **found)
{
    struct fi_info *hints = like ? fi_dupinfo(like) : wishes(FI_TAGGED);
    int said = fi_getinfo(FI_VERSION(1, 9), host, service, flags, hints, found);
    fi_freeinfo(hints);
    return said;
}

static int refused(const char *host, const char *service, uint64_t flags)
{
    struct fi_info *found = NULL;
    return ask(host, service, flags, NULL, &found);
}

/* The process that knows no more than a host and a port. */
static int client(int ready)
{
    char byte = 0;
    struct side s;
    struct fi_info *found = NULL;
    struct fi_cq_tagged_entry entry;
    fi_addr_t server;
    IS(read(ready, &byte, 1), 1);
    IS(ask("localhost", port, 0, NULL, &found), 0);
    IS(found->dest_addrlen, length(found));
    IS(fi_fabric(found->fabric_attr, &fabric, NULL), 0);
    IS(fi_domain(fabric, found, &domain, NULL), 0);
    open_side(&s, found);
    IS(fi_enable(s.ep), 0);
    IS(fi_av_insert(s.av, found->dest_addr, 1, &server, 0, NULL), 1);
    IS(fi_tsend(s.ep, "found", 6, NULL, server, 7, NULL), 0);
    IS(fi_cq_sread(s.cq, &entry, 1, NULL, -1), 1);
    close_side(&s);
    return 0;
}

/* Names that are no endpoint's of this machine. */
static void nobody(void)
{
    IS(refused("127.0.0.1", port, 0), -FI_ENODATA);
    IS(refused(NULL, port, 0), -FI_ENODATA);
    IS(refused("127.0.0.1", NULL, 0), -FI_ENODATA);
    IS(refused("127.0.0.1", "http", FI_SOURCE), -FI_ENODATA);
    /* Of a block that is for documentation. */
    IS(refused("192.0.2.1", port, FI_SOURCE), -FI_ENODATA);
    IS(refused("192.0.2.1", port, 0), -FI_ENODATA);
    IS(refused("localhost", port, FI_SOURCE | FI_NUMERICHOST), -FI_ENODATA);
}

/* The description of a named endpoint may be given back, beside another end or without. */
static void again(struct fi_info *named)
{
    struct fi_info *found = NULL;
    IS(ask(NULL, NULL, 0, named, &found), 0);
    IS(memcmp(found->src_addr, named->src_addr, length(named)), 0);
    fi_freeinfo(found);
    IS(ask("127.0.0.1", NULL, FI_SOURCE, named, &found), 0);
    IS(memcmp(found->src_addr, named->src_addr, length(named)) != 0, 1);
    fi_freeinfo(found);
    /* Of another format. */
    struct fi_info *other = fi_dupinfo(named);
    other->src_addrlen = length(named) / 2;
    IS(ask(NULL, NULL, 0, other, &found), -FI_ENODATA);
    fi_freeinfo(other);
}

int main(void)
{
    int ready[2], lives[2], runs[2], status = 0;
    char text[100], in[8], name[64];
    size_t room = sizeof text, len = sizeof name;
    struct side s, same;
    struct fi_info *named = NULL, *found = NULL;
    struct fi_cq_tagged_entry entry;
    snprintf(port, sizeof port, "%d", 1000 + (int)(getpid() % 60000));
    IS(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        close(ready[1]);
        return client(ready[0]);
    }

    IS(ask(NULL, port, FI_SOURCE, NULL, &named), 0);
    IS(named->dest_addr == NULL, 1);
    IS(fi_fabric(named->fabric_attr, &fabric, NULL), 0);
    IS(fi_domain(fabric, named, &domain, NULL), 0);
    open_side(&s, named);
    char due[32];
    snprintf(due, sizeof due, "%s://*:%s", named->domain_attr->name, port);
    IS(strcmp(fi_av_straddr(s.av, named->src_addr, text, &room), due), 0);
    /* It is found when it is used, and not before. */
    nobody();
    IS(fi_enable(s.ep), 0);
    IS(fi_getname(&s.ep->fid, name, &len), 0);
    const char *hosts[] = {NULL, "127.0.0.1", "localhost", "127.0.0.3"};
    for (int i = 0; i < 4; i++) {
        IS(ask(hosts[i], port, 0, i < 2 ? named : NULL, &found), 0);
        IS(memcmp(found->dest_addr, name, length(found)), 0);
        /* Who asks names itself by its hints alone. */
        IS(memcmp(found->src_addr, named->src_addr, length(named)) == 0, i < 2);
        fi_freeinfo(found);
    }
    again(named);

    IS(write(ready[1], "r", 1), 1);
    IS(fi_trecv(s.ep, in, sizeof in, NULL, FI_ADDR_UNSPEC, 7, 0, NULL), 0);
    IS(fi_cq_sread(s.cq, &entry, 1, NULL, -1), 1);
    IS(strcmp(in, "found"), 0);
    IS(waitpid(child, &status, 0), child);
    IS(status, 0);

    /* A name is one endpoint's. */
    open_side(&same, named);
    IS(fi_enable(same.ep), -FI_EADDRINUSE);
    /* It goes with the endpoint, whatever children the program has forked. */
    IS(pipe(lives), 0);
    IS(pipe(runs), 0);
    child = fork();
    if (child == 0) {
        close(lives[1]);
        IS(write(runs[1], "r", 1), 1);
        _exit(read(lives[0], in, 1) != 0);
    }
    close(lives[0]);
    /* It lets the name go before fork returns there. */
    IS(read(runs[0], in, 1), 1);
    close_side(&s);
    nobody();
    IS(fi_enable(same.ep), 0);
    IS(ask(NULL, port, 0, NULL, &found), 0);
    IS(memcmp(found->dest_addr, name, length(found)) != 0, 1);
    fi_freeinfo(found);
    close_side(&same);
    nobody();
    close(lives[1]);
    IS(waitpid(child, &status, 0), child);
    IS(status, 0);
    IS(fi_close(&domain->fid), 0);
    IS(fi_close(&fabric->fid), 0);
    fi_freeinfo(named);
    puts("all names are right");
    return 0;
}
