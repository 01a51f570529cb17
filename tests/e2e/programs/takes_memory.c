/* Takes memory slowly: ARGV[1] MiB, a MiB each ARGV[2] milliseconds, and keeps it for a second. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int mib = argc > 1 ? atoi(argv[1]) : 1, ms = argc > 2 ? atoi(argv[2]) : 1;
    for (int i = 0; i < mib; i++) {
        char *block = malloc(1 << 20);
        if (!block)
            return 1;
        memset(block, i + 1, 1 << 20);
        usleep(1000 * ms);
    }
    sleep(1);
    printf("took %d MiB\n", mib);
    return 0;
}
