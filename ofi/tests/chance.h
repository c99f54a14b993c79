/* Numbers that look random, and are the same for the same seed: of each thread. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static __thread uint64_t chance;

static inline uint64_t word(void)
{
    chance += 0x9e3779b97f4a7c15;
    uint64_t z = chance;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

static inline size_t below(size_t limit)
{
    return word() % limit;
}

static inline bool one_in(size_t of)
{
    return below(of) == 0;
}
