/* Reads and writes of files straight into and out of arrays larger than near memory. ARGV[1]: a directory. */
#define _GNU_SOURCE
#include "e2e.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { N = 4 << 20, BYTES = N * 8 }; /* 32 MB */
static uint64_t fixed[N];            /* in .bss */

static void fill(uint64_t *a, uint64_t seed) {
#pragma omp parallel for
    for (long i = 0; i < N; i++) a[i] = mix(seed + (uint64_t)i);
}
static int holds(const uint64_t *a, uint64_t seed) {
    long bad = 0;
#pragma omp parallel for reduction(+ : bad)
    for (long i = 0; i < N; i++) bad += a[i] != mix(seed + (uint64_t)i);
    return !bad;
}
/* As POSIX programs do it. */
static int all(ssize_t (*call)(int, void *, size_t), int fd, void *p, size_t n) {
    size_t done = 0;
    while (done < n) {
        ssize_t k = call(fd, (char *)p + done, n - done);
        if (k <= 0) { perror("call"); return 0; }
        done += (size_t)k;
    }
    return 1;
}
static ssize_t put(int fd, void *p, size_t n) { return write(fd, p, n); }

int main(int argc, char **argv) {
    char path[4096];
    snprintf(path, sizeof path, "%s/data", argc > 1 ? argv[1] : ".");
    uint64_t *heap = malloc(BYTES);
    fill(heap, 1);
    /* write from and read into heap and globals */
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0 && all(put, fd, heap, BYTES));
    struct stat st;
    CHECK(fstat(fd, &st) == 0 && st.st_size == BYTES);
    CHECK(lseek(fd, 0, SEEK_SET) == 0 && all(read, fd, fixed, BYTES) && holds(fixed, 1));
    memset(heap, 0, BYTES);
    /* one call for everything: regular files give all at once */
    CHECK(pread(fd, heap, BYTES, 0) == BYTES && holds(heap, 1));
    fill(fixed, 2);
    CHECK(pwrite(fd, fixed, BYTES, 0) == BYTES);
    /* vectors, backwards by quarters */
    struct iovec v[4];
    for (int i = 0; i < 4; i++) v[i] = (struct iovec){(char *)heap + (size_t)(3 - i) * (BYTES / 4), BYTES / 4};
    CHECK(preadv(fd, v, 4, 0) == BYTES);
    for (int i = 0; i < 4; i++) CHECK(!memcmp((char *)heap + (size_t)(3 - i) * (BYTES / 4), (char *)fixed + (size_t)i * (BYTES / 4), 4096));
    CHECK(pwritev(fd, v, 4, 0) == BYTES);
    CHECK(lseek(fd, 0, SEEK_SET) == 0 && readv(fd, v, 4) == BYTES);
    CHECK(holds(fixed, 2));
    close(fd);
    /* stdio */
    FILE *f = fopen(path, "w+b");
    fill(heap, 3);
    CHECK(fwrite(heap, 8, N, f) == N);
    CHECK(fflush(f) == 0);
    rewind(f);
    memset(fixed, 0, BYTES);
    CHECK(fread(fixed, 8, N, f) == N && holds(fixed, 3));
    rewind(f);
    char *buffer = malloc(8 << 20);
    CHECK(setvbuf(f, buffer, _IOFBF, 8 << 20) == 0);
    memset(heap, 0, BYTES);
    for (long i = 0; i < N; i += 1000) CHECK(fread(heap + i, 8, (size_t)(N - i < 1000 ? N - i : 1000), f) > 0);
    CHECK(holds(heap, 3));
    fclose(f);
    free(buffer);
    /* every worker reads its part of the same descriptor */
    fd = open(path, O_RDONLY);
    memset(fixed, 0, BYTES);
#pragma omp parallel for schedule(dynamic, 1)
    for (int k = 0; k < 64; k++) CHECK(pread(fd, fixed + (long)k * (N / 64), BYTES / 64, (off_t)k * (BYTES / 64)) == BYTES / 64);
    CHECK(holds(fixed, 3));
    /* every worker opens a file of its own */
#pragma omp parallel for schedule(dynamic, 1)
    for (int k = 0; k < 8; k++) {
        FILE *own = fopen(path, "rb");
        CHECK(own && fseek(own, (long)k * (BYTES / 8), SEEK_SET) == 0);
        CHECK(own && fread(heap + (long)k * (N / 8), 8, N / 8, own) == N / 8);
        if (own) fclose(own);
    }
    CHECK(holds(heap, 3));
    /* mapping a file, copying from it */
    const uint64_t *map = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(map != MAP_FAILED && holds(map, 3));
    memset(heap, 0, BYTES);
    memcpy(heap, map, BYTES);
    CHECK(holds(heap, 3));
    munmap((void *)map, BYTES);
    close(fd);
    /* pipes and sockets */
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    fill(heap, 4);
    memset(fixed, 0, BYTES);
    for (long at = 0; at < BYTES; at += 65536) {
        CHECK(send(ends[0], (char *)heap + at, 65536, 0) == 65536);
        CHECK(recv(ends[1], (char *)fixed + at, 65536, MSG_WAITALL) == 65536);
    }
    CHECK(holds(fixed, 4));
    close(ends[0]), close(ends[1]);
    CHECK(pipe(ends) == 0);
    memset(fixed, 0, BYTES);
    for (long at = 0; at < BYTES; at += 32768) {
        CHECK(write(ends[1], (char *)heap + at, 32768) == 32768);
        CHECK(read(ends[0], (char *)fixed + at, 32768) == 32768);
    }
    CHECK(holds(fixed, 4));
    /* what should fail fails as it should */
    CHECK(read(ends[0], (void *)16, 0) == 0 || errno == EFAULT);
    CHECK(write(ends[1], (void *)16, 100) == -1 && errno == EFAULT);
    CHECK(read(-1, heap, 100) == -1 && errno == EBADF);
    /* buffers for other calls */
    CHECK(getcwd((char *)(heap + N / 2), 4096) != NULL);
    CHECK(readlink("/proc/self/exe", (char *)(heap + N / 4), 4096) > 0);
    CHECK(stat(path, (struct stat *)(fixed + N / 2)) == 0);
    CHECK(sprintf((char *)(fixed + 1000), "%d", 5) == 1);
    strcpy((char *)(heap + 5 * 4096), path);
    CHECK((fd = open((char *)(heap + 5 * 4096), O_RDONLY)) >= 0);
    close(fd);
    unlink(path);
    return verdict();
}
