// A program whose functions read, write, time, close and open are its own. It counts their calls, and so finds calls by others.
#include <stdio.h>
#include <stdlib.h>

static int joined;

int read(const char *text, int n) { joined++; return text[0] + n; }
int write(const char *text, int n) { joined++; return text[0] - n; }
int open(int n) { joined++; return n; }
long time(void *unused) { joined++; return 7; }
int close(int n) { joined++; return n; }

int main(void) {
    enum { SIZE = 6 << 20 };
    int *block = malloc(SIZE * sizeof *block);
    long sum = 0;
#pragma omp parallel for
    for (int i = 0; i < SIZE; i++) block[i] = i % 7;
#pragma omp parallel for reduction(+ : sum)
    for (int i = 0; i < SIZE; i++) sum += block[i];
    printf("%ld %d %d\n", sum, joined, read("a", 1));
    return 0;
}
