/* Far memory that libc's own code or a rarely used call hands to the kernel: asynchronous transfers, semaphores and messages, pipes that take
 * pages, attributes of files, many small vectors at once, and locks of all memory. Without atoll it prints the same. */
#define _GNU_SOURCE
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/sem.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { SIZE = 8 << 20, BALLAST = 100 << 20, PART = 8192 };
static char *ballast;

/* Touches so much that all else is far. */
static void use_ballast(void)
{
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < BALLAST; i += 4096)
            ballast[i]++;
}

#define CHECK(what)                                                                                          \
    do {                                                                                                     \
        if (!(what))                                                                                         \
            printf("line %d: %s: %s\n", __LINE__, #what, strerror(errno));                                   \
    } while (0)

static volatile sig_atomic_t signals, value_of_signal;

static void on_signal(int number, siginfo_t *info, void *context)
{
    (void)number, (void)context;
    value_of_signal = info->si_code == SI_ASYNCIO ? info->si_value.sival_int : -1;
    signals++;
}

static void asynchronous(char *a, char *b)
{
    FILE *file = tmpfile();
    struct aiocb *all = calloc(1, 1 << 20);
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
    sigaction(SIGUSR1, &action, 0);
    for (int i = 0; i < 8; i++) {
        all[i].aio_fildes = fileno(file);
        all[i].aio_buf = a + i * (SIZE / 8);
        all[i].aio_nbytes = SIZE / 8;
        all[i].aio_offset = i * (SIZE / 8);
        all[i].aio_sigevent.sigev_notify = SIGEV_NONE;
    }
    all[7].aio_sigevent = (struct sigevent){.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    all[7].aio_sigevent.sigev_value.sival_int = 47;
    use_ballast();
    for (int i = 0; i < 8; i++)
        CHECK(aio_write(&all[i]) == 0);
    for (int i = 0; i < 8; i++) {
        const struct aiocb *one[] = {&all[i]};
        while (aio_error(&all[i]) == EINPROGRESS)
            aio_suspend(one, 1, 0);
        CHECK(aio_return(&all[i]) == SIZE / 8);
    }
    while (!signals)
        usleep(1000);
    struct aiocb **list = calloc(8, sizeof *list);
    for (int i = 0; i < 8; i++) {
        list[i] = &all[i];
        all[i].aio_buf = b + i * (SIZE / 8);
        all[i].aio_lio_opcode = LIO_READ;
        all[i].aio_sigevent.sigev_notify = SIGEV_NONE;
    }
    use_ballast();
    CHECK(lio_listio(LIO_WAIT, list, 8, 0) == 0);
    printf("asynchronous: %d, signals %d, value %d\n", memcmp(a, b, SIZE), (int)signals, (int)value_of_signal);
    all[0].aio_fildes = -1;
    use_ballast();
    int begun = aio_read(&all[0]);
    while (begun == 0 && aio_error(&all[0]) == EINPROGRESS)
        usleep(1000);
    printf("a wrong descriptor: %d\n", begun == 0 ? aio_error(&all[0]) : errno);
    free(list);
    free(all);
    fclose(file);
}

static void semaphores_and_messages(char *a, char *b)
{
    int set = semget(IPC_PRIVATE, 4, 0600), queue = msgget(IPC_PRIVATE, 0600);
    unsigned short *values = malloc(1 << 20);
    struct sembuf *operations = calloc(1, 1 << 20);
    for (int i = 0; i < 4; i++) {
        values[i] = (unsigned short)(i + 1);
        operations[i].sem_num = (unsigned short)i;
        operations[i].sem_op = -1;
    }
    use_ballast();
    CHECK(semctl(set, 0, SETALL, values) == 0);
    CHECK(semctl(set, 2, SETVAL, 9) == 0);
    use_ballast();
    CHECK(semop(set, operations, 4) == 0);
    memset(values, 0, 8);
    use_ballast();
    CHECK(semctl(set, 0, GETALL, values) == 0);
    printf("semaphores: %d %d %d %d\n", values[0], values[1], values[2], values[3]);
    semctl(set, 0, IPC_RMID);
    *(long *)a = 5;
    use_ballast();
    CHECK(msgsnd(queue, a, 4000, 0) == 0);
    use_ballast();
    CHECK(msgrcv(queue, b, 4000, 0, 0) == 4000);
    struct msqid_ds *about = calloc(1, 1 << 20);
    use_ballast();
    CHECK(msgctl(queue, IPC_STAT, about) == 0);
    printf("messages: %d, left %d\n", memcmp(a, b, 4008), (int)about->msg_qnum);
    msgctl(queue, IPC_RMID, 0);
    char name[40];
    snprintf(name, sizeof name, "/handed_to_libcs_own_%d", (int)getpid());
    struct mq_attr *attributes = calloc(1, 1 << 20);
    attributes->mq_maxmsg = 4;
    attributes->mq_msgsize = 4000;
    use_ballast();
    mqd_t posix = mq_open(name, O_RDWR | O_CREAT, 0600, attributes);
    if (posix != (mqd_t)-1) {
        use_ballast();
        CHECK(mq_send(posix, a, 3000, 3) == 0);
        use_ballast();
        CHECK(mq_receive(posix, b + 100, 4000, 0) == 3000);
        CHECK(memcmp(a, b + 100, 3000) == 0);
        mq_close(posix);
        mq_unlink(name);
    }
    free(attributes);
    free(about);
    free(values);
    free(operations);
}

static void pipes(char *a, char *b)
{
    int first[2], second[2];
    CHECK(pipe(first) == 0 && pipe(second) == 0);
    struct iovec *vector = malloc(1 << 20);
    *vector = (struct iovec){a + 100, 32768};
    use_ballast();
    CHECK(vmsplice(first[1], vector, 1, 0) == 32768);
    CHECK(tee(first[0], second[1], 32768, 0) == 32768);
    vector->iov_base = b;
    use_ballast();
    CHECK(vmsplice(second[0], vector, 1, 0) == 32768);
    use_ballast();
    printf("pipes: %d", memcmp(a + 100, b, 32768));
    vector->iov_len = 1000;
    CHECK(vmsplice(second[1], vector, 1, SPLICE_F_NONBLOCK) == 1000);
    CHECK(read(second[0], b, 1000) == 1000);
    use_ballast();
    printf(" %zd\n", vmsplice(second[0], vector, 1, SPLICE_F_NONBLOCK));
    for (int i = 0; i < 2; i++)
        close(first[i]), close(second[i]);
    free(vector);
}

static void vectors(char *a, char *b)
{
    FILE *file = tmpfile();
    int count = SIZE / PART;
    struct iovec *list = malloc((size_t)count * sizeof *list);
    for (int i = 0; i < count; i++)
        list[i] = (struct iovec){a + (size_t)(i * 7919L % count) * PART, i % 100 == 3 ? 0 : PART};
    use_ballast();
    ssize_t written = pwritev2(fileno(file), list, count, 10, RWF_DSYNC);
    for (int i = 0; i < count; i++)
        list[i].iov_base = b + (size_t)(i * 7919L % count) * PART;
    memset(b, 0, SIZE);
    use_ballast();
    ssize_t got = preadv(fileno(file), list, count, 10);
    int wrong = 0;
    for (int i = 0; i < count; i++)
        wrong += memcmp(list[i].iov_base, a + ((char *)list[i].iov_base - b), list[i].iov_len) != 0;
    printf("vectors: %zd %zd %d\n", written, got, wrong);
    free(list);
    fclose(file);
}

static void others(char *a, char *b)
{
    cpu_set_t *cpus = (cpu_set_t *)b;
    use_ballast();
    CHECK(pthread_getaffinity_np(pthread_self(), sizeof *cpus, cpus) == 0);
    use_ballast();
    CHECK(pthread_setaffinity_np(pthread_self(), sizeof *cpus, cpus) == 0);
    FILE *file = tmpfile();
    use_ballast();
    if (fsetxattr(fileno(file), "user.atoll", a, 200, 0) == 0) {
        use_ballast();
        CHECK(fgetxattr(fileno(file), "user.atoll", b, 1000) == 200 && memcmp(a, b, 200) == 0);
        use_ballast();
        CHECK(flistxattr(fileno(file), b, 1000) > 0);
    }
    fclose(file);
    use_ballast();
    CHECK(getentropy(b, 256) == 0);
    sigset_t *set = (sigset_t *)a;
    sigemptyset(set);
    sigaddset(set, SIGUSR2);
    sigprocmask(SIG_BLOCK, set, 0);
    raise(SIGUSR2);
    use_ballast();
    CHECK(sigwaitinfo(set, (siginfo_t *)b) == SIGUSR2);
    use_ballast();
    char *page = (char *)((uintptr_t)(a + 4095) & ~(uintptr_t)4095);
    CHECK(mincore(page, SIZE / 2, (unsigned char *)b) == 0 || errno == ENOMEM);
    strcpy(b, "far name");
    use_ballast();
    CHECK(prctl(PR_SET_NAME, b) == 0);
    use_ballast();
    CHECK(prctl(PR_GET_NAME, a) == 0 && strcmp(a, "far name") == 0);
    use_ballast();
    CHECK(getresuid((uid_t *)a, (uid_t *)b, (uid_t *)(a + 100)) == 0);
    int both[2];
    use_ballast();
    CHECK(syscall(SYS_pipe2, b, 0) == 0);
    memcpy(both, b, sizeof both);
    close(both[0]), close(both[1]);
    for (int i = 0; i < 100; i++)
        ((void **)a)[i] = ballast + 4096L * i;
    use_ballast();
    CHECK(syscall(SYS_move_pages, 0, 100L, a, NULL, b, 0) == 0 || errno == ENOSYS || errno == EPERM);
    printf("others: %d\n", both[0] > 2);
}

int main(void)
{
    setvbuf(stdout, 0, _IONBF, 0);
    ballast = calloc(1, BALLAST);
    char *a = malloc(SIZE), *b = malloc(SIZE);
    use_ballast();
    // Locks all that there is and will be, or fails as where there is a limit: the program goes on in both cases.
    int locked = mlockall(MCL_CURRENT | MCL_FUTURE);
    printf("locked or refused: %d\n", locked == 0 || errno == ENOMEM || errno == EPERM);
    if (locked == 0)
        munlockall();
    for (size_t i = 0; i < SIZE; i++)
        a[i] = (char)(i * 2654435761u >> 13);
    asynchronous(a, b);
    semaphores_and_messages(a, b);
    pipes(a, b);
    vectors(a, b);
    others(a, b);
    return 0;
}
