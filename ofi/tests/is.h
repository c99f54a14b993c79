/* What the programs of these tests expect: two numbers are the same, or the program ends and says which line is wrong. */
#include <stdio.h>
#include <stdlib.h>

#define IS(a, b)                                                                              \
    do {                                                                                      \
        long long is_ = (long long)(a), due_ = (long long)(b);                                \
        if (is_ != due_) {                                                                    \
            fprintf(stderr, "line %d: %s is %lld, not %lld\n", __LINE__, #a, is_, due_);      \
            exit(1);                                                                          \
        }                                                                                     \
    } while (0)
