/* Reads and writes of files with buffers in arrays larger than near memory. */
#include "check.h"
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/uio.h>
#include <aio.h>
static unsigned char global[8 << 20];
int main(void)
{
    unsigned char *a = malloc(LARGE), *b = malloc(LARGE);
    fill(a, LARGE, 1);
    int fd = open("data", O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0);
    CHECK(write(fd, a, LARGE) == (ssize_t)LARGE);
    CHECK(lseek(fd, 0, SEEK_SET) == 0);
    CHECK(read(fd, b, LARGE) == (ssize_t)LARGE);
    CHECK(same(b, LARGE, 0, 1));
    /* Reading at the end is short, and at an odd address. */
    memset(b, 0, 100000);
    CHECK(pread(fd, b + 13, LARGE - 13, LARGE - 70001) == 70001);
    CHECK(same(b + 13, 70001, LARGE - 70001, 1) && b[12] == 0 && b[13 + 70001] == 0);
    push_out();
    CHECK(pwrite(fd, a + 12345, 5000000, 100) == 5000000);
    CHECK(pread(fd, b, 5000000, 100) == 5000000 && same(b, 5000000, 12345, 1));
    CHECK(read(-1, b, LARGE) == -1 && errno == EBADF);
    CHECK(read(fd, b, 0) == 0);
    /* Vectors, small and large, some in paged memory. */
    char small[10];
    struct iovec v[3] = {{b, 3000001}, {small, 10}, {b + 4000000, 20000000}};
    CHECK(pwrite(fd, a, LARGE, 0) == (ssize_t)LARGE);
    push_out();
    CHECK(preadv(fd, v, 3, 7) == 23000011);
    CHECK(same(b, 3000001, 7, 1) && same((unsigned char *)small, 10, 3000008, 1) && same(b + 4000000, 20000000, 3000018, 1));
    push_out();
    CHECK(lseek(fd, 0, SEEK_SET) == 0 && writev(fd, v, 3) == 23000011);
    memset(b, 0, LARGE);
    CHECK(lseek(fd, 0, SEEK_SET) == 0 && readv(fd, v, 3) == 23000011);
    CHECK(same(b, 3000001, 7, 1) && same(b + 4000000, 20000000, 3000018, 1));
    struct iovec *pv = malloc(100000 * sizeof *pv);
    for (int i = 0; i < 100; i++)
        pv[i] = (struct iovec){b + i * 5000, 100};
    push_out();
    CHECK(preadv2(fd, pv, 100, 0, 0) == 10000);
    for (int i = 0; i < 100; i++)
        CHECK(same(b + i * 5000, 100, 7 + i * 100, 1));
    /* stdio: libc reads and writes large pieces past its buffer. */
    FILE *f = fopen("stream", "w+");
    CHECK(f);
    push_out();
    CHECK(fwrite(a, 1, 100, f) == 100);
    CHECK(fwrite(a + 100, 8, (LARGE - 104) / 8, f) == (LARGE - 104) / 8);
    CHECK(fflush(f) == 0 && fseek(f, 0, SEEK_SET) == 0);
    memset(b, 0, LARGE);
    push_out();
    CHECK(fread(b, 1, 50, f) == 50);
    CHECK(fread(b + 50, 1, LARGE, f) == LARGE - 54);
    CHECK(feof(f) && same(b, LARGE - 4, 0, 1));
    CHECK(fclose(f) == 0);
    /* A mapped file as source, a paged global as destination. */
    CHECK(pwrite(fd, a, LARGE, 0) == (ssize_t)LARGE);
    unsigned char *m = mmap(0, LARGE, PROT_READ, MAP_PRIVATE, fd, 0);
    CHECK(m != MAP_FAILED && same(m, LARGE, 0, 1));
    int g = open("other", O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(write(g, m, LARGE) == (ssize_t)LARGE);
    CHECK(pread(g, global, sizeof global, 4096) == sizeof global && same(global, sizeof global, 4096, 1));
    push_out();
    CHECK(pwrite(g, global, sizeof global, 0) == sizeof global && munmap(m, LARGE) == 0);
    CHECK(pread(g, b, sizeof global, 0) == sizeof global && same(b, sizeof global, 4096, 1));
    /* A device, and random bytes. */
    int z = open("/dev/zero", O_RDONLY);
    CHECK(read(z, b, LARGE) == (ssize_t)LARGE);
    for (size_t i = 0; i < LARGE; i += 511)
        CHECK(b[i] == 0);
    push_out();
    CHECK(getrandom(b, 3000000, 0) == 3000000);
    int set = 0;
    for (size_t i = 0; i < 3000000; i++)
        set += b[i] != 0;
    CHECK(set > 2900000);
    free(a);
    free(b);
    puts("good");
}
