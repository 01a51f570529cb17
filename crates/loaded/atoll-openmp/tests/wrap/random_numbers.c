/* The same numbers as natively, by default and from seeds. */
#include "check.h"
int main(void)
{
    for (int i = 0; i < 5; i++)
        printf("%d %ld\n", rand(), random());
    for (int i = 0; i < 5; i++)
        printf("%.17g %ld %ld\n", drand48(), lrand48(), mrand48());
    srand(12345);
    for (int i = 0; i < 5; i++)
        printf("%d\n", rand());
    srandom(7);
    static char state[64];
    char *old = initstate(99, state, sizeof state);
    for (int i = 0; i < 5; i++)
        printf("%ld\n", random());
    setstate(old);
    for (int i = 0; i < 5; i++)
        printf("%ld\n", random());
    srand48(4242);
    unsigned short x[3] = {1, 2, 3};
    for (int i = 0; i < 5; i++)
        printf("%.17g %.17g %ld %ld\n", drand48(), erand48(x), nrand48(x), jrand48(x));
    unsigned short *before = seed48(x);
    printf("%d %d %d %.17g\n", before[0], before[1], before[2], drand48());
    unsigned short l[7] = {1, 2, 3, 4, 5, 6, 7};
    lcong48(l);
    printf("%.17g\n", drand48());
    puts("good");
}
