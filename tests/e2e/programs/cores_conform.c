/* What segmentation cores owe any program: files, stdio, time, memory, the process itself. Prints "ok" and exits 7. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#define CHECK(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "line %d: %s (errno %d)\n", __LINE__, #what, errno); \
            exit(1); \
        } \
    } while (0)

static __thread int own = 41;

static void files(void) {
    char name[] = "/tmp/atoll_cores_XXXXXX", back[100] = "";
    int fd = mkstemp(name);
    CHECK(fd > 2);
    CHECK(write(fd, "some text", 9) == 9);
    CHECK(lseek(fd, 5, SEEK_SET) == 5 && read(fd, back, sizeof back) == 4 && !strcmp(back, "text"));
    CHECK(pread(fd, back, 4, 0) == 4 && !memcmp(back, "some", 4));
    struct iovec two[2] = {{"ab", 2}, {"cde", 3}};
    CHECK(writev(fd, two, 2) == 5);
    struct stat s;
    CHECK(fstat(fd, &s) == 0 && s.st_size == 14 && S_ISREG(s.st_mode));
    CHECK(stat(name, &s) == 0 && s.st_size == 14);
    CHECK(ftruncate(fd, 3) == 0 && fstat(fd, &s) == 0 && s.st_size == 3);
    char *map = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
    CHECK(map != MAP_FAILED && !strcmp(map, "som") && munmap(map, 4096) == 0);
    CHECK(close(fd) == 0 && close(fd) == -1 && errno == EBADF);
    FILE *f = fopen(name, "w");
    CHECK(f && fprintf(f, "%d %s\n", 12, "x") == 5 && fclose(f) == 0);
    f = fopen(name, "r");
    int number;
    CHECK(f && fscanf(f, "%d %99s", &number, back) == 2 && number == 12 && fclose(f) == 0);
    CHECK(unlink(name) == 0 && open(name, O_RDONLY) == -1 && errno == ENOENT);
    /* A file that is memory would lead out of the segment. */
    CHECK(open("/proc/self/mem", O_RDWR) == -1 && errno == EACCES);
    int ends[2];
    CHECK(pipe(ends) == 0 && write(ends[1], "p", 1) == 1 && read(ends[0], back, 10) == 1);
    CHECK(getcwd(back, sizeof back) && back[0] == '/');
}

static void times(void) {
    struct timespec a, b, pause = {0, 2000000};
    CHECK(clock_gettime(CLOCK_MONOTONIC, &a) == 0 && nanosleep(&pause, NULL) == 0);
    CHECK(clock_gettime(CLOCK_MONOTONIC, &b) == 0);
    CHECK((b.tv_sec - a.tv_sec) * 1000000000LL + b.tv_nsec - a.tv_nsec >= 2000000);
    CHECK(time(NULL) > 1000000000);
}

static void memory(void) {
    /* Small and large blocks, given back and taken again; what is new is zeros. */
    char *blocks[64];
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < 64; i++) {
            size_t bytes = (size_t)1 << (4 + i % 17);
            CHECK((blocks[i] = malloc(bytes)));
            memset(blocks[i], i + 1, bytes);
        }
        for (int i = 0; i < 64; i++) {
            size_t bytes = (size_t)1 << (4 + i % 17);
            CHECK(blocks[i][0] == (char)(i + 1) && blocks[i][bytes - 1] == (char)(i + 1));
            free(blocks[i]);
        }
    }
    unsigned char *zeros = calloc(3000000, 1);
    for (int i = 0; i < 3000000; i++) CHECK(zeros[i] == 0);
    memset(zeros, 9, 3000000);
    zeros = realloc(zeros, 6000000);
    CHECK(zeros && zeros[2999999] == 9);
    free(zeros);
    for (int round = 0; round < 2; round++) {
        char *map = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(map != MAP_FAILED && map[12345] == 0);
        map[12345] = 1;
        CHECK(munmap(map, 1 << 20) == 0);
    }
    char *before = sbrk(0);
    CHECK(sbrk(10000) == before && before[9999] == 0);
    /* More than there is. */
    CHECK(mmap(NULL, (size_t)0xf0000000U, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == ENOMEM);
}

/* Pointers that leave the segment; `limit` is its size. */
static void pointers(uintptr_t limit) {
    int fd = open("/dev/zero", O_RDWR);
    CHECK(fd >= 0);
    uintptr_t bad[] = {0, limit, limit - 1, (uintptr_t)-1, (uintptr_t)-8};
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        errno = 0;
        CHECK(syscall(SYS_read, fd, bad[i], 16) == -1 && errno == EFAULT);
        errno = 0;
        CHECK(syscall(SYS_write, fd, bad[i], 16) == -1 && errno == EFAULT);
        errno = 0;
        CHECK(syscall(SYS_uname, bad[i]) == -1 && errno == EFAULT);
        struct iovec one = {(void *)bad[i], 16};
        errno = 0;
        CHECK(readv(fd, &one, 1) == -1 && errno == EFAULT);
    }
    errno = 0;
    CHECK(syscall(SYS_open, limit - 3, 0) == -1 && (errno == EFAULT || errno == ENOENT));
    close(fd);
}

int main(int argc, char **argv) {
    CHECK(argc == 4 && !strcmp(argv[2], "two words") && !*argv[3]);
    CHECK(getenv("CORES") && !strcmp(getenv("CORES"), "value"));
    CHECK(own++ == 41 && own == 42);
    struct utsname name;
    CHECK(uname(&name) == 0 && !strcmp(name.sysname, "Linux"));
    CHECK(getpid() > 1 && getppid() >= 0);
    files();
    times();
    memory();
    pointers(strtoul(argv[1], NULL, 0));
    CHECK(fork() == -1 && errno == ENOSYS);
    CHECK(vfork() == -1 && errno == ENOSYS);
    CHECK(execl("/bin/true", "true", NULL) == -1 && errno == ENOSYS);
    double x = 0;
    for (int i = 1; i < 1000; i++) x += 1.0 / i;
    printf("%.6f\n", x);
    fflush(stdout);
    if (getenv("CORES_WAIT")) sleep(60);
    int c = getchar();
    CHECK(c == 'i');
    puts("ok");
    return 7;
}
