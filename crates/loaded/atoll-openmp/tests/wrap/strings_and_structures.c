/* Paths and small structures in paged memory that was evicted. */
#include "check.h"
#include <dirent.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/times.h>
#include <sys/utsname.h>
#include <sys/sysinfo.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <time.h>
#define AT(i) (p + (i) * 8192)
#define OUT push_out()
int main(void)
{
    char *p = malloc(LARGE);
    memset(p, 1, LARGE);
    /* A name that crosses a page. */
    char *name = p + 4096 * 3 - 4, *other = AT(10);
    strcpy(name, "./directory");
    strcpy(other, "directory/file");
    OUT; CHECK(mkdir(name, 0700) == 0);
    OUT; int fd = open(other, O_RDWR | O_CREAT, 0600);
    CHECK(fd >= 0);
    OUT; CHECK(openat(AT_FDCWD, other, O_RDONLY) >= 0);
    OUT; CHECK(access(other, R_OK) == 0);
    struct stat *st = (void *)AT(20);
    OUT; CHECK(stat(other, st) == 0 && S_ISREG(st->st_mode));
    OUT; CHECK(lstat(name, st) == 0 && S_ISDIR(st->st_mode));
    OUT; CHECK(fstat(fd, st) == 0 && S_ISREG(st->st_mode));
    OUT; CHECK(fstatat(AT_FDCWD, other, st, 0) == 0);
    strcpy(AT(30), "directory/renamed");
    OUT; CHECK(rename(other, AT(30)) == 0);
    strcpy(AT(31), "directory/link");
    OUT; CHECK(symlink("renamed", AT(31)) == 0);
    OUT; CHECK(readlink(AT(31), AT(40), 100) == 7 && !memcmp(AT(40), "renamed", 7));
    OUT; CHECK(realpath(AT(31), AT(50)) == AT(50) && strstr(AT(50), "directory/renamed"));
    OUT; CHECK(getcwd(AT(60), 8000) == AT(60) && AT(60)[0] == '/');
    OUT; DIR *d = opendir(name);
    CHECK(d && readdir(d));
    closedir(d);
    strcpy(AT(70), "r+");
    OUT; FILE *f = fopen(AT(30), AT(70));
    CHECK(f && fclose(f) == 0);
    OUT; CHECK(truncate(AT(30), 100) == 0 && chmod(AT(30), 0644) == 0);
    struct timespec *ts = (void *)AT(80);
    ts[0] = ts[1] = (struct timespec){1000, 5};
    OUT; CHECK(utimensat(AT_FDCWD, AT(30), ts, 0) == 0);
    OUT; CHECK(stat(AT(30), st) == 0 && st->st_mtime == 1000 && st->st_size == 100);
    strcpy(AT(90), "directory/tmpXXXXXX");
    OUT; int tmp = mkstemp(AT(90));
    CHECK(tmp >= 0);
    OUT; CHECK(unlink(AT(90)) == 0 && unlink(AT(31)) == 0 && remove(AT(30)) == 0);
    OUT; CHECK(statvfs(name, (void *)AT(91)) == 0);
    OUT; CHECK(rmdir(name) == 0 && rmdir(name) == -1 && errno == ENOENT);
    OUT; CHECK(getrusage(RUSAGE_SELF, (void *)AT(100)) == 0);
    OUT; CHECK(getrlimit(RLIMIT_NOFILE, (void *)AT(101)) == 0);
    OUT; CHECK(setrlimit(RLIMIT_NOFILE, (void *)AT(101)) == 0);
    OUT; CHECK(uname((void *)AT(102)) == 0 && !strcmp(((struct utsname *)AT(102))->sysname, "Linux"));
    OUT; CHECK(sysinfo((void *)AT(103)) == 0);
    OUT; CHECK(times((void *)AT(104)) != -1);
    OUT; CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, (void *)AT(105)) == 0);
    OUT; CHECK(gettimeofday((void *)AT(105), 0) == 0);
    *ts = (struct timespec){0, 1000};
    OUT; CHECK(nanosleep(ts, 0) == 0);
    OUT; CHECK(clock_nanosleep(CLOCK_MONOTONIC, 0, ts, 0) == 0);
    OUT; CHECK(pipe((int *)AT(106)) == 0);
    *(int *)AT(107) = 5;
    OUT; CHECK(write(((int *)AT(106))[1], "12345", 5) == 5);
    OUT; CHECK(ioctl(((int *)AT(106))[0], 0x541B /* FIONREAD */, AT(107)) == 0 && *(int *)AT(107) == 5);
    OUT; CHECK(sched_getaffinity(0, sizeof(cpu_set_t), (void *)AT(108)) == 0);
    struct flock *lock = (void *)AT(109);
    *lock = (struct flock){.l_type = F_WRLCK};
    OUT; CHECK(fcntl(fd, F_GETLK, lock) == 0 && lock->l_type == F_UNLCK);
    fd_set *set = (void *)AT(110);
    FD_ZERO(set);
    FD_SET(((int *)AT(106))[0], set);
    struct timeval *tv = (void *)AT(111);
    *tv = (struct timeval){1, 0};
    OUT; CHECK(select(((int *)AT(106))[0] + 1, set, 0, 0, tv) == 1);
    OUT; CHECK(puts((strcpy(AT(112), "good"), AT(112))) >= 0);
    return 0;
}
