/* What all test programs here use. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#define CHECK(x)                                                                                             \
    do {                                                                                                     \
        if (!(x)) {                                                                                          \
            fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #x, errno);                        \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)
#define LARGE (64UL << 20)
static inline void fill(unsigned char *p, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (unsigned char)((i * 2654435761u + seed) >> 13);
}
static inline int same(const unsigned char *p, size_t n, size_t from, uint64_t seed)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != (unsigned char)(((i + from) * 2654435761u + seed) >> 13))
            return 0;
    return 1;
}
/* Touches so much memory that everything else is evicted. */
static inline void push_out(void)
{
    static unsigned char *other;
    if (!other)
        other = (unsigned char *)malloc(LARGE / 2);
    for (size_t i = 0; i < LARGE / 2; i += 4096)
        other[i]++;
}
